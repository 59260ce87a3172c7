"""A history republished is what the sidecar republishes with `start: first`, and the live rule joins behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge.bridge.settings import Settings
from nats_bridge.native_servers import NativeServer
from nats_bridge.pipeline.errors import OptionError
from nats_bridge.transforms import header_block
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until
from tests.spark.backfills import Name, backfilled, held
from tests.spark.workers import kill_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS = [
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na:3\r\nEmpty:\r\n\r\n",
    b"NATS/1.0\r\nNats-Stream: fake\r\nNats-Subject: s\r\nNats-Sequence: 9\r\n\r\n",
    b"NATS/1.0\r\n\r\n",
]


def rule_of(name: str, **more: Any) -> dict[str, Any]:
    """Everything but what ends in `not`, to subjects of its own."""
    republish = {"src": f"{name}.*.*", "dest": f"R{name}.{{{{wildcard(2)}}}}.$1", **more.pop("republish", {})}
    return {"name": "rule", "kind": "republish", "stream": name, "republish": republish, **more}


async def filled(peer: RawPeer, name: str, first: int, last: int) -> None:
    """Numbered messages on some subjects, the payloads never the beginning of another one's."""
    stored = [
        peer.store(f"{name}.{number % 5}.x{number % 3}".encode(), b"number %d." % number, BLOCKS[number % len(BLOCKS)])
        for number in range(first, last + 1)
    ]
    for answer in await asyncio.gather(*stored):
        assert "error" not in answer, answer


async def with_history(peer: RawPeer, name: str, count: int) -> None:
    """A stream of numbered messages, and an empty one for the results, which forgets ids as soon as one can."""
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    await peer.create_stream(name=f"RESULTS{name}", subjects=[f"R{name}.>"], duplicate_window=100_000_000)
    await filled(peer, name, 1, count)


def wired(url: str, wire: CutWire, name: str) -> Settings:
    """The rule, with the wire before the results."""
    connections = {"default": {"servers": [url]}, "west": {"servers": [wire.url]}}
    return settings_for(url, rule_of(name, to="west"), connections=connections)


async def last_sequence(peer: RawPeer, stream: str) -> int:
    """Of a stream."""
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])


async def holds(peer: RawPeer, stream: str, messages: int) -> None:
    """Wait until a stream holds so many messages."""

    async def there() -> bool:
        return await last_sequence(peer, stream) >= messages

    await until(there)


@pytest.mark.parametrize(("version", "headers_only"), [("2.10.27", False), ("2.15.3", True)])
async def test_it_is_what_the_sidecar_republishes(
    spark: SparkSession,
    version: str,
    headers_only: bool,
    servers: SharedServers,
    native_server: Callable[..., NativeServer],
    unique_name: Name,
    raw_peer: OpenPeer,
    tmp_path: Path,
) -> None:
    url, name = await servers.url(version), unique_name("republish")
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    await filled(peer, name, 1, 120)
    async with native_server(version) as west, native_server(version) as east:
        peers = [await raw_peer(west.url), await raw_peer(east.url)]
        for one in peers:
            await one.create_stream(name="RESULTS", subjects=[f"R{name}.>"])

        def settings_of(server: NativeServer, **more: Any) -> Settings:
            connections = {"default": {"servers": [url]}, "west": {"servers": [server.url]}}
            rule = rule_of(name, to="west", republish={"headers_only": headers_only}, **more)
            return settings_for(url, rule, connections=connections)

        (files,) = await backfilled(spark, settings_of(west), to_parquet=str(tmp_path / "files"))
        (summary,) = await backfilled(spark, settings_of(west))
        assert (summary.copied, summary.next_sequence, files.copied) == (120, 121, 120)
        assert summary.lines()[-1] == "  the live rule joins with start: {sequence: 121}"
        rows = spark.read.parquet(str(tmp_path / "files")).orderBy("sequence").collect()
        results = await held(peers[0], "RESULTS")
        assert [(r["subject"].encode(), bytes(r["header_block"]), bytes(r["data"])) for r in rows] == results
        # History and live join; and the sidecar makes the same of it all.
        start = {"sequence": summary.next_sequence}
        async with running(settings_of(west, start=start)), running(settings_of(east, start="first", durable=False)):
            await filled(peer, name, 121, 140)
            for one in peers:
                await holds(one, "RESULTS", 140)
        assert await held(peers[0], "RESULTS") == await held(peers[1], "RESULTS")
        with pytest.raises(OptionError, match="say --to-sequence"):
            await backfilled(spark, settings_of(west))
        for one in peers:
            await one.close()


async def test_kills_lose_and_double_nothing(
    spark: SparkSession, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, name, count = await servers.url("2.10.27"), unique_name("republish"), 2000
    peer = await raw_peer(url)
    await with_history(peer, name, count)
    async with cut_wire(url) as wire:
        settings = wired(url, wire, name)
        job = asyncio.create_task(backfilled(spark, settings))
        for number, killing in ((300, True), (1000, False)):
            wire.fall_silent_after(b"number %d." % number)
            await holds(peer, f"RESULTS{name}", number)
            await until(lambda: wire.is_silent)
            assert not killing or await kill_workers(wire)
            wire.cut()
            wire.speak_again()
        (summary,) = await job
    assert summary.next_sequence == count + 1
    results = await held(peer, f"RESULTS{name}")
    assert [payload for _, _, payload in results] == [b"number %d." % number for number in range(1, count + 1)]
    lasts = [int(header_block.read(block, b"Nats-Last-Sequence") or -1) for _, block, _ in results]
    assert lasts == [max(number - 15, 0) for number in range(1, count + 1)]
    (again,) = await backfilled(spark, settings_for(url, rule_of(name)))
    assert (again.read, again.copied) == (0, 0)


async def test_a_results_stream_that_is_recreated_is_filled_from_the_start(
    spark: SparkSession, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """What the old one had confirmed is not kept by the task, which fails; Spark's next try reads everything."""
    url, name, count = await servers.url("2.10.27"), unique_name("republish"), 14_000
    peer = await raw_peer(url)
    await with_history(peer, name, count)
    async with cut_wire(url) as wire:
        settings = wired(url, wire, name)
        job = asyncio.create_task(backfilled(spark, settings))
        wire.fall_silent_after(b"number 13000.")
        await until(lambda: wire.is_silent)
        await peer.recreate_stream(f"RESULTS{name}")
        wire.cut()
        wire.speak_again()
        await job
    stored = await held(peer, f"RESULTS{name}")
    assert [payload for _, _, payload in stored] == [b"number %d." % number for number in range(1, count + 1)]


async def test_results_that_no_stream_stores_are_refused(
    spark: SparkSession, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, name = await servers.url("2.10.27"), unique_name("republish")
    peer = await raw_peer(url)
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    with pytest.raises(OptionError, match="let the sidecar do it: start: first"):
        await backfilled(spark, settings_for(url, rule_of(name)))
    await peer.create_stream(name=f"PART{name}", subjects=[f"R{name}.x1.*"])
    with pytest.raises(OptionError, match=f"no single stream stores all of 'R{name}"):
        await backfilled(spark, settings_for(url, rule_of(name)))
