"""Rules on several worker processes: spread, watched, brought back, drained, and told of as one sidecar."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import main
from conformance.servers import NativeServer, SharedServers
from tests.live.copies import Copies
from tests.live.joint_sidecar import JointSidecar, joint_sidecars
from tests.live.otlp_receiver import otlp_receiver
from tests.live.raw_messages import OpenPeer
from tests.live.sidecar_process import Scene, Seen
from tests.live.stopped_process import stands_still
from tests.live.until import LIMIT, until

Name = Callable[[str], str]
Start = Callable[..., Awaitable[JointSidecar]]


@pytest.fixture
async def joint(tmp_path: Path) -> AsyncIterator[Start]:
    async with joint_sidecars(tmp_path) as start:
        yield start


async def scenes(peer: Any, unique_name: Name, count: int) -> list[Scene]:
    return [await Scene.make(peer, unique_name("joint")) for _ in range(count)]


def rule_of(scene: Scene, **more: Any) -> dict[str, Any]:
    return scene.rule(name=scene.name, **more)


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()


async def everything_once(here: list[Scene], messages: int) -> None:
    for scene in here:
        await scene.bridged.until_sequence(messages)
        assert scene.bridged.sequences == list(range(1, messages + 1))


async def test_rules_are_spread_and_told_of_as_one(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 3)
    sidecar = await (await joint(url, *map(rule_of, here))).ready()
    for scene in here:
        await scene.load.burst(50)
    await everything_once(here, 50)

    ready = await sidecar.process.said("sidecar.ready")
    assert (ready["rules"], ready["waiting"], ready["workers"]) == (3, 0, 2)
    assert await sidecar.get("/livez?verbose") == (200, "[+] event loop\n[+] worker 1\n[+] worker 2\nok\n")
    assert await sidecar.get("/startupz") == (200, "ok\n")
    lines = "".join(f"[+] rule {scene.name}\n" for scene in here)
    assert await sidecar.get("/readyz?verbose") == (200, f"[+] connections\n[+] not draining\n{lines}ok\n")

    async def all_counted() -> bool:
        rules = (await sidecar.status())["rules"]
        return all(rule["measures"]["messages_out"] == 50 for rule in rules)

    await until(all_counted)
    state = await sidecar.status()
    assert state["ready"] is True
    assert [(rule["name"], rule["worker"]) for rule in state["rules"]] == [
        (here[0].name, 1),
        (here[1].name, 2),
        (here[2].name, 1),
    ]
    assert [(worker["worker"], worker["rules"]) for worker in state["workers"]] == [
        (1, [here[0].name, here[2].name]),
        (2, [here[1].name]),
    ]
    assert len({worker["pid"] for worker in state["workers"]} | {sidecar.process.pid}) == 3
    assert [link["name"] for link in state["connections"]] == ["default"]

    seen = await sidecar.scrape()
    assert [seen.value("sent_messages_total", rule=scene.name, kind="republish") for scene in here] == [50] * 3
    assert seen.value("ready") == seen.value("connection_up", connection="default") == 1
    assert [seen.value("worker_up", worker=number) for number in "12"] == [1, 1]
    assert seen.value("worker_memory_bytes", worker="2") > 0

    address = f"http://{ready['http']}"
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, ["status", "--url", address])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "worker 2: pid" in told
    assert "WORKER" in told
    # Lines of workers say which one.
    assert {line["worker"] for line in sidecar.lines("rule.ready")} == {1, 2}
    assert await sidecar.process.stop() == 0


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        (signal.SIGKILL, "killed by SIGKILL"),
        pytest.param(signal.SIGTERM, "exit code 0", marks=pytest.mark.exhaustive),
    ],
    ids=["kill", "term"],
)
async def test_a_worker_that_ends_is_brought_back_and_the_others_notice_nothing(
    how: signal.Signals, reason: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 2)
    sidecar = await (await joint(url, *(rule_of(scene, delivery="at_least_once") for scene in here))).ready()
    flows = [asyncio.create_task(scene.load.flow(scene.bridged)) for scene in here]
    await asyncio.gather(*(scene.bridged.count(500) for scene in here))
    await sidecar.kill_worker(2, how)
    await sidecar.back()
    await asyncio.gather(*(scene.bridged.count(len(scene.bridged.messages) + 500) for scene in here))
    for flow in flows:
        flow.cancel()
    await asyncio.gather(*flows, return_exceptions=True)
    last = [await scene.end() for scene in here]
    for scene, sequence in zip(here, last, strict=True):
        await scene.bridged.until_sequence(sequence)
    assert here[0].bridged.sequences == list(range(1, last[0] + 1)), "the other worker was disturbed"
    assert set(here[1].bridged.sequences) == set(range(1, last[1] + 1)), "something was lost"
    ended = sidecar.lines("worker.ended")[0]
    assert (ended["worker"], ended["reason"]) == (2, reason)
    assert [line["rule"] for line in sidecar.lines("rule.ready")].count(here[0].name) == 1
    state = await sidecar.status()
    assert [worker["starts"] for worker in state["workers"]] == [1, 2]
    assert (await sidecar.scrape()).value("worker_starts_total", worker="2") == 2
    assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
async def test_a_worker_is_brought_back_when_its_server_is_there_again(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer, joint: Start
) -> None:
    async with native_server("2.15.1") as source, native_server("2.15.1") as target:
        peer = await raw_peer(source.url)
        a, b = await Scene.make(peer, "A"), await Scene.make(peer, "B")
        connections = {
            "default": {"servers": [source.url]},
            "target": {"servers": [target.url], "connect_timeout": 0.5},
        }
        rules = [rule_of(a), rule_of(b, to="target")]
        sidecar = await (await joint(source.url, *rules, connections=connections)).ready()
        await asyncio.to_thread(target.stop)
        await sidecar.kill_worker(2)
        await until(lambda: sidecar.events("worker.ended") >= 3)
        assert "connection 'target'" in sidecar.lines("worker.ended")[-1]["reason"]
        code, text = await sidecar.get("/readyz")
        assert code == 503
        assert "[-] rule B: worker 2 is being started again: " in text
        assert (await sidecar.get("/livez"))[0] == 200
        assert (await sidecar.reload(rule_of(a), *rules[1:], connections=connections))["result"] == "refused"
        await a.load.burst(50)
        await everything_once([a], 50)
        await b.load.burst(50)
        await asyncio.to_thread(target.start)
        arrives = await Seen.of(await raw_peer(target.url), "bridgeB.>")
        await sidecar.back()
        await arrives.until_sequence(50)
        assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
async def test_the_end_drains_all_workers_and_a_next_start_goes_on_there(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 3)
    rules = [rule_of(scene) for scene in here]
    sidecar = await (await joint(url, *rules)).ready()
    flows = [asyncio.create_task(scene.load.flow(scene.bridged)) for scene in here]
    await asyncio.gather(*(scene.bridged.count(500) for scene in here))
    assert await sidecar.process.stop() == 0, sidecar.process.log
    for flow in flows:
        flow.cancel()
    await asyncio.gather(*flows, return_exceptions=True)
    again = await (await joint(url, *rules)).ready()
    for scene in here:
        await scene.bridged.until_sequence(await scene.end())
        assert scene.bridged.sequences == list(range(1, scene.bridged.newest + 1))
    assert await again.process.stop() == 0, again.process.log


@pytest.mark.exhaustive
async def test_workers_end_with_their_foreman(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    """However he ends: they finish what is in hand, and keep nothing."""
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 2)
    rules = [rule_of(scene) for scene in here]
    sidecar = await (await joint(url, *rules)).ready()
    for scene in here:
        await scene.load.burst(100)
    await sidecar.process.kill()  # and waits for the end of the log, which all of them write
    assert sidecar.events("worker.alone") == 2
    assert {line["rule"] for line in sidecar.lines("rule.stopped")} == {scene.name for scene in here}
    again = await (await joint(url, *rules)).ready()
    for scene in here:
        await scene.load.burst(100)
    await everything_once(here, 200)
    assert await again.process.stop() == 0


@pytest.mark.exhaustive
@pytest.mark.unstoppable
async def test_a_second_signal_ends_all_at_once(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer, joint: Start
) -> None:
    async with native_server("2.15.1") as source, native_server("2.15.1") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        other = await Scene.make(await raw_peer(source.url), "O")
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rules = [rule_of(here, to="target", delivery="at_least_once"), rule_of(other)]
        sidecar = await (await joint(source.url, *rules, connections=connections)).ready()
        os.kill(target.pid, signal.SIGSTOP)
        try:
            await until(lambda: stands_still(target.pid))
            await here.load.burst(100)

            async def has_work() -> bool:
                return bool((await sidecar.status())["rules"][0]["measures"]["in_flight"])

            await until(has_work)
            sidecar.process.send(signal.SIGTERM)
            await until(lambda: sidecar.events("rule.stopped", rule="O") == 1)
            sidecar.process.send(signal.SIGTERM)
            assert await sidecar.process.ended() == 1
        finally:
            os.kill(target.pid, signal.SIGCONT)


@pytest.mark.exhaustive
async def test_a_worker_that_is_refused_refuses_the_start(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    here = await scenes(peer, unique_name, 1)
    queue = unique_name("queue")
    await peer.create_stream(name=queue, subjects=[f"{queue}.>"], retention="workqueue")
    watching = {"name": "watching", "stream": queue, "republish": {"src": ">", "dest": f"d{queue}.>"}}
    sidecar = await joint(url, *map(rule_of, here), watching)
    assert await sidecar.process.ended() == 2
    refused = await sidecar.process.said("sidecar.refused")
    assert refused["code"] == "rule_refused"
    assert "is a work-queue stream" in refused["reason"]
    assert not await here[0].consumers(), "the rule that is fine was not started either"


@pytest.mark.exhaustive
async def test_a_loop_through_rules_of_different_workers_is_seen(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    a, b = unique_name("a"), unique_name("b")
    await peer.create_stream(name=a, subjects=[f"{a}.>"])
    there = {"name": "there", "stream": a, "republish": {"src": f"{a}.>", "dest": f"{b}.>"}}
    back = {"name": "back", "stream": b, "republish": {"src": f"{b}.>", "dest": f"{a}.>"}}
    # A stream that appears later.
    late = await (await joint(url, there, back)).ready()
    assert [rule["state"] for rule in (await late.status())["rules"]] == ["ready", "waiting"]
    await peer.create_stream(name=b, subjects=[f"{b}.>"])
    assert await late.process.ended() == 2
    assert "rule 'back': loop: stream" in (await late.process.said("sidecar.ended"))["reason"]
    # And at the start.
    sidecar = await joint(url, there, back)
    assert await sidecar.process.ended() == 2
    assert "rule 'there': loop: stream" in (await sidecar.process.said("sidecar.refused"))["reason"]


@pytest.mark.exhaustive
async def test_a_rule_that_fails_ends_the_whole_sidecar(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    """As it does in one process; the other worker finishes what it has in hand."""
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    (other,) = await scenes(peer, unique_name, 1)
    here = await Copies.make(peer, unique_name("fails"), target={"max_msg_size": 400})
    sidecar = await (await joint(url, rule_of(other), here.rule())).ready()
    await other.load.burst(100)
    await peer.store(f"{here.name}.x".encode(), b"x" * 500)
    assert await sidecar.process.ended() == 2
    assert "refuses message 1 of stream" in (await sidecar.process.said("sidecar.ended"))["reason"]
    assert sidecar.events("rule.stopped", rule=other.name) == 1
    assert not sidecar.events("worker.ended")
    await everything_once([other], 100)


@pytest.mark.exhaustive
@pytest.mark.unstoppable
async def test_a_worker_that_does_not_answer(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 2)
    sidecar = await (await joint(url, *map(rule_of, here))).ready()
    pid = (await sidecar.pids())[2]
    os.kill(pid, signal.SIGSTOP)
    try:
        await until(lambda: stands_still(pid))
        code, text = await sidecar.get("/livez")
        assert code == 503
        assert "[-] worker 2: has not answered for " in text
        code, text = await sidecar.get("/readyz")
        assert code == 503
        assert f"[+] rule {here[0].name}\n[-] rule {here[1].name}: worker 2 has not answered for " in text
        state = await sidecar.status()
        assert not state["ready"]
        assert [worker["state"] for worker in state["workers"]] == ["working", "silent"]
        assert [rule["ready"] for rule in state["rules"]] == [True, False]
        assert [rule["condition"] for rule in state["rules"]] == ["ready", "silent"]
        seen = await sidecar.scrape()
        assert [seen.value("worker_up", worker=number) for number in "12"] == [1, 0]
        assert [seen.value("rule_ready", rule=scene.name, kind="republish") for scene in here] == [1, 0]
        assert seen.value("ready") == 0
        await here[0].load.burst(100)
        await everything_once(here[:1], 100)
    finally:
        os.kill(pid, signal.SIGCONT)

    async def lives() -> bool:
        return (await sidecar.get("/livez"))[0] == (await sidecar.get("/readyz"))[0] == 200

    await until(lives)
    assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
async def test_workers_of_replicas_lead_their_own_rules(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 2)
    leases = {"leadership": {"bucket": unique_name("LEASES"), "ttl": 0.5}}
    rules = [rule_of(scene, delivery="at_least_once") for scene in here]
    one = await (await joint(url, *rules, **leases)).ready()
    await until(lambda: one.events("leadership.leads") == 2)
    other = await (await joint(url, *rules, **leases)).ready()
    assert [rule["state"] for rule in (await other.status())["rules"]] == ["standby", "standby"]
    for scene in here:
        await scene.load.burst(100)
        await scene.bridged.until_sequence(100)
    os.kill((await one.pids())[2], signal.SIGKILL)
    # Whoever it is: somebody leads the rule again, and nobody leads the first one anew.
    await until(lambda: one.events("leadership.leads") + other.events("leadership.leads") == 3)
    for scene in here:
        await scene.load.burst(100)
        await scene.bridged.until_sequence(200)
    assert here[0].bridged.sequences == list(range(1, 201))
    assert set(here[1].bridged.sequences) == set(range(1, 201))
    assert [await one.process.stop(), await other.process.stop()] == [0, 0]


@pytest.mark.exhaustive
async def test_every_process_exports_for_itself(
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    joint: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 2)
    async with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        sidecar = await (await joint(url, *map(rule_of, here), name="edge")).ready()
        me = f"edge@{socket.gethostname()}"
        await until(lambda: receiver.instances == {me, f"{me}/worker-1", f"{me}/worker-2"})
        assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
async def test_one_core_is_one_process(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 2)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        sidecar = await joint(url, *map(rule_of, here), workers="auto")
    finally:
        os.sched_setaffinity(0, cores)
    await sidecar.ready()
    assert "workers" not in await sidecar.process.said("sidecar.starting")
    assert not sidecar.events("worker.started")
    state = await sidecar.status()
    assert "workers" not in state
    assert not any("worker" in rule for rule in state["rules"])
    assert not children_of(sidecar.process.pid)
    assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
async def test_a_worker_that_is_gone_keeps_nobody_from_an_answer(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    here = await scenes(await raw_peer(url), unique_name, 2)
    sidecar = await (await joint(url, *map(rule_of, here))).ready()
    async with asyncio.timeout(LIMIT):
        await sidecar.kill_worker(1)
        state = json.loads((await sidecar.get("/status"))[1])
        assert {rule["name"] for rule in state["rules"]} == {scene.name for scene in here}
        assert (await sidecar.get("/livez"))[0] == 200, "it is started again: killing the rest would not help"
        await sidecar.back()
    assert await sidecar.process.stop() == 0
