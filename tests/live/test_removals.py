"""Audit advisories of real servers, read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bridge.removals import AUDIT_SUBJECT, Changed, Deleted, Purged, Removal, read_audit
from conformance.servers import SharedServers
from tests.live.raw_messages import OpenPeer
from tests.live.until import LIMIT
from transforms.timestamp import nanoseconds_of

if TYPE_CHECKING:
    from nats.aio.msg import Msg


async def test_what_advisories_tell(
    twin_version: str, servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    name = unique_name("audited")
    peer = await raw_peer(await servers.url(twin_version))
    told: asyncio.Queue[Removal | None] = asyncio.Queue()

    async def on_audit(message: Msg) -> None:
        if name.encode() in message.data:
            told.put_nowait(read_audit(message.data))

    await peer.client.subscribe(AUDIT_SUBJECT, cb=on_audit)
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    for subject in ("a", "b", "a", "b", "a"):
        stored = await peer.store(f"{name}.{subject}".encode())
    message = await peer.api(f"STREAM.MSG.GET.{name}", {"seq": stored["seq"]})
    before = nanoseconds_of(message["message"]["time"])
    for subject, body in (
        (f"STREAM.MSG.DELETE.{name}", {"seq": 2, "no_erase": True}),
        (f"STREAM.MSG.DELETE.{name}", {"seq": 99}),
        (f"STREAM.PURGE.{name}", {"filter": f"{name}.a", "keep": 1}),
        (f"STREAM.PURGE.{name}", {"seq": 4}),
        (f"STREAM.PURGE.{name}", None),
        (f"STREAM.UPDATE.{name}", {"name": name, "subjects": [f"{name}.>"], "max_msgs": 5}),
        (f"STREAM.DELETE.{name}", None),
    ):
        await peer.api(subject, body)
    # The creation, the look at a message, the refused delete and the deletion of the stream say nothing.
    found: list[Removal] = []
    async with asyncio.timeout(LIMIT):
        while len(found) < 5:
            if (removal := await told.get()) is not None:
                found.append(removal)
    assert [type(removal) for removal in found] == [Deleted, Purged, Purged, Purged, Changed]
    times = [removal.time_ns for removal in found]
    assert before < times[0]
    assert times == sorted(times)
    deleted, by_subject, below, whole, changed = found
    assert deleted == Deleted(name, times[0], 2)
    assert by_subject == Purged(name, times[1], f"{name}.a", 0)
    assert below == Purged(name, times[2], "", 4)
    assert whole == Purged(name, times[3], "", 0)
    assert changed == Changed(name, times[4])
