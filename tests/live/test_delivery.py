"""What the target takes may be another thing when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from conformance.servers import NativeServer
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Scene, Seen
from tests.live.sidecars import running, settings_for
from tests.live.until import until


async def test_a_target_that_comes_back_and_takes_less_is_sent_no_more_than_that(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.1") as source, native_server("2.15.1") as target:
        here = await Scene.make(await raw_peer(source.url), "S")
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, here.rule(to="target"), connections=connections)) as bridge:
            link = bridge.links["target"]
            await asyncio.to_thread(target.stop)
            await until(lambda: not link.client.is_connected)
            target.config = "max_payload: 1000"
            await asyncio.to_thread(target.start)
            await until(lambda: link.reconnects == 1)
            seen = await Seen.of(await raw_peer(target.url), "bridgeS.>")
            await here.peer.store(b"S.s", b"x" * 2000)
            await here.peer.store(b"S.s", b"x")
            await seen.until_sequence(2)
            assert bridge.runs[0].counters.too_large == 1
            assert link.reconnects == 1
        assert seen.sequences == [2]
