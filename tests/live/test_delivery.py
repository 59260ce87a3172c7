"""What a delivery promises where the target is slow, or another one when it is back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from bridge.republish_run import RepublishRun
from conformance.servers import NativeServer
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Scene, Seen
from tests.live.sidecars import running, settings_for
from tests.live.stopped_process import stands_still
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


async def test_nothing_is_acknowledged_before_the_target_has_confirmed_it(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.1") as source, native_server("2.15.1") as target:
        here = await Scene.make(await raw_peer(source.url), "S")
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery="at_least_once")

        async def acknowledged(sequence: int) -> bool:
            return bool((await here.durable())["ack_floor"]["stream_seq"] == sequence)

        async with running(settings_for(source.url, rule, connections=connections)) as bridge:
            run = bridge.runs[0]
            assert isinstance(run, RepublishRun)
            await here.load.burst(1)
            await until(lambda: acknowledged(1))
            os.kill(target.pid, signal.SIGSTOP)
            try:
                await until(lambda: stands_still(target.pid))
                await here.load.burst(10)
                await until(lambda: run.counters.republished == 11)
                # Its answer comes behind whatever was acknowledged before.
                await bridge.links["default"].api.acknowledge(run._delivery.acknowledged)
                assert await acknowledged(1)
            finally:
                os.kill(target.pid, signal.SIGCONT)
            await until(lambda: acknowledged(11))
