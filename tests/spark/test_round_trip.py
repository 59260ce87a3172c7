"""A stream read, a column transformed, a stream written, with Java: `make test` runs this one module of Spark's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.copied_messages import everything
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYLOADS = (b"", b"plain", bytes(range(256)), "ü".encode() * 1000)
BLOCK = b"NATS/1.0\r\nB: x\r\na:   y \r\nB: \r\n\r\n"


@pytest.mark.timeout(900)  # starts Java
async def test_what_is_written_is_what_was_read_with_its_subject_transformed(
    spark: SparkSession, servers: SharedServers, raw_peer: OpenPeer, unique_name: Name
) -> None:
    """From the newest server to the oldest."""
    source, target = await servers.url(LIVE_VERSIONS[-1]), await servers.url(LIVE_VERSIONS[0])
    at_source, copies = await raw_peer(source), await raw_peer(target)
    orders, sales = unique_name("orders"), unique_name("sales")
    await at_source.create_stream(name=orders, subjects=[f"{orders}.>"])
    await copies.create_stream(name=sales, subjects=[f"{sales}.>"])
    for number, payload in enumerate(PAYLOADS):
        await at_source.store(f"{orders}.{number}.eu".encode(), payload, BLOCK)
    read = spark.read.format("jetstream").option("servers", source).option("stream", orders)
    rows = read.schema("subject string, sequence bigint, header_block binary, data binary").load()
    renamed = rows.selectExpr(
        f"regexp_replace(subject, '^{orders}[.]([0-9]+)[.]eu$', '{sales}.eu.$1') subject",
        "header_block",
        "data",
        "cast(sequence as string) id",
    )
    writer = renamed.coalesce(1).write.format("jetstream").option("servers", target).option("stream", sales)
    writer.mode("append").save()
    held = await everything(copies, sales)
    assert [(message.subject, message.header_block, message.payload) for message in held] == [
        (f"{sales}.eu.{number}".encode(), BLOCK[:-2] + b"Nats-Msg-Id: %d\r\n\r\n" % (number + 1), payload)
        for number, payload in enumerate(PAYLOADS)
    ]
