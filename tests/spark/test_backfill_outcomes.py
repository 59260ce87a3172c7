"""Without publishing: the resulting messages as files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge.pipeline.errors import OptionError, PipelineError
from tests.live.copied_messages import everything
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecars import settings_for
from tests.spark.backfills import Name, backfilled, captured, held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
async def copies(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> Copies:
    """A source with messages of every kind, and a target that takes nothing large."""
    peer, name = await raw_peer(await servers.url("2.10.27")), unique_name("outcome")
    made = await Copies.make(peer, name, target={"max_msg_size": 1000, "subjects": [f"T{name}.eu.>", f"T{name}.us.>"]})
    for number in range(60):
        region = ("eu", "us", "other", "eu")[number % 4]
        block = b"NATS/1.0\r\nNats-TTL: 1h\r\nA: 1\r\nA: 2\r\n\r\n" if number % 7 == 3 else b""
        payload = b"x" * 2000 if number in (20, 40) else b"message %d" % number
        await peer.store(f"{name}.{region}.{number % 2}".encode(), payload, block)
    return made


def rule_of(copies: Copies, **more: Any) -> dict[str, Any]:
    """Everything but what is of region `other` and of an odd number."""
    transforms = [
        {"src": f"{copies.name}.eu.*", "dest": f"{copies.target}.eu.{{{{wildcard(1)}}}}"},
        {"src": f"{copies.name}.us.>", "dest": f"{copies.target}.us.>"},
        {"src": f"{copies.name}.other.0", "dest": f"{copies.target}.nowhere"},
    ]
    return copies.rule(entry={"subject_transforms": transforms}, **more)


async def test_files_hold_what_would_be_stored(
    spark: SparkSession, copies: Copies, servers: SharedServers, tmp_path: Path
) -> None:
    url, folder = servers["2.10.27"].url, tmp_path / "files"
    skipping = rule_of(copies, on_rejected={"skip": f"dead.{copies.name}"})
    settings = settings_for(url, skipping)
    dead = await copies.peer.collect(f"dead.{copies.name}")
    (summary,) = await backfilled(spark, settings, to_parquet=str(folder))
    assert (summary.read, summary.copied, summary.skipped) == (60, 43, 17)
    assert int((await copies.state())["messages"]) == 0
    rows = spark.read.parquet(str(folder)).orderBy("sequence").collect()
    assert len(rows) == 60
    # Numbers 20 and 40 are of eu.0 and too large; region other has even numbers only, for which there is no subject.
    reasons = Counter(row["rejected"] for row in rows)
    assert reasons[f"stream '{copies.target}' has no subject for '{copies.target}.nowhere'"] == 15
    assert sum("more than the 1000 that the target takes" in (reason or "") for reason in reasons.elements()) == 2
    (summary,) = await backfilled(spark, settings)
    assert (summary.read, summary.copied, summary.skipped) == (60, 43, 17)
    await dead.count(17)
    assert [
        (row["subject"].encode(), bytes(row["header_block"]), bytes(row["data"]))
        for row in rows
        if row["rejected"] is None
    ] == await held(copies.peer, copies.target)
    source = await everything(copies.peer, copies.name)
    assert [(row["sequence"], row["time_ns"], row["source_subject"].encode(), row["stream"]) for row in rows] == [
        (message.sequence, message.time_ns, message.subject, copies.name) for message in source
    ]
    with pytest.raises(OptionError, match="--overwrite"):
        await backfilled(spark, settings, to_parquet=str(folder))
    (summary,) = await backfilled(spark, settings, to_parquet=str(folder), overwrite=True, first=51)
    assert summary.read == 10
    assert spark.read.parquet(str(folder)).count() == 10


async def test_a_capture_is_as_good_as_the_stream(
    spark: SparkSession, copies: Copies, servers: SharedServers, tmp_path: Path
) -> None:
    url = servers["2.10.27"].url
    settings = settings_for(url, copies.rule(on_rejected={"skip": f"dead.{copies.name}"}))
    for name, options in {"whole": {}, "late": {"first": 11}, "other": {"created": "2020-01-01T00:00:00Z"}}.items():
        (tmp_path / name).mkdir()
        await captured(spark, copies.peer, url, copies.name, tmp_path / name, **options)
    with pytest.raises(OptionError, match=r"was created 2020-01-01T00:00:00Z; the present one"):
        await backfilled(spark, settings, capture=str(tmp_path / "other"))
    with pytest.raises(OptionError, match=r"begins at sequence 11, and 1 to 10 are wanted"):
        await backfilled(spark, settings, capture=str(tmp_path / "late"))
    with pytest.raises(OptionError, match="nats-bridge capture makes one"):
        await backfilled(spark, settings, capture=str(tmp_path))
    dead = await copies.peer.collect(f"dead.{copies.name}")
    # What the stream itself holds no more is in the capture.
    await copies.peer.api(f"STREAM.PURGE.{copies.name}", {"seq": 41})
    (summary,) = await backfilled(spark, settings, capture=str(tmp_path / "whole"))
    assert (summary.read, summary.copied, summary.next_sequence) == (60, 43, 61)
    await dead.count(17)
    sequences = await copies.source_sequences()
    assert sequences == sorted(sequences)
    assert len(sequences) == 43
    (summary,) = await backfilled(spark, settings, capture=str(tmp_path / "whole"))
    assert (summary.copied, summary.next_sequence) == (0, 61)


async def test_a_rule_that_would_stop_says_so_in_files_as_well(
    spark: SparkSession, copies: Copies, servers: SharedServers, tmp_path: Path
) -> None:
    settings = settings_for(servers["2.10.27"].url, rule_of(copies))
    (summary,) = await backfilled(spark, settings, to_parquet=str(tmp_path / "files"))
    assert summary.skipped == 17
    with pytest.raises(PipelineError, match=rf"message 3 of stream '{copies.name}'"):
        await backfilled(spark, settings)
