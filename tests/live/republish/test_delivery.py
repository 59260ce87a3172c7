"""What a delivery promises where the target is slow, or another one when it is back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_bridge.kinds.republish.run import RepublishRun
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.processes import stands_still
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Scene, Seen
from tests.live.sidecars import running, settings_for
from tests.live.until import until


@asynccontextmanager
async def to_another_server(
    native_server: Servers, raw_peer: OpenPeer, **rule: Any
) -> AsyncIterator[tuple[Scene, NativeServer, Settings]]:
    """A stream on one server, another server, and a rule that republishes there."""
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S")
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        yield here, target, settings_for(source.url, here.rule(to="target", **rule), connections=connections)


async def stored_before(peer: RawPeer) -> int:
    """How many messages the target's stream holds: its answer to one more comes behind all of them."""
    return int((await peer.store(b"bridgeS.behind"))["seq"]) - 1


async def test_a_target_that_comes_back_and_takes_less_is_sent_no_more_than_that(
    native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with to_another_server(native_server, raw_peer) as (here, target, settings):
        async with running(settings) as bridge:
            connection = bridge.connections["target"]
            await asyncio.to_thread(target.stop)
            await until(lambda: not connection.client.is_connected)
            target.config = "max_payload: 1000"
            await asyncio.to_thread(target.start)
            await until(lambda: connection.reconnects == 1)
            seen = await Seen.of(await raw_peer(target.url), "bridgeS.>")
            await here.peer.store(b"S.s", b"x" * 2000)
            await here.peer.store(b"S.s", b"x")
            await seen.until_sequence(2)
            assert bridge.runs[0].counters.too_large == 1
            assert connection.reconnects == 1
        assert seen.sequences == [2]


@pytest.mark.unstoppable
async def test_nothing_is_acknowledged_before_the_target_has_confirmed_it(
    native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with to_another_server(native_server, raw_peer, delivery="at_least_once") as (here, target, settings):

        async def acknowledged(sequence: int) -> bool:
            return bool((await here.durable())["ack_floor"]["stream_seq"] == sequence)

        async with running(settings) as bridge:
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
                await bridge.connections["default"].api.acknowledge(run._delivery.acknowledged, lambda: True)
                assert await acknowledged(1)
            finally:
                os.kill(target.pid, signal.SIGCONT)
            await until(lambda: acknowledged(11))


@pytest.mark.unstoppable
async def test_what_was_written_to_a_server_that_dies_is_written_again(
    native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with to_another_server(native_server, raw_peer, delivery="at_least_once") as (here, target, settings):
        await (await raw_peer(target.url)).create_stream(name="K", subjects=["bridgeS.>"])
        async with running(settings) as bridge:
            run = bridge.runs[0]
            assert isinstance(run, RepublishRun)
            os.kill(target.pid, signal.SIGSTOP)
            await until(lambda: stands_still(target.pid))
            await here.load.burst(10)
            await until(lambda: run.counters.republished == 10)
            await asyncio.to_thread(target.kill)
            await asyncio.to_thread(target.start)
            await run.settled()
            assert await stored_before(await raw_peer(target.url)) == 10
            assert run.counters.repeated_out == 10


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_what_comes_while_the_target_is_away_waits_for_it(
    delivery: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with to_another_server(native_server, raw_peer, delivery=delivery) as (here, target, settings):
        await (await raw_peer(target.url)).create_stream(name="K", subjects=["bridgeS.>"])
        async with running(settings) as bridge:
            run = bridge.runs[0]
            assert isinstance(run, RepublishRun)
            await asyncio.to_thread(target.stop)
            await until(lambda: not bridge.connections["target"].client.is_connected)
            await here.load.burst(10)
            await until(lambda: run.counters.received > 0)
            await asyncio.to_thread(target.start)
            await until(lambda: run.counters.received == 10 and not run.has_work)
            assert (run.counters.in_doubt, run.counters.repeated_out) == (0, 0)
            assert await stored_before(await raw_peer(target.url)) == 10
