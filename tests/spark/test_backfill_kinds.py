"""Backfills of the other kinds of copying rules: mirrors that keep sequences, and buckets."""

from __future__ import annotations

from typing import Any

from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.copied_messages import everything, last_sequence
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until
from tests.spark.backfills import backfilled, held


async def test_a_mirror_keeps_the_sequences(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.10.27")
    here = await Copies.make(await raw_peer(url), unique_name("keeps"))
    for number in range(1, 61):
        await here.peer.store(f"{here.name}.{number % 3}".encode(), b"%d" % number)
    for number in (1, 2, 17, 40):
        await here.peer.api(f"STREAM.MSG.DELETE.{here.name}", {"seq": number})
    transforms = [{"src": f"{here.name}.>", "dest": f"{here.target}.>"}]
    rule = {
        "name": "rule",
        "kind": "mirror",
        "stream": here.target,
        "mirror": {"name": here.name, "subject_transforms": transforms},
        "keep_sequence": True,
        "filler_subject": f"{here.target}.filler",
    }
    settings = settings_for(url, rule)
    (part,) = await backfilled(settings, last=30)
    assert (part.copied, part.next_sequence) == (27, 31)
    (summary,) = await backfilled(settings)
    assert (summary.copied, summary.next_sequence) == (29, 61)
    async with running(settings):
        await here.peer.store(f"{here.name}.live".encode(), b"61")

        async def there() -> bool:
            return await last_sequence(here.peer, here.target) >= 61

        await until(there)
    copies = await everything(here.peer, here.target)
    wanted = [number for number in range(1, 62) if number not in (1, 2, 17, 40)]
    assert [(copy.sequence, copy.payload) for copy in copies] == [(number, b"%d" % number) for number in wanted]


async def test_a_bucket_is_copied_as_the_sidecar_would(
    servers: SharedServers, native_server: Servers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, name = await servers.url("2.10.27"), unique_name("bucket")
    peer = await raw_peer(url)
    bucket: dict[str, Any] = {"max_msgs_per_subject": 3, "allow_rollup_hdrs": True, "deny_delete": True}
    await peer.create_stream(name=f"KV_{name}", subjects=[f"$KV.{name}.>"], **bucket)
    for number in range(40):
        block = b""
        if number % 9 == 4:
            block = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
        elif number % 13 == 7:
            block = b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n"
        await peer.store(f"$KV.{name}.key{number % 5}".encode(), b"" if block else b"%d" % number, block)
    await peer.store(f"$KV.{name}.last".encode(), b"the end")
    async with native_server("2.10.27") as west, native_server("2.10.27") as east:

        def settings_of(server: NativeServer) -> Settings:
            connections = {"default": {"servers": [url]}, "west": {"servers": [server.url]}}
            rule = {"name": "rule", "kind": "kv_sources", "bucket": "COPY", "to": "west", "sources": [{"bucket": name}]}
            return settings_for(url, rule, connections=connections)

        peers = [await raw_peer(west.url), await raw_peer(east.url)]
        for one in peers:
            await one.create_stream(name="KV_COPY", subjects=["$KV.COPY.>"], **bucket)
        (summary,) = await backfilled(settings_of(west), sources=(name,))
        assert summary.copied > 10
        async with running(settings_of(east)):

            async def ended() -> bool:
                return any(subject == b"$KV.COPY.last" for subject, _, _ in await held(peers[1], "KV_COPY"))

            await until(ended)
        assert await held(peers[0], "KV_COPY") == await held(peers[1], "KV_COPY")
        # The live rule continues after the history, and makes nothing again.
        before = await last_sequence(peers[0], "KV_COPY")
        async with running(settings_of(west)):
            await peer.store(f"$KV.{name}.key0".encode(), b"live")

            async def there() -> bool:
                return await last_sequence(peers[0], "KV_COPY") > before

            await until(there)
        assert await last_sequence(peers[0], "KV_COPY") == before + 1
        for one in peers:
            await one.close()
