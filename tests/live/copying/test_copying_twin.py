"""The twin test of copying: a native target and a bridged one, fed by the same streams, hold the same messages.

Subjects, application headers, payloads, source records and the order per source are equal to the byte. The bridged
target is on a server of its own, since the copies of a plain source have the subjects of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nats_bridge.kinds.copying.counters import CopyCounters
from nats_transforms.dialect import server_dialect
from nats_transforms.republish import StoredMessage
from nats_transforms.sourcing import Copied, compile_sourcing
from tests.live.copied_messages import CopiedMessage, by_entry, copied, everything, taken_apart
from tests.live.copying.copying_shapes import SHAPES, TRANSFORMS, Sources, filled
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

BEFORE, DURING = 120, 120


def engine(entries: list[dict[str, Any]], stored: dict[str, list[StoredMessage]], mirrors: bool) -> list[CopiedMessage]:
    """What the newest server would hold."""
    copies = []
    for entry in entries:
        sourcing = compile_sourcing(entry, mirrors=mirrors)
        for message in stored[entry["name"]]:
            copy = sourcing.apply(message)
            if isinstance(copy, Copied):
                copies.append(taken_apart(StoredMessage(copy.subject, copy.header_block, copy.payload, 0, 0)))
    return copies


async def ended(peer: RawPeer, stream: str, expected: list[CopiedMessage]) -> None:
    """Wait until the last copy of every entry is there."""
    last = {copies[-1].place for copies in by_entry(expected).values()}
    assert all(copies[-1].payload == b"the end" for copies in by_entry(expected).values())
    last_subjects = {subject for subject, _ in last}
    inbox = peer.client.new_inbox()
    arriving = await peer.collect(inbox)
    answer = await peer.api(
        f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": {"deliver_subject": inbox, "ack_policy": "none"}}
    )
    assert "error" not in answer, answer

    def there() -> bool:
        found = [
            taken_apart(StoredMessage(subject, block, payload, 0, 0))
            for subject, _, block, payload in arriving.messages
            if payload == b"the end"
        ]
        # A native mirror writes no records, so that only subjects show it.
        return last <= {copy.place for copy in found} or (
            last_subjects <= {copy.subject for copy in found if not copy.record}
        )

    await until(there)


@pytest.mark.parametrize("name", SHAPES)
async def test_a_native_target_and_a_bridged_one_hold_the_same(
    name: str,
    twin_version: str,
    servers: SharedServers,
    native_server: Servers,
    unique_name: Name,
    raw_peer: OpenPeer,
    record_property: Callable[[str, object], None],
) -> None:
    shape, native = SHAPES[name], server_dialect(twin_version)
    is_native = native.stream_fields_of_2_10 or name not in TRANSFORMS
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    names = {letter: unique_name(f"source{letter}") for letter in "ab"}
    target = unique_name("copy")
    entries = filled(shape.entries, names)
    sources = Sources(peer, names, shape, native, f"{name} {twin_version}")
    await sources.create()
    # Holes leave no trace in a source, and no message in a mirror.
    await sources.publish(BEFORE, holes=True)
    made = {"mirror": entries[0]} if shape.mirror else {"sources": entries}
    if is_native:
        await peer.create_stream(name=target, **shape.target, **made)
    async with native_server(twin_version) as west:
        far = await raw_peer(west.url)
        await far.create_stream(name=target, subjects=filled(shape.subjects, names), **shape.target)
        settings = settings_for(
            url,
            {"name": "twin", "kind": "mirror" if shape.mirror else "sources", "stream": target, "to": "west", **made},
            connections={"default": {"servers": [url]}, "west": {"servers": [west.url]}},
            dialect="native" if is_native else "2.15",
        )
        async with running(settings) as sidecar:
            followed = ((far, target), (peer, target)) if is_native else ((far, target),)
            await sources.publish(DURING, *followed)
            await sources.end()
            stored = await sources.stored()
            engines = engine(entries, stored, shape.mirror)
            await ended(far, target, engines)
            if is_native:
                await ended(peer, target, engines)
            counters = sidecar.runs[0].counters
            assert isinstance(counters, CopyCounters)
            if not shape.rollups:
                await until(lambda: counters.copied == len(engines))
        actual = await copied(far, target)
        expected = await copied(peer, target) if is_native else engines
        await far.close()
        assert len(actual) > 20 or shape.rollups
        record_property("compared", len(actual))
        assert (counters.lost, counters.rejected, counters.duplicates) == (0, 0, 0)
        if shape.mirror and is_native:
            # A native mirror writes no records; its messages have the source's sequences.
            records = [copy.sequence for copy in actual]
            assert records == [message.sequence for message in await everything(peer, target)]
            assert _contents(actual) == _contents(expected)
        else:
            mine, theirs = by_entry(actual), by_entry(expected)
            assert mine.keys() == theirs.keys()
            assert len(mine) == len(entries)
            for entry, copies in theirs.items():
                assert mine[entry] == copies


def _contents(copies: list[CopiedMessage]) -> list[tuple[bytes, bytes, bytes]]:
    return [(copy.subject, copy.block, copy.payload) for copy in copies]
