"""The end of a sidecar at bad moments: while it starts, with messages in flight, and where a rule's end fails."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nats_bridge.app import process as running_module
from nats_bridge.app import sidecar as sidecar_module
from nats_bridge.app.process import run
from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client import tasks as cancelling
from nats_bridge.client.connection import open_connection
from nats_bridge.client.tasks import end_tasks
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.rules.supervisor import RuleSupervisor
from tests.live.copies import Copies
from tests.live.processes import stands_still
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import lead_lost, running, settings_for
from tests.live.until import until


@pytest.mark.unstoppable
async def test_the_end_comes_while_one_rule_works_and_another_one_starts(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in flight is finished as at any other time, however long that takes."""
    supervisors: list[RuleSupervisor] = []
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))

        class Held(RuleSupervisor):
            async def start(self) -> None:
                if self.rule.name == "rule":
                    await super().start()
                    supervisors.append(self)
                    return
                os.kill(target.pid, signal.SIGSTOP)
                await until(lambda: stands_still(target.pid))
                await here.load.burst(100)
                await until(lambda: supervisors[0].counters()["received"] == 100 and supervisors[0].run.has_work)
                made[0].drain("SIGTERM")
                await asyncio.Event().wait()

        class Made(Sidecar):
            async def start(self) -> None:
                made.append(self)
                await super().start()

        made: list[Sidecar] = []
        monkeypatch.setattr(sidecar_module, "RuleSupervisor", Held)
        monkeypatch.setattr(running_module, "Sidecar", Made)
        monkeypatch.setattr(running_module, "configure_logs", lambda _: None)
        monkeypatch.setattr(running_module.gc, "set_threshold", lambda *_: None)
        monkeypatch.setattr(cancelling, "_PATIENCE", 0.001)  # a drain that could be cancelled would be
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rules = [here.rule(to="target", delivery="at_least_once"), here.rule(name="other")]
        settings = settings_for(source.url, *rules, connections=connections, fail_fast=True)  # one after the other
        running = asyncio.create_task(run(settings, tmp_path / "none"))
        try:
            await until(
                lambda: bool(supervisors) and supervisors[0].run is not None and supervisors[0].run.state == "draining"
            )
        finally:
            os.kill(target.pid, signal.SIGCONT)
        assert await running == 0
        assert supervisors[0].state == "stopped"
        assert (await here.durable())["ack_floor"]["stream_seq"] == 100
        await here.bridged.until_sequence(100)


async def test_an_end_that_goes_wrong_is_not_a_good_one(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("wrong"))
    async with running(settings_for(url, here.rule())) as sidecar:
        run = sidecar.runs[0]

        async def goes_wrong() -> None:
            await run.end_at_once()
            raise OSError("no more files")

        monkeypatch.setattr(run, "stop", goes_wrong)
        with capture_logs() as log:
            assert not await sidecar.stop()
        assert [line["reason"] for line in log if line["event"] == "rule.drain_failed"] == ["no more files"]


async def test_a_connection_that_is_lost_right_behind_a_pong(servers: SharedServers) -> None:
    """After the loss is reported, this PONG has nothing left to confirm."""
    connection = await open_connection("default", {"servers": [await servers.url("2.15.3")]}, client_name="test")
    flushed, loop = connection.client.flushed, asyncio.get_running_loop()

    def lost() -> None:
        loop.create_task(connection._on_disconnected())

    def flushed_and_lost() -> asyncio.Future[object]:
        pong = flushed()
        pong.add_done_callback(lambda _: lost())
        return pong

    connection.client.flushed = flushed_and_lost  # type: ignore[method-assign, assignment]
    assert not await connection.flush()
    await connection.close()


@pytest.mark.unstoppable
async def test_what_was_written_once_is_in_doubt_when_the_lead_is_lost(
    native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, here.rule(to="target"), connections=connections)) as sidecar:
            run = sidecar.runs[0]
            os.kill(target.pid, signal.SIGSTOP)
            try:
                await until(lambda: stands_still(target.pid))
                await here.load.burst(100)
                await until(lambda: run.counters.as_dict()["republished"] == 100)
                await run.end_at_once()
            finally:
                os.kill(target.pid, signal.SIGCONT)
            assert run.counters.as_dict()["in_doubt"] == 100


@pytest.mark.parametrize(("delivery", "in_doubt"), [("at_most_once", 100), ("at_least_once", 0)])
async def test_messages_taken_but_not_written_are_in_doubt_at_a_lost_lead(
    delivery: str, in_doubt: int, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery=delivery)
        async with running(settings_for(source.url, rule, connections=connections)) as sidecar:
            run = sidecar.runs[0]
            target.stop()
            await until(lambda: not run.ready)
            for _ in range(10):
                await here.load.burst(10)  # not all in one batch

            def arrived() -> int:
                waiting = [item for item in run._reader._life.items if isinstance(item, list)]  # type: ignore[attr-defined]
                return run.counters.as_dict()["received"] + sum(map(len, waiting))

            # The server counts a message as delivered before it writes it to the connection.
            await until(lambda: arrived() == 100)
            await lead_lost(sidecar)
            assert run.counters.as_dict()["in_doubt"] == in_doubt
            target.start()


async def test_a_batch_waiting_for_a_predecessor_is_in_doubt_at_a_lost_lead(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("waits"))
    subject = f"{here.name}.x".encode()
    async with running(settings_for(url, here.rule())) as sidecar:
        run = sidecar.runs[0]

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(sidecar.connections["default"].api, "last_message", never)
        await here.peer.store(subject)
        await here.bridged.until_sequence(1)
        await until(lambda: not run.has_work)  # or it would seem to have taken the next message
        await here.peer.api(f"STREAM.MSG.DELETE.{here.name}", {"seq": 1})
        await until(lambda: bool(run._follower.predecessors._requests))  # type: ignore[attr-defined]
        await here.peer.store(subject)
        await until(lambda: run.counters.as_dict()["received"] == 1 and run.has_work)
        await here.peer.store(subject)
        await until(lambda: len(run._reader._life.queue) == 1)  # type: ignore[attr-defined]
        await lead_lost(sidecar)
        assert run.counters.as_dict()["in_doubt"] == 2


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_an_end_without_the_source_says_what_may_be_lost(
    delivery: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """What was sent counts as done where nothing is acknowledged, and cannot be requested again."""
    async with native_server("2.15.3") as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        async with running(settings_for(server.url, here.rule(delivery=delivery))) as sidecar:
            server.kill()
            await until(lambda: not sidecar.supervisors[0].ready)
            with capture_logs() as log:
                await sidecar.stop()
        incomplete = [line for line in log if line["event"] == "rule.drain_incomplete"]
        assert len(incomplete) == (delivery == "at_most_once")


@pytest.mark.parametrize("tried_to_leave", [False, True], ids=["drain", "leave"])
async def test_a_cut_does_not_wait_for_a_server_as_the_drain_before_it(
    tried_to_leave: bool, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    here = await Copies.make(await raw_peer(url), unique_name("cut"))
    asked = asyncio.Event()

    async def silent(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with running(settings_for(url, here.rule())) as bridge:
        run = bridge.runs[0]
        assert isinstance(run, CopyRun)
        (entry,) = run._entries
        monkeypatch.setattr(entry._context.source.api, "delete_consumer", silent)
        stopping = asyncio.create_task(run.stop())
        await asked.wait()
        await end_tasks(stopping)
        if tried_to_leave:
            leaving = asyncio.create_task(run.abandon())
            await until(lambda: entry._life.state == "leaving")
            await end_tasks(leaving)
        await run.end_at_once()
        assert (run.state, entry._life.state, entry.has_work) == ("stopped", "closed", False)
