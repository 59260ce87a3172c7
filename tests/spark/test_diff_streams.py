"""Comparing streams on real servers: what native sourcing made and what the sidecar made; old and new of a bucket."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.settings import Connection, Settings
from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.rules import rule_of
from nats_bridge_spark.diff.sides import SideLocation
from nats_bridge_spark.errors import PipelineError
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import until
from tests.spark.engines import Comparing, Spark
from tests.spark.histories import Stored, block, history

BLOCKS = [
    b"",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na:3\r\nEmpty:\r\n\r\n",
    b"NATS/1.0\r\nX-Spaces:   two  words  \r\n\r\n",
    b"NATS/1.0\r\nLatin: \xe9\xff\r\n\r\n",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 503 Not Today\r\nA: b\r\n\r\n",
    b"NATS/1.0\r\nNats-Stream-Sourced: no\r\nB: 1\r\n\r\n",
]
PAYLOADS = [b"", b"x", bytes(range(256)), b"q" * 70_000]
MESSAGES = 120


@pytest.fixture
def version() -> str:
    return "2.15.3"


async def holds(peer: RawPeer, stream: str, messages: int) -> None:
    async def there() -> bool:
        return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"]) == messages

    await until(there)


@pytest.fixture
def engine(session: Spark) -> Comparing:
    return Comparing(session)


def found(
    engine: Comparing, left: SideLocation, right: SideLocation, wanted: Comparison | None = None
) -> tuple[Any, list[Any]]:
    with engine.compared(left, right, wanted or Comparison()) as result:
        return result, engine.findings(result)


def in_blocks(
    engine: Comparing, left: SideLocation, right: SideLocation, wanted: Comparison
) -> tuple[Any, list[Any], int]:
    """The result, the findings, and the number of messages on the left that are not in equal blocks."""
    with engine.compared(left, right, wanted) as result:
        return result, engine.findings(result), len(result.left.rows.table())


async def test_what_native_sourcing_stores_and_what_the_sidecar_stores(
    engine: Comparing, url: str, peer: RawPeer, unique_name: Name
) -> None:
    source, native, bridged = unique_name("SOURCE"), unique_name("NATIVE"), unique_name("BRIDGED")
    entry = {"name": source, "subject_transforms": [{"src": f"{source}.*.>", "dest": f"{bridged}.$1.>"}]}
    await peer.create_stream(name=source, subjects=[f"{source}.>"])
    for number in range(MESSAGES):
        subject = f"{source}.{number % 5}.{number}".encode()
        await peer.store(subject, PAYLOADS[number % 4], BLOCKS[number % 7])
    await peer.store(f"{source}.x.y".encode(), b"with an id", block(b"Nats-Msg-Id: mine", b"C: 1"))
    messages = MESSAGES + 1
    await peer.create_stream(name=native, sources=[entry])
    await peer.create_stream(name=bridged, subjects=[f"{bridged}.>"])
    settings: Settings = settings_for(url, {"name": "copy", "kind": "sources", "stream": bridged, "sources": [entry]})
    async with running(settings):
        await holds(peer, bridged, messages)
    await holds(peer, native, messages)

    connection = Connection.model_validate({"servers": [url]})
    sides = {name: SideLocation(name, connection) for name in (source, native, bridged)}
    result, rows = await asyncio.to_thread(found, engine, sides[native], sides[bridged])
    assert rows == []
    assert result.comparison.by == "provenance"
    assert result.counts.equal == messages
    ignored = {each.divergence: number for each, number in result.counts.ignored.items()}
    assert ignored == {
        "kd/copy/record-name": (0, messages),
        "kd/copy/identity": (messages, 0),
        "kd/copy/message-id": (0, MESSAGES),
    }

    rule = Comparison(rule=rule_of(settings, "copy", source))
    for copy in (native, bridged):
        result, rows = await asyncio.to_thread(found, engine, sides[source], sides[copy], rule)
        assert (rows, result.counts.equal) == ([], messages)

    # Three things happen to the bridged target.
    await peer.api(f"STREAM.MSG.DELETE.{bridged}", {"seq": 7})
    await peer.store(f"{bridged}.own".encode(), b"", block(b"Nats-Bridge-Source: %b 9999 > >" % source.encode()))
    await peer.store(f"{bridged}.alien".encode(), b"")
    result, rows = await asyncio.to_thread(found, engine, sides[native], sides[bridged])
    assert rows == [
        ("extra", f"{source} 9999", None, messages + 1, "", None, f"{bridged}.own"),
        ("missing", f"{source} 7", 7, None, "", f"{bridged}.1.6", None),
        ("unidentified", "", None, messages + 2, "right", None, f"{bridged}.alien"),
    ]


async def test_a_compacted_bucket_and_what_it_was(
    engine: Comparing, url: str, peer: RawPeer, unique_name: Name, tmp_path: Path
) -> None:
    bucket = unique_name("B")
    stream, key = f"KV_{bucket}", f"$KV.{bucket}."
    await peer.create_stream(name=stream, subjects=[f"{key}>"], max_msgs_per_subject=1, allow_rollup_hdrs=True)
    for number in range(200):
        deleted = block(b"KV-Operation: DEL") if number % 7 == 6 else b""
        await peer.store(f"{key}{number % 40}".encode(), b"" if deleted else b"%d" % number, deleted)
    connection = Connection.model_validate({"servers": [url]})
    live = SideLocation(stream, connection)

    stored = [
        Stored(one.sequence, one.subject.decode(), one.header_block, one.payload)
        for one in await stored_messages(peer, stream, 40)
    ]
    was = SideLocation(str(history(tmp_path / "was", stored, stream=stream)))
    result, rows = await asyncio.to_thread(found, engine, was, live)
    assert (rows, result.comparison.by, result.counts.equal) == ([], "sequence", 40)
    assert (result.left.first, result.left.last) == (161, 200)

    await peer.store(f"{key}3".encode(), b"new")
    result, rows = await asyncio.to_thread(found, engine, was, live)
    assert rows == [
        ("extra", "201", None, 201, "", None, f"{key}3"),
        ("missing", "164", 164, None, "", f"{key}3", None),
    ]


@pytest.mark.parametrize("seed", range(3))
async def test_streams_by_sequence_as_their_captures(
    engine: Comparing,
    url: str,
    peer: RawPeer,
    unique_name: Name,
    native_server: Servers,
    raw_peer: OpenPeer,
    tmp_path: Path,
    seed: int,
) -> None:
    """Streams are compared in blocks, captures by a join: both have the same result."""
    chance, name = random.Random(seed), unique_name("S")
    messages = [(f"{name}.{number % 7}".encode(), BLOCKS[number % 5], b"%d" % number) for number in range(700)]
    changed = chance.sample(range(700), 6)
    stored: list[list[Stored]] = []
    async with native_server("2.10.27") as other:
        there = await raw_peer(other.url)
        for one, is_right in ((peer, False), (there, True)):
            await one.create_stream(name=name, subjects=[f"{name}.>"])
            for number, (subject, lines, payload) in enumerate(messages):
                is_changed = is_right and number in changed
                await one.store(subject + b".x" * (is_changed and number % 3 == 0), payload + b"!" * is_changed, lines)
            if is_right == bool(seed % 2):
                await one.store(f"{name}.more".encode(), b"")
            for sequence in chance.sample(range(1, 701), 4 * seed):
                await one.api(f"STREAM.MSG.DELETE.{name}", {"seq": sequence})
            await one.api(f"STREAM.PURGE.{name}", {"seq": chance.choice([2, 40, 400])})
            count = int((await one.api(f"STREAM.INFO.{name}"))["state"]["messages"])
            rows = await stored_messages(one, name, count)
            stored.append(
                [Stored(each.sequence, each.subject.decode(), each.header_block, each.payload) for each in rows]
            )
        urls = url, other.url
        live = [SideLocation(name, Connection.model_validate({"servers": [each]})) for each in urls]
        captures = [
            SideLocation(str(history(tmp_path / each, stored.pop(0), stream=name))) for each in ("left", "right")
        ]
        for wanted in (Comparison(), Comparison(by="sequence")):
            expected, expected_rows = await asyncio.to_thread(found, engine, captures[0], captures[1], wanted)
            result, rows, kept = await asyncio.to_thread(in_blocks, engine, live[0], live[1], wanted)
            assert rows == expected_rows
            assert result.counts == expected.counts
            for side, other_side in ((result.left, expected.left), (result.right, expected.right)):
                assert (side.messages, side.first, side.last) == (
                    other_side.messages,
                    other_side.first,
                    other_side.last,
                )
            assert result.kinds == expected.kinds
            assert kept < result.left.messages  # equal blocks have no rows


async def test_a_stream_that_is_not_there(engine: Comparing, url: str) -> None:
    connection = Connection.model_validate({"servers": [url]})
    with pytest.raises(Exception, match="NONE") as error:
        await asyncio.to_thread(found, engine, SideLocation("OTHER", connection), SideLocation("NONE", connection))
    assert isinstance(error.value, PipelineError) or "nats-bridge says" in str(error.value)
