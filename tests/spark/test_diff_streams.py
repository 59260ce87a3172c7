"""Comparing streams on real servers: what native sourcing made and what the sidecar made; old and new of a bucket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.settings import Connection, Settings
from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.rules import rule_of
from nats_bridge_spark.diff.sides import SideLocation
from nats_bridge_spark.errors import PipelineError
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
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


async def test_a_stream_that_is_not_there(engine: Comparing, url: str) -> None:
    connection = Connection.model_validate({"servers": [url]})
    with pytest.raises(Exception, match="NONE") as error:
        await asyncio.to_thread(found, engine, SideLocation("OTHER", connection), SideLocation("NONE", connection))
    assert isinstance(error.value, PipelineError) or "nats-bridge says" in str(error.value)
