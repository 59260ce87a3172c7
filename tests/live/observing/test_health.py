"""Health over real HTTP, from the start to the end of a sidecar."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.tasks import end_tasks
from nats_bridge.rules import open_run
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

FREE = {"http": {"listen": "127.0.0.1:0"}}


async def get(bridge: Sidecar, path: str, **headers: str) -> tuple[int, str]:
    assert bridge.http is not None
    host, port = bridge.http
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_all_is_well(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("health"))
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        for path in ("/livez", "/startupz", "/readyz", "/healthz"):
            assert await get(bridge, path) == (200, "ok\n")
        status, text = await get(bridge, "/readyz?verbose")
        assert (status, text) == (200, "[+] connections\n[+] not draining\n[+] rule rule\nok\n")
        status, text = await get(bridge, "/readyz", Accept="application/json")
        assert (status, text) == (
            200,
            '{"ok": true, "checks": {"connections": true, "not draining": true, "rule rule": true}, "reasons": {}}',
        )
        await here.load.burst(7)
        await here.bridged.count(7)
        state: dict[str, Any] = await status_of(bridge)
        assert state["ready"] is True
        (rule,) = state["rules"]
        assert (rule["name"], rule["kind"], rule["stream"], rule["state"]) == ("rule", "republish", here.name, "ready")
        assert (rule["position"], rule["error"]) == (7, None)
        assert rule["counters"]["republished"] == 7
        assert (await get(bridge, "/nowhere"))[0] == 404


async def status_of(bridge: Sidecar) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((await get(bridge, "/status"))[1])
    return state


async def test_an_outage_makes_it_unready_and_does_not_kill_it(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with running(settings_for(source.url, here.rule(to="target"), connections=connections, **FREE)) as bridge:
            await asyncio.to_thread(target.stop)
            await until(lambda: not bridge.runs[0].ready)
            await until(lambda: bool(bridge.connections["target"].failed_attempts))
            cause = f"{target.url.partition('://')[2]}: connection refused"
            assert await get(bridge, "/livez") == (200, "ok\n")
            assert await get(bridge, "/readyz") == (
                503,
                f"[-] connections: not connected: 'target' ({cause})\n[+] not draining\n"
                "[-] rule rule: waiting: connection 'target'\nnot ok\n",
            )
            assert await get(bridge, "/readyz?verbose&exclude=connections") == (
                200,
                "[+] connections\n[+] not draining\n[+] rule rule: waiting: connection 'target'\nok\n",
            )
            assert (await status_of(bridge))["ready"] is False
            await asyncio.to_thread(target.start)
            await until(lambda: bridge.runs[0].ready)
            assert await get(bridge, "/readyz") == (200, "ok\n")


async def test_a_running_connection_that_is_rejected_is_not_excluded(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("old")
    login = "authorization: {{users: [{{user: u, password: {}}}, {{user: peer, password: p}}]}}"
    async with native_server("2.15.3", config=login.format("old")) as server:
        here = await Scene.make(await raw_peer(server.url.replace("://", "://peer:p@")), "S")
        connections = {"default": {"servers": [server.url], "user": "u", "password_file": str(tmp_path / "password")}}
        async with running(settings_for(server.url, here.rule(), connections=connections, **FREE)) as bridge:
            server.config = login.format("new")
            await asyncio.to_thread(server.restart)
            await until(lambda: any(each.rejected for each in bridge.connections["default"].failed_attempts))
            assert (await get(bridge, "/readyz?exclude=connections"))[0] == 503


async def test_replicas_can_be_replaced_while_one_of_two_clusters_is_away(
    native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url], "connect_timeout": 1}}
        rules = here.rule(to="target"), here.rule(name="near", republish={"src": "S.>", "dest": "near.>"})
        settings = settings_for("", *rules, connections=connections, leadership={"ttl": 1}, **FREE)

        async def is_replaceable(replica: Sidecar) -> bool:
            return (await get(replica, "/readyz?exclude=connections"))[0] == 200

        async with running(settings) as old:
            async with running(settings) as other:
                await asyncio.to_thread(target.stop)
                await until(
                    lambda: not any(replica.connections["target"].client.is_connected for replica in (old, other))
                )
                for replica in (old, other):
                    await until(partial(is_replaceable, replica))
            async with running(settings) as new:
                await until(partial(is_replaceable, new))
                assert (await get(new, "/readyz"))[0] == 503
                await old.stop()
                await until(lambda: new.supervisors[1].state == "ready")
                await until(partial(is_replaceable, new))


async def test_it_says_so_while_it_starts(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("starting"))
    async with cut_wire(url) as wire:
        wire.hold_back()
        connections = {"default": {"servers": [wire.url], "connect_timeout": 2 * LIMIT}}
        bridge = Sidecar(settings_for(url, here.rule(), connections=connections, **FREE))
        starting = asyncio.create_task(bridge.start())
        try:
            await until(lambda: bridge.http is not None)
            assert await get(bridge, "/livez") == (200, "ok\n")
            for path in ("/startupz", "/readyz"):
                assert (await get(bridge, path))[0] == 503
            wire.let_through()
            async with asyncio.timeout(LIMIT):
                await starting
            for path in ("/livez", "/startupz", "/readyz"):
                assert await get(bridge, path) == (200, "ok\n")
        finally:
            await end_tasks(starting)
            await bridge.stop()


async def test_it_says_so_while_it_drains(
    native_server: Servers, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "_DRAIN", LIMIT)
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        bridge = Sidecar(settings_for(source.url, here.rule(to="target"), connections=connections, **FREE))
        await bridge.start()
        await asyncio.to_thread(target.stop)
        await until(lambda: not bridge.connections["target"].client.is_connected)
        await here.load.burst(10)
        # How many messages arrive at once is up to the network; what follows them waits until there is a target.
        await until(lambda: bridge.runs[0].position > 0)
        stopping = asyncio.create_task(bridge.stop())
        await until(lambda: bridge.draining)
        status, text = await get(bridge, "/readyz?verbose")
        assert status == 503
        assert "[-] not draining" in text
        assert (await get(bridge, "/readyz?exclude=connections"))[0] == 503
        assert await get(bridge, "/livez") == (200, "ok\n")
        await asyncio.to_thread(target.start)
        assert await stopping
