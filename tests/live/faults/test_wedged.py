"""When a rule counts as wedged, and that what a server does or does not do never makes it so."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest
import structlog

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.cli.status.asking import ask_whether_alive, status_url
from nats_bridge.client.tasks import end_tasks
from nats_bridge.http import progress_watch
from nats_bridge.http.progress_watch import ProgressWatch
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.kinds.republish.run import RepublishRun
from tests.live.copies import Copies
from tests.live.observing.test_health import get, status_of
from tests.live.processes import stands_still
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load, Scene, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.until import until

SOON = {"http": {"listen": "127.0.0.1:0", "wedged_after": 1}}
"""Ten looks, at the pace of these tests."""


@pytest.fixture(autouse=True)
def _fast_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_watch, "EVERY_SECOND", 0.1)


def watch_of(bridge: Sidecar) -> ProgressWatch:
    return bridge.state.watch


def url_of(bridge: Sidecar) -> str:
    assert bridge.http is not None
    return status_url(f"{bridge.http[0]}:{bridge.http[1]}")


async def looks(bridge: Sidecar, times: int) -> None:
    """Wait until the rules have been checked so many times more."""
    watch = watch_of(bridge)
    wanted = watch.looks + times
    await until(lambda: watch.looks >= wanted)


async def wedged(bridge: Sidecar) -> bool:
    return (await get(bridge, "/livez"))[0] == 503


async def test_a_rule_that_never_gets_confirmations(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("deaf"))
    async with running(settings_for(url, here.rule(delivery="at_least_once"), **SOON)) as bridge:
        run = bridge.runs[0]
        assert isinstance(run, RepublishRun)
        await here.load.burst(5)
        await here.bridged.count(5)
        await until(lambda: not run.has_work)
        await end_tasks(run._delivery._confirmer)  # what it must not happen to lose
        await here.load.burst(5)
        await until(lambda: wedged(bridge))
        said = "[-] rule rule: has messages in flight, waits for nothing, and has made no progress for "
        assert said in (await get(bridge, "/livez"))[1]
        assert said in (await get(bridge, "/readyz"))[1]
        (rule,) = (await status_of(bridge))["rules"]
        assert (rule["condition"], rule["ready"], rule["waiting_for"]) == ("wedged", False, None)
        assert rule["wedged_s"] >= 1
        alive, reported = await asyncio.to_thread(ask_whether_alive, url_of(bridge))
        assert (alive, said in reported) == (False, True)
        run._delivery._confirmer = asyncio.create_task(run._delivery._confirm())
        await until(lambda: not run.has_work)
        await looks(bridge, 1)
        assert await get(bridge, "/livez") == (200, "ok\n")


async def test_an_entry_whose_batch_is_never_done(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Copies.make(peer, unique_name("stuck"))
    async with running(settings_for(url, here.rule(), **SOON)) as bridge:
        run = bridge.runs[0]
        assert isinstance(run, CopyRun)
        present = run._entries[0]._round
        assert present is not None
        free = asyncio.Event()
        monkeypatch.setattr(present.publisher, "send", lambda _: free.wait())
        await Load(peer, here.name).burst(5)
        await until(lambda: wedged(bridge))
        free.set()
        await until(lambda: not run.has_work)
        await looks(bridge, 1)
        assert await get(bridge, "/livez") == (200, "ok\n")


@pytest.mark.unstoppable
async def test_a_frozen_server_is_not_the_rules_fault(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery="at_least_once")
        async with running(settings_for(source.url, rule, connections=connections, **SOON)) as bridge:
            run = bridge.runs[0]
            os.kill(target.pid, signal.SIGSTOP)
            try:
                # Its threads stop one after the other, and until then it answers.
                await until(lambda: stands_still(target.pid))
                await here.load.burst(20)
                await until(lambda: run.has_work)
                # To the rule's eyes all is well: connected, and nothing says that it must wait.
                assert (run.ready, run.waiting_for) == (True, None)
                await looks(bridge, 25)
                assert run.has_work
                assert await get(bridge, "/livez") == (200, "ok\n")
            finally:
                os.kill(target.pid, signal.SIGCONT)
            await here.bridged.count(20)
            await until(lambda: not run.has_work)
            assert await get(bridge, "/livez") == (200, "ok\n")


async def test_a_dead_server_is_not_the_rules_fault(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery="at_least_once")
        async with running(settings_for(source.url, rule, connections=connections, **SOON)) as bridge:
            run = bridge.runs[0]
            await asyncio.to_thread(target.stop)
            await here.load.burst(20)
            await until(lambda: run.has_work)
            await looks(bridge, 20)
            assert await get(bridge, "/livez") == (200, "ok\n")
            assert (await asyncio.to_thread(ask_whether_alive, url_of(bridge)))[0]
            (reported,) = (await status_of(bridge))["rules"]
            assert (reported["condition"], reported["waiting_for"]) == ("waiting", "connection 'target'")
            await asyncio.to_thread(target.start)
            await until(lambda: run.ready)


async def test_a_full_target_is_not_the_rules_fault(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Copies.make(peer, unique_name("full"), target={"discard": "new", "max_msgs": 10})
    await Load(peer, here.name).burst(30)
    async with running(settings_for(url, here.rule(), **SOON)) as bridge:
        full = f"room in stream '{here.target}', which accepts nothing at the moment"
        await until(lambda: bridge.runs[0].waiting_for == full)
        await looks(bridge, 20)
        assert await get(bridge, "/livez") == (200, "ok\n")
        status, text = await get(bridge, "/readyz")
        assert (status, f"[-] rule rule: waiting: {full}\n" in text) == (503, True)
        assert (await status_of(bridge))["why_not_ready"] == [f"rule rule: waiting: {full}"]


async def test_an_idle_rule_and_a_busy_one_make_progress(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("busy"))
    async with running(settings_for(url, here.rule(delivery="at_least_once"), **SOON)) as bridge:
        await looks(bridge, 20)
        assert await get(bridge, "/livez") == (200, "ok\n")
        flow = asyncio.create_task(here.load.flow(here.bridged))
        await looks(bridge, 20)
        assert await get(bridge, "/livez") == (200, "ok\n")
        await end_tasks(flow)


async def test_a_fault_of_the_watch_blames_no_rule_and_ends_nothing(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("fault"))
    async with running(settings_for(url, here.rule(), **SOON)) as bridge:
        with monkeypatch.context() as broken, structlog.testing.capture_logs() as lines:
            broken.setattr(RepublishRun, "has_work", property(lambda _: {}["a fault"]))
            await looks(bridge, 3)
            assert await get(bridge, "/livez") == (200, "ok\n")
        assert {line["event"] for line in lines} == {"http.watch_failed"}
        await looks(bridge, 3)
        assert await get(bridge, "/livez") == (200, "ok\n")


@pytest.mark.unstoppable
async def test_a_process_that_does_not_run_does_not_answer(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("frozen"))
    async with sidecar_processes(tmp_path) as start, aiohttp.ClientSession() as session:
        process = await start(url, here.rule(), **SOON)
        probe = f"http://{(await process.said('sidecar.ready'))['http']}/livez"
        process.send(signal.SIGSTOP)
        await until(lambda: stands_still(process.pid))
        with pytest.raises(TimeoutError):
            await session.get(probe, timeout=aiohttp.ClientTimeout(total=0.5))
        await here.load.burst(10)
        process.send(signal.SIGCONT)
        await here.bridged.count(10)
        async with session.get(probe) as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        assert await process.stop() == 0
