"""A rule that cannot run fails alone, and a start waits for servers: the other rules work all the time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs
from tenacity import wait_fixed

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client import jetstream_api, waiting
from nats_bridge.client.tasks import end_tasks
from nats_bridge.rules import supervision
from nats_bridge.rules.supervisor import RuleSupervisor
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeCluster, NativeServer
from nats_conformance.native_servers.native_server import free_port
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.copies import Copies
from tests.live.faults.answered_load import AnsweredLoad, answered_load
from tests.live.raw_messages import OpenPeer, connected
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Scene, Seen, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.tiers import with_all
from tests.live.until import LIMIT, until

FREE = {"http": {"listen": "127.0.0.1:0"}}
NEWEST = LIVE_VERSIONS[-1]


@pytest.fixture(autouse=True)
def quick_to_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed sooner, and a failed rule is started again sooner; nothing else changes."""
    monkeypatch.setattr(waiting, "HEARTBEAT", 0.4)
    monkeypatch.setattr(jetstream_api, "ANSWER", 1.0)
    monkeypatch.setattr(supervision, "RULE_FAILED", waiting.RetryPolicy(wait_fixed(0.5)))


@asynccontextmanager
async def starting(settings: Settings) -> AsyncIterator[Sidecar]:
    """A sidecar whose start may wait without end; stopped at the end."""
    sidecar = Sidecar(settings)
    start = asyncio.create_task(sidecar.start())
    try:
        await until(lambda: sidecar.http is not None or start.done())
        yield sidecar
    finally:
        await end_tasks(start)
        await sidecar.stop()


async def get(sidecar: Sidecar, path: str) -> tuple[int, str]:
    assert sidecar.http is not None
    host, port = sidecar.http
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as answer:
        return answer.status, await answer.text()


def of(sidecar: Sidecar, name: str) -> RuleSupervisor:
    return next(supervisor for supervisor in sidecar.supervisors if supervisor.rule.name == name)


def republish(name: str, stream: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "stream": stream,
        "start": "first",
        "republish": {"src": f"{stream}.>", "dest": f"{name}.{stream}.>"},
        **more,
    }


async def readiness(sidecar: Sidecar, *expected: str) -> None:
    """Wait until `/readyz` has lines that begin so, and `/livez` is good all the time."""

    async def has() -> bool:
        assert await get(sidecar, "/livez") == (200, "ok\n")
        status, text = await get(sidecar, "/readyz")
        return status == 503 and all(any(line.startswith(start) for line in text.splitlines()) for start in expected)

    await until(has)


# -- an offline stream -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_streams(version: str) -> AsyncIterator[tuple[NativeCluster, NativeServer, AnsweredLoad, AnsweredLoad]]:
    """A cluster with a stream `ALONE` on one server, that server, and loads of that and of a stream `SAFE` on three."""
    async with NativeCluster(version) as cluster, answered_load(cluster.urls, "SAFE.x") as safe:
        for name, replicas in {"ALONE": 1, "SAFE": 3}.items():
            config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas}
            assert "error" not in await safe.api(f"STREAM.CREATE.{name}", config)
        info = await safe.api("STREAM.INFO.ALONE")
        home = next(node for node in cluster.nodes if node.name == info["cluster"]["leader"])
        yield cluster, home, AnsweredLoad(safe._client, "ALONE.x"), safe


@pytest.mark.parametrize("version", [*with_all("2.10.27"), NEWEST])
@pytest.mark.parametrize("kind", ["republish", "sources"])
async def test_an_offline_stream_stops_only_its_rule(
    version: str, kind: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """`stream is offline` (10118): all servers of the stream have stopped. Also a sidecar that starts then waits."""
    async with two_streams(version) as (cluster, home, alone, safe), native_server(NEWEST) as target:
        listener = await raw_peer(target.url)
        await listener.create_stream(name="COPY", subjects=["COPY.>"])
        seen = {name: await Seen.of(listener, f"{name}.>") for name in ("alone", "safe", "again.alone", "again.safe")}
        entry = {"name": "ALONE", "subject_transforms": [{"src": "ALONE.>", "dest": "COPY.>"}]}
        copying = {"name": "copying", "kind": "sources", "to": "target", "stream": "COPY", "sources": [entry]}
        servers = [node.url for node in cluster.nodes if node is not home]
        connections = {"default": {"servers": servers}, "target": {"servers": [target.url]}}

        def settings(prefix: str = "") -> Settings:
            rules = [republish("safe", "SAFE", to="target"), republish("alone", "ALONE", to="target")]
            for rule in rules:
                rule["republish"] = {"src": rule["republish"]["src"], "dest": f"{prefix}{rule['republish']['dest']}"}
            if kind == "sources":
                rules[1] = {**copying, "name": "alone"}
            return settings_for("", *rules, connections=connections, name=f"{prefix or 'first.'}s"[:5], **FREE)

        async def has_all(prefix: str = "") -> None:
            if kind == "sources":
                await until(lambda: _holds(listener, "COPY", alone.last))
            else:
                await seen[f"{prefix}alone"].until_sequence(alone.last)

        async with running(settings()) as sidecar:
            await alone.store(5)
            await safe.store(5)
            await has_all()
            await seen["safe"].until_sequence(safe.last)
            await asyncio.to_thread(home.stop)  # the others know at once that it is offline
            await readiness(sidecar, "[+] rule safe", "[-] rule alone: waiting: ")
            await until(lambda: "10118" in str(of(sidecar, "alone").waiting_for))
            await safe.store(5)
            await seen["safe"].until_sequence(safe.last)
            if kind == "republish":
                async with starting(settings("again.")) as later:
                    await seen["again.safe"].until_sequence(safe.last)
                    await until(lambda: "10118" in str(of(later, "alone").waiting_for))
                    assert of(later, "alone").error is None
                    await asyncio.to_thread(cluster.bring_back, home)
                    await alone.store(5)
                    await has_all("again.")
            else:
                await asyncio.to_thread(cluster.bring_back, home)
                await alone.store(5)
            await has_all()
            await until(lambda: all(supervisor.ready for supervisor in sidecar.supervisors))
            assert (await get(sidecar, "/readyz"))[0] == 200
            assert of(sidecar, "alone").failure is None
            assert of(sidecar, "alone").counters().get("lost", 0) == 0


async def _holds(peer: Any, stream: str, messages: int) -> bool:
    return bool((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"] >= messages)


# -- a failed rule -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.9.10", *with_all("2.10.27"), NEWEST])
@pytest.mark.parametrize("kind", ["republish", "advisories"])
async def test_a_message_that_the_server_does_not_let_pass_is_counted(
    kind: str, version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("p")
    users = '{user: all, password: p}, {user: few, password: p, permissions: {publish: {deny: "out.>"}}}'
    async with native_server(version, config=f"jetstream: enabled\nauthorization: {{users: [{users}]}}") as server:
        peer = await raw_peer(server.url.replace("://", "://all:p@"))
        await peer.create_stream(name="S", subjects=["S.>"])
        login = {"servers": [server.url], "user": "few", "password_file": str(tmp_path / "password")}
        rule: dict[str, Any] = {"name": "rule", "kind": kind}
        if kind == "republish":
            rule |= {"stream": "S", "republish": {"src": "S.>", "dest": "out.>"}}
        else:
            rule |= {"republish": {"src": "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.*", "dest": "out.letters"}}
        async with running(settings_for("", rule, connections={"default": login})) as sidecar:
            await peer.store(b"S.x", b"one")
            if kind == "advisories":
                config = {"durable_name": "worker", "ack_policy": "explicit"}
                await peer.api("CONSUMER.DURABLE.CREATE.S.worker", {"stream_name": "S", "config": config})
                jobs = await peer.collect("jobs")
                peer.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.worker", b"", b"", b"jobs")
                (job,) = await jobs.count(1)
                peer.publish(job[1], b"+TERM")
            await until(lambda: of(sidecar, "rule").failure is not None)
            counted = "in_doubt" if kind == "republish" else "refused"
            await until(lambda: of(sidecar, "rule").counters()[counted] == 1)


@pytest.mark.parametrize("version", ["2.9.10", *with_all("2.10.27"), NEWEST])
async def test_a_rule_that_loses_a_permission_fails_alone(
    version: str, native_server: Servers, enduring_peer: OpenPeer, tmp_path: Path
) -> None:
    """It has the permission again later, and nothing is lost."""
    (tmp_path / "password").write_text("p")

    def config(denied: str) -> str:
        user = f'{{user: few, password: p, permissions: {{publish: {{deny: ["{denied}"]}}}}}}'
        return f"jetstream: enabled\nauthorization: {{users: [{{user: all, password: p}}, {user}]}}"

    async def restart(denied: str) -> None:
        server.config = config(denied)
        await asyncio.to_thread(server.restart)
        await connected(peer)

    async with native_server(version, config=config("none")) as server:
        peer = await enduring_peer(server.url.replace("://", "://all:p@"))
        here, other = await Scene.make(peer, "S"), await Scene.make(peer, "T")
        login = {"servers": [server.url], "user": "few", "password_file": str(tmp_path / "password")}
        rules = here.rule(delivery="at_least_once"), {**other.rule(), "name": "other"}
        async with running(settings_for("", *rules, connections={"default": login}, **FREE)) as sidecar:
            await here.bridged.until_sequence(await here.end())
            with capture_logs() as log:
                await restart("bridgeS.>")
                end = await here.end()
                await readiness(sidecar, "[+] rule other", "[-] rule rule: failed: ", "[+] connections")
            assert "rule.failed" in {line["event"] for line in log}

            async def shows_the_failure() -> bool:
                state = json.loads((await get(sidecar, "/status"))[1])["rules"][0]
                is_tried_again = state["again_at"] is not None and state["failures"] > 0
                return not state["ready"] and is_tried_again and "publi" in str(state["error"])

            # Each time that it is tried again, it is ready until the server refuses the first message.
            await until(shows_the_failure)
            await other.bridged.until_sequence(await other.end())
            assert not sidecar.finished.is_set()
            await restart("none")
            await here.bridged.until_sequence(end)
            await until(lambda: of(sidecar, "rule").ready)
            assert of(sidecar, "rule").failure is None
            assert (await get(sidecar, "/readyz"))[0] == 200
        assert sorted(set(here.bridged.sequences)) == list(range(1, end + 1))


@pytest.mark.parametrize("version", [*with_all("2.10.27"), NEWEST])
async def test_a_source_that_must_not_be_a_new_one_stops_only_its_rule(
    version: str, native_server: Servers, raw_peer: OpenPeer, enduring_peer: OpenPeer
) -> None:
    """A server restarts without its memory streams, and an application creates one of them again."""
    async with native_server(version) as source, native_server(NEWEST) as target:
        peer, target_peer = await enduring_peer(source.url), await raw_peer(target.url)
        memory = await Copies.make(peer, "M", target_peer=target_peer, source={"storage": "memory"})
        file = await Copies.make(peer, "F", target_peer=target_peer)
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rules = [{**each.rule(to="target"), "name": each.name} for each in (memory, file)]
        for rule in rules:
            rule["sources"][0]["from"] = "default"
        async with running(settings_for("", *rules, connections=connections, **FREE)) as sidecar:
            for each in (memory, file):
                for number in range(5):
                    await peer.store(f"{each.name}.x".encode(), b"old%d" % number)
                await each.holds(5)
            await asyncio.to_thread(source.restart)
            await connected(peer)
            await until(lambda: _is_away(peer, "M"))
            await peer.create_stream(name="M", subjects=["M.>"], storage="memory")
            for number in range(7):
                await peer.store(b"M.x", b"new%d" % number)
            await readiness(sidecar, "[-] rule M: failed: ", "[+] rule F")
            assert "new one" in str(of(sidecar, "M").error)
            await peer.store(b"F.x", b"more")
            await file.holds(6)
            failure = of(sidecar, "M").failure
            assert failure is not None
            await until(lambda: (again := of(sidecar, "M").failure) is not None and again.tries > 1)
            assert [message.payload for message in await memory.stored()] == [b"old%d" % n for n in range(5)]


async def _is_away(peer: Any, stream: str) -> bool:
    return bool((await peer.api(f"STREAM.INFO.{stream}")).get("error", {}).get("err_code") == 10059)


# -- a start without servers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [*with_all("2.10.27"), NEWEST])
async def test_a_start_before_the_server_waits(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    server = native_server(version, port=free_port())
    url = f"nats://127.0.0.1:{server.port}"
    connections = {"default": {"servers": [url], "connect_timeout": 1}}
    async with starting(settings_for("", republish("r", "S"), connections=connections, **FREE)) as sidecar:

        async def says() -> bool:
            status, text = await get(sidecar, "/startupz")
            return status == 503 and f"no server answers at {url} (connection refused)" in text

        await until(says)
        assert (await get(sidecar, "/readyz"))[0] == 503
        assert await get(sidecar, "/livez") == (200, "ok\n")
        await asyncio.to_thread(server.start)
        peer = await raw_peer(url)
        seen = await Seen.of(peer, "r.>")
        await peer.create_stream(name="S", subjects=["S.>"])
        await peer.store(b"S.x")
        await seen.until_sequence(1)
        await until(lambda: of(sidecar, "r").ready)
        assert (await get(sidecar, "/startupz"))[0] == 200
        assert (await get(sidecar, "/readyz"))[0] == 200


@pytest.mark.parametrize("version", [*with_all("2.10.27"), NEWEST])
async def test_one_absent_server_of_two_stops_only_its_rules(
    version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    absent = native_server(version, port=free_port())
    async with native_server(version) as here:
        scene = await Scene.make(await raw_peer(here.url), "S")
        url = f"nats://127.0.0.1:{absent.port}"
        connections = {"default": {"servers": [here.url]}, "far": {"servers": [url], "connect_timeout": 1}}
        rules = scene.rule(), republish("far", "F", **{"from": "far", "to": "default"})
        seen = await Seen.of(scene.peer, "far.>")
        async with running(settings_for("", *rules, connections=connections, **FREE)) as sidecar:
            await scene.bridged.until_sequence(await scene.end())
            assert (await get(sidecar, "/startupz"))[0] == 200
            await readiness(
                sidecar, "[+] rule rule", "[-] rule far: waiting: connection 'far'", "[-] connections: connection 'far'"
            )
            await asyncio.to_thread(absent.start)
            peer = await raw_peer(url)
            await peer.create_stream(name="F", subjects=["F.>"])
            await peer.store(b"F.x")
            await seen.until_sequence(1)
            await until(lambda: of(sidecar, "far").ready)
            assert (await get(sidecar, "/readyz"))[0] == 200


@pytest.mark.parametrize("version", [*with_all("2.10.27"), NEWEST])
async def test_a_server_that_refuses_the_credentials_stops_only_its_rules(
    version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """One client asks that server, until the password file has what it wants."""
    password = tmp_path / "password"
    password.write_text("wrong")
    config = "jetstream: enabled\nauthorization: {user: u, password: right}"
    async with native_server(version) as here, native_server(version, config=config) as strict:
        scene = await Scene.make(await raw_peer(here.url), "S")
        login = {"servers": [strict.url], "user": "u", "password_file": str(password), "reconnect_max_wait": 0.5}
        connections = {"default": {"servers": [here.url]}, "far": login}
        rules = scene.rule(), republish("far", "F", **{"from": "far", "to": "default"})
        seen = await Seen.of(scene.peer, "far.>")
        with capture_logs() as log:
            async with running(settings_for("", *rules, connections=connections, **FREE)) as sidecar:
                await scene.bridged.until_sequence(await scene.end())
                await readiness(sidecar, "[+] rule rule", "[-] rule far: waiting: connection 'far'")

                async def is_refused() -> bool:
                    return "refuses the credentials" in (await get(sidecar, "/readyz?exclude=connections"))[1]

                await until(is_refused)  # the last attempt can have had another reason
                peer = await raw_peer(strict.url.replace("://", "://u:right@"))
                await peer.create_stream(name="F", subjects=["F.>"])
                await peer.store(b"F.x")
                password.write_text("right")
                await seen.until_sequence(1)
                await until(lambda: of(sidecar, "far").ready)
                assert (await get(sidecar, "/readyz"))[0] == 200
        assert [line["connection"] for line in log if line["event"] == "connection.not_up"] == ["far"]


@pytest.mark.parametrize("version", [*with_all("2.10.27"), NEWEST])
async def test_every_connection_that_is_away_is_named(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    """One that was never up, and one that was lost."""
    absent = f"nats://127.0.0.1:{free_port()}"
    async with native_server(version) as here:
        scene = await Scene.make(await raw_peer(here.url), "S")
        connections = {"default": {"servers": [here.url]}, "far": {"servers": [absent], "connect_timeout": 1}}
        rules = scene.rule(), republish("far", "F", **{"from": "far", "to": "default"})
        async with running(settings_for("", *rules, connections=connections, **FREE)) as sidecar:
            await scene.bridged.until_sequence(await scene.end())
            await asyncio.to_thread(here.stop)
            await readiness(sidecar, f"[-] connections: connection 'far': no server answers at {absent}")

            async def names_both() -> bool:
                return "; not connected: 'default'" in (await get(sidecar, "/readyz"))[1]

            await until(names_both)
            assert (await get(sidecar, "/readyz?exclude=connections"))[0] == 200


@pytest.mark.parametrize("version", [*with_all("2.10.27"), NEWEST])
@pytest.mark.parametrize("leadership", [pytest.param(False, marks=pytest.mark.exhaustive), True])
async def test_a_start_without_a_quorum_waits(version: str, leadership: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_api, "_PATIENCE", 1.0)
    async with two_streams(version) as (cluster, _, _, safe):
        await safe.store(3)
        one, *others = cluster.nodes
        for node in others:
            await asyncio.to_thread(node.kill)
        connections = {"default": {"servers": [one.url]}}
        more: dict[str, Any] = {"leadership": {}} if leadership else {}
        settings = settings_for("", republish("r", "SAFE"), connections=connections, **FREE, **more)
        async with starting(settings) as sidecar:

            async def says() -> bool:
                text = (await get(sidecar, "/startupz?verbose"))[1]
                return ("the leases (" if leadership else "rule r: waiting: its servers to answer") in text

            await until(says)
            assert await get(sidecar, "/livez") == (200, "ok\n")
            assert (await get(sidecar, "/readyz"))[0] == 503
            for node in others:
                await asyncio.to_thread(node.start)
            await until(lambda: bool(sidecar.supervisors) and of(sidecar, "r").state == "ready", 2 * LIMIT)
            # A message that was sent again, because its answer came late, may be stored twice.
            await until(lambda: of(sidecar, "r").counters().get("republished") == safe.last)


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_a_sidecar_that_fails_fast_ends_with_its_first_rule(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server(NEWEST) as server:
        # In memory: a file store that is created right behind its deletion may hold the old messages.
        here = await Copies.make(await raw_peer(server.url), "S", source={"storage": "memory"})
        await here.peer.store(b"S.x", b"old")
        async with sidecar_processes(tmp_path) as start:
            process = await start(server.url, here.rule(), fail_fast=True)
            await process.ready()
            await here.holds(1)
            await here.peer.recreate_stream("S")
            await here.peer.store(b"S.x", b"new")
            assert await process.ended() == 2
            assert "new one" in (await process.said("sidecar.ended"))["reason"]
            process = await start(server.url, here.rule())  # the same without: it runs until it is stopped
            assert "new one" in (await process.said("rule.failed"))["reason"]
            ready = await process.said("sidecar.ready")
            assert (ready["rules"], ready["failed"]) == (0, 1)
            assert await process.stop() == 0


async def test_a_second_sidecar_takes_over_when_the_first_has_stopped(
    native_server: Servers, raw_peer: OpenPeer
) -> None:
    """Without `leadership`: its rule fails while the consumer is in use."""
    async with native_server(NEWEST) as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        async with (
            running(settings_for(server.url, here.rule())) as first,
            starting(settings_for(server.url, here.rule(), **FREE)) as second,
        ):
            await here.bridged.until_sequence(await here.end())
            await readiness(second, "[-] rule rule: failed: ")
            assert "is in use by another process" in str(of(second, "rule").error)
            assert await first.stop()
            await until(lambda: of(second, "rule").ready)
            end = await here.end()
            await here.bridged.until_sequence(end)
        assert here.bridged.sequences == list(range(1, end + 1))
