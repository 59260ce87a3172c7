"""Audit advisories of real servers, read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nats_bridge.client.audit_advisories import AUDIT_SUBJECT, Changed, Deleted, Purged, Removal, read_audit
from nats_bridge.client.connection import open_connection
from nats_transforms.timestamp import nanoseconds_of
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.until import LIMIT, until

if TYPE_CHECKING:
    from nats.aio.msg import Msg


async def test_what_advisories_contain(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    name = unique_name("audited")
    peer = await raw_peer(await servers.url(twin_version))
    reported: asyncio.Queue[Removal | None] = asyncio.Queue()

    async def on_audit(message: Msg) -> None:
        if name.encode() in message.data:
            reported.put_nowait(read_audit(message.data))

    await peer.client.subscribe(AUDIT_SUBJECT, cb=on_audit)
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    for subject in ("a", "b", "a", "b", "a"):
        stored = await peer.store(f"{name}.{subject}".encode())
    message = await peer.api(f"STREAM.MSG.GET.{name}", {"seq": stored["seq"]})
    before = nanoseconds_of(message["message"]["time"])
    found: list[Removal] = []
    # A server sends the advisory after the answer: the next request could overtake it.
    for subject, body, removes in (
        (f"STREAM.MSG.DELETE.{name}", {"seq": 2, "no_erase": True}, True),
        (f"STREAM.MSG.DELETE.{name}", {"seq": 99}, False),
        (f"STREAM.PURGE.{name}", {"filter": f"{name}.a", "keep": 1}, True),
        (f"STREAM.PURGE.{name}", {"seq": 4}, True),
        (f"STREAM.PURGE.{name}", None, True),
        (f"STREAM.UPDATE.{name}", {"name": name, "subjects": [f"{name}.>"], "max_msgs": 5}, True),
        (f"STREAM.DELETE.{name}", None, False),
    ):
        await peer.api(subject, body)
        # The creation, the read of a message, the refused delete and the deletion of the stream remove nothing.
        async with asyncio.timeout(LIMIT):
            while removes and (removal := await reported.get()) is None:
                pass
        if removes:
            found.append(removal)
    assert [type(removal) for removal in found] == [Deleted, Purged, Purged, Purged, Changed]
    times = [removal.time_ns for removal in found]
    assert before < times[0]
    assert times == sorted(times)
    deleted, by_subject, below, whole, changed = found
    assert deleted == Deleted(name, times[0], 2)
    assert by_subject == Purged(name, times[1], f"{name}.a", 0, keep=1, messages=2)
    assert below == Purged(name, times[2], "", 4, keep=0, messages=0)
    assert whole == Purged(name, times[3], "", 0, keep=0, messages=2)
    assert changed == Changed(name, times[4])


async def test_one_subscription_serves_all_rules_of_a_connection(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    peer, connection = await raw_peer(url), await open_connection("default", {"servers": [url]}, client_name="test")
    names = [unique_name("received"), unique_name("received")]
    reported: list[list[Removal]] = [[], [], []]
    for name in names:
        await peer.create_stream(name=name, subjects=[f"{name}.>"])
        await peer.store(f"{name}.a".encode())

    async def delete(name: str) -> None:
        await peer.store(f"{name}.a".encode())
        await peer.api(f"STREAM.PURGE.{name}", {"keep": 1})

    for name, into in zip([*names, names[0]], reported, strict=True):
        await connection.removals.follow(name, into.append)
    assert await connection.flush()
    assert [sub.subject for sub in connection.client._subs.values()].count(AUDIT_SUBJECT) == 1
    for name in names:
        await delete(name)
    await until(lambda: all(reported))
    assert [[removal.stream for removal in received] for received in reported] == [[names[0]], [names[1]], [names[0]]]
    await connection.removals.leave(names[0], reported[0].append)
    await delete(names[0])
    await until(lambda: len(reported[2]) == 2)
    assert len(reported[0]) == 1
    await connection.removals.leave(names[0], reported[2].append)
    await connection.removals.leave(names[1], reported[1].append)
    assert AUDIT_SUBJECT not in [sub.subject for sub in connection.client._subs.values()]
    await connection.close()
