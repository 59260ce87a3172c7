"""Batch read: every message that the stream holds, once, exactly as it is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nats_bridge_spark.errors import DataLostError, OptionError, PipelineError, SchemaError, UnreachableError, reported
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

on_both = pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])


@pytest.fixture
async def filled(peer: RawPeer, unique_name: Name) -> str:
    """A stream with a hundred messages on four subjects."""
    stream = unique_name("FILLED")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for number in range(1, 101):
        await peer.store(f"{stream}.{number % 4}".encode())
    return stream


@pytest.fixture
def frame(spark: SparkSession, url: str) -> Callable[..., DataFrame]:
    def read(stream: str, schema: str = "", **options: object) -> DataFrame:
        reader = spark.read.format("jetstream").option("servers", url).option("stream", stream)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return (reader.schema(schema) if schema else reader).load()

    return read


@on_both
async def test_all_columns_are_exact(frame: Callable[..., DataFrame], peer: RawPeer, unique_name: Name) -> None:
    stream = unique_name("READ")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    block = b"NATS/1.0\r\nTag: a\r\ntag:  B \r\nTag: a\r\n\r\n"
    for i in range(300):
        await peer.store(f"{stream}.{i}".encode(), bytes([i % 256, 0, 255]), block if i % 3 == 0 else b"")
    rows = sorted(frame(stream, partitions=3).collect(), key=lambda row: row.sequence)
    assert [row.sequence for row in rows] == list(range(1, 301))
    assert [(row.stream, row.subject, row.data) for row in rows] == [
        (stream, f"{stream}.{i}", bytes([i % 256, 0, 255])) for i in range(300)
    ]
    assert rows[0].headers == [("Tag", "a"), ("tag", "B"), ("Tag", "a")]
    assert rows[1].headers == []
    assert all(int(row.time.replace(tzinfo=UTC).timestamp()) == row.time_ns // 10**9 for row in rows)
    some = frame(stream, "data binary, header_block binary, sequence bigint").where("sequence = 1").collect()
    assert some == [(b"\x00\x00\xff", block, 1)]
    light = frame(stream, payload="false")
    assert light.columns == ["stream", "subject", "sequence", "time", "time_ns", "headers"]
    assert [len(row.headers) for row in light.orderBy("sequence").collect()] == [3, 0, 0] * 100


async def test_a_read_has_as_many_ranges_as_spark_has_cores(spark: SparkSession, url: str, filled: str) -> None:
    read = spark.read.format("jetstream").option("servers", url).option("stream", filled)
    assert read.load().rdd.getNumPartitions() == spark.sparkContext.defaultParallelism == 2
    assert read.option("stream", filled).load().count() == 100


async def test_a_filtered_query_leaves_others_of_the_same_table_alone(
    spark: SparkSession, url: str, filled: str
) -> None:
    """Spark keeps filters that a reader has accepted for later queries of the table, so the reader accepts none."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        table = spark.read.format("jetstream").option("servers", url).option("stream", filled).load()
        first, last = table.where("sequence <= 10"), table.where("sequence > 95")
        assert (first.count(), last.count(), table.count()) == (10, 5, 100)
        assert (first.union(last).count(), first.union(table).count()) == (15, 110)
        assert table.where(f"subject = '{filled}.1' and time > timestamp'2020-01-01'").count() == 25
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("options", "schema", "kind", "complaint"),
    [
        ({"stream": "NO_SUCH"}, "", PipelineError, "stream 'NO_SUCH': not found at nats://127.0.0.1"),
        ({"startSequnce": "1"}, "", OptionError, "option startSequnce: unknown; did you mean startSequence?"),
        ({"partitions": "none"}, "", OptionError, "option partitions: 'none' is not an integer"),
        ({}, "sequence int", SchemaError, "column sequence: is bigint, not int"),
        ({}, "payload binary", SchemaError, "column payload: messages have none"),
        (
            {"servers": "nats://127.0.0.1:1", "connectTimeout": "0.2"},
            "",
            UnreachableError,
            "no server answers at nats://127.0.0.1:1",
        ),
    ],
)
async def test_the_driver_gets_what_is_wrong(
    spark: SparkSession,
    url: str,
    filled: str,
    options: dict[str, str],
    schema: str,
    kind: type[PipelineError],
    complaint: str,
) -> None:
    read = spark.read.format("jetstream").options(**{"servers": url, "stream": filled, **options})
    with pytest.raises(Exception, match="nats-bridge says") as caught:
        (read.schema(schema) if schema else read).load().collect()
    error = reported(caught.value)
    assert type(error) is kind
    assert complaint.lower() in str(error).lower()


@on_both
async def test_a_frame_is_what_it_was_planned_to_be_or_an_error(
    frame: Callable[..., DataFrame], peer: RawPeer, unique_name: Name
) -> None:
    stream = unique_name("PINNED")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for _ in range(10):
        await peer.store(f"{stream}.x".encode())
    pinned = frame(stream)
    assert pinned.count() == 10
    await peer.store(f"{stream}.x".encode())
    assert pinned.count() == 10
    assert frame(stream).count() == 11
    await peer.api(f"STREAM.PURGE.{stream}", {"seq": 4})
    with pytest.raises(Exception, match="nats-bridge says") as caught:
        pinned.count()
    error = reported(caught.value)
    assert type(error) is DataLostError
    assert f"stream '{stream}': messages 1 to 3 were removed" in str(error)


async def test_plans_show_no_secrets(
    spark: SparkSession, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "password").write_text("s3cret-words")
    config = """accounts { A: { jetstream: enabled, users: [
        { user: all, password: "all" }, { user: reader, password: "s3cret-words" } ] } }, no_auth_user: all"""
    async with native_server("2.10.27", config=config) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="SECRET", subjects=["secret"])
        await peer.store(b"secret", b"payload")
        read = spark.read.format("jetstream").option("servers", server.url).option("stream", "SECRET")
        found = read.option("user", "reader").option("passwordFile", str(tmp_path / "password")).load()
        assert [bytes(row.data) for row in found.collect()] == [b"payload"]
        capfd.readouterr()
        found.explain(extended=True)
        shown = "".join(capfd.readouterr())
        assert "jetstream" in shown
        assert "s3cret" not in shown
        (tmp_path / "password").write_text("another-one")
        with pytest.raises(Exception, match="refuses the credentials") as caught:
            read.option("user", "reader").option("passwordFile", str(tmp_path / "password")).load().collect()
        assert "another-one" not in str(caught.value)
