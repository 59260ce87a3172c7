"""Another configuration for several workers at once: taken by all of them or by none."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.servers import NativeServer, SharedServers
from tests.live.joint_sidecar import JointSidecar, joint_sidecars
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.sidecar_process import Scene, Seen
from tests.live.stopped_process import stands_still
from tests.live.until import until

Name = Callable[[str], str]
Start = Callable[..., Awaitable[JointSidecar]]


@pytest.fixture
async def joint(tmp_path: Path) -> AsyncIterator[Start]:
    async with joint_sidecars(tmp_path) as start:
        yield start


def rule_of(scene: Scene, **more: Any) -> dict[str, Any]:
    return scene.rule(name=scene.name, **more)


def moved(scene: Scene, dest: str, **more: Any) -> dict[str, Any]:
    """The rule with another destination."""
    return rule_of(scene, republish={"src": f"{scene.name}.>", "dest": f"{dest}{scene.name}.>"}, **more)


async def seen_at(peer: RawPeer, scene: Scene, dest: str) -> Seen:
    return await Seen.of(peer, f"{dest}{scene.name}.>")


async def test_rules_are_added_changed_and_removed_and_the_others_go_on(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    a, b, c, d, e = [await Scene.make(peer, unique_name("joint")) for _ in range(5)]
    sidecar = await (await joint(url, rule_of(a), rule_of(b), rule_of(c), rule_of(d))).ready()
    assert [rule["worker"] for rule in (await sidecar.status())["rules"]] == [1, 2, 1, 2]
    before = await sidecar.pids()
    elsewhere = await seen_at(peer, b, "elsewhere")
    for scene in (a, b, c, d):
        await scene.load.burst(50)
        await scene.bridged.until_sequence(50)
    # a stays, b is changed, c goes, d stays, e is new.
    answer = await sidecar.reload(rule_of(a), moved(b, "elsewhere"), rule_of(d), rule_of(e))
    assert (answer["result"], answer["changed"]) == ("applied", [b.name, e.name, c.name])
    state = await sidecar.status()
    assert {rule["name"]: rule["worker"] for rule in state["rules"]} == {a.name: 1, b.name: 2, d.name: 2, e.name: 1}
    assert state["config"]["last_reload"]["result"] == "applied"
    assert await sidecar.pids() == before
    for scene in (a, b, d, e):
        await scene.load.burst(50)
    for scene in (a, d):
        await scene.bridged.until_sequence(100)
        assert scene.bridged.sequences == list(range(1, 101))
        assert (sidecar.events("rule.ready", rule=scene.name), sidecar.events("rule.stopped", rule=scene.name)) == (
            1,
            0,
        )
    await e.bridged.until_sequence(50)
    await elsewhere.until_sequence(100)
    assert b.bridged.sequences + elsewhere.sequences == list(range(1, 101))
    assert (await sidecar.scrape()).value("config_reloads_total", result="applied") == 1
    assert (await sidecar.reload(rule_of(a), moved(b, "elsewhere"), rule_of(d), rule_of(e)))["result"] == "unchanged"
    # A worker whose last rule goes has no process; one that gets a rule again has.
    assert (await sidecar.reload(rule_of(b)))["result"] == "applied"
    assert list(await sidecar.pids()) == [2]
    assert (await sidecar.reload(rule_of(b), rule_of(a)))["result"] == "applied"
    assert (await sidecar.pids()).keys() == {1, 2}
    assert (await sidecar.pids())[1] != before[1]
    await a.load.burst(50)
    await a.bridged.until_sequence(150)
    assert await sidecar.process.stop() == 0
    assert not sidecar.events("worker.ended"), "all of that was wanted"


@pytest.mark.exhaustive
async def test_what_one_worker_cannot_take_no_worker_takes(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    a, b = [await Scene.make(peer, unique_name("joint")) for _ in range(2)]
    queue = unique_name("queue")
    await peer.create_stream(name=queue, subjects=[f"{queue}.>"], retention="workqueue")
    sidecar = await (await joint(url, rule_of(a), rule_of(b))).ready()
    before = await sidecar.pids()
    watching = {"name": "watching", "stream": queue, "republish": {"src": ">", "dest": f"d{queue}.>"}}
    away = {"default": {"servers": [url]}, "away": {"servers": ["nats://127.0.0.1:1"], "connect_timeout": 0.5}}
    for rules, more, reason in (
        # one worker looks at its rule on the server
        ([moved(a, "elsewhere"), rule_of(b), watching], {}, "is a work-queue stream"),
        ([moved(a, "elsewhere"), rule_of(b, stream="NONE")], {}, "it is at work"),
        # only the rules of both together are wrong
        (
            [moved(a, "elsewhere"), rule_of(b, republish={"src": f"{b.name}.>", "dest": f"{a.name}.>"}),
             rule_of(a) | {"name": "back", "republish": {"src": f"{a.name}.>", "dest": f"{b.name}.>"}}],
            {}, "loop: stream",
        ),
        ([moved(a, "elsewhere"), rule_of(b, to="away")], {"connections": away}, "away"),
        ([moved(a, "elsewhere"), rule_of(b)], {"workers": 3}, "workers: read at the start only"),
    ):  # fmt: skip
        answer = await sidecar.reload(*rules, **more)
        assert answer["result"] == "refused"
        assert reason.replace("it is at work", "the rule is at work") in answer["reason"], answer["reason"]
    assert await sidecar.pids() == before
    for scene in (a, b):
        await scene.load.burst(50)
        await scene.bridged.until_sequence(50)
        assert scene.bridged.sequences == list(range(1, 51))
        assert (sidecar.events("rule.ready", rule=scene.name), sidecar.events("rule.stopped", rule=scene.name)) == (
            1,
            0,
        )
    assert not (await peer.api(f"CONSUMER.LIST.{queue}"))["total"]
    assert (await sidecar.reload(rule_of(b), rule_of(a)))["result"] == "unchanged", (
        "it is not held against the next one"
    )
    assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
@pytest.mark.unstoppable
async def test_a_worker_that_dies_in_the_middle_takes_all_of_it_back(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer, joint: Start
) -> None:
    async with native_server("2.15.1") as source, native_server("2.15.1") as target:
        peer = await raw_peer(source.url)
        a = await Scene.make(peer, "A", await raw_peer(target.url))
        b = await Scene.make(peer, "B")
        elsewhere = await seen_at(peer, b, "elsewhere")
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = rule_of(a, to="target", delivery="at_least_once")
        sidecar = await (await joint(source.url, rule, rule_of(b), connections=connections)).ready()
        pids = await sidecar.pids()
        os.kill(target.pid, signal.SIGSTOP)
        try:
            await until(lambda: stands_still(target.pid))
            await a.load.burst(100)

            async def all_taken() -> bool:
                return bool((await sidecar.status())["rules"][0]["measures"]["in_flight"] == 100)

            await until(all_taken)
            # a cannot finish what it has in hand, so that all are in the middle; b was stopped already.
            changed = rule | {"exclude": ["A.never"]}
            reload = asyncio.create_task(sidecar.reload(changed, moved(b, "elsewhere"), connections=connections))
            await until(lambda: sidecar.events("rule.stopped", rule="B") == 1)
            await sidecar.kill_worker(2)
        finally:
            os.kill(target.pid, signal.SIGCONT)
        answer = await reload
        assert answer["result"] == "refused"
        assert "worker 2" in answer["reason"]
        assert "rules were stopped and started again as they were" in answer["reason"]
        await sidecar.back()
        assert (await sidecar.pids())[1] == pids[1]
        for scene in (a, b):
            await scene.load.burst(50)
            await scene.bridged.until_sequence(scene.load.published)
        # The frozen server's connection was given up meanwhile, so what it had taken was sent again.
        assert set(a.bridged.sequences) == set(range(1, 151))
        assert b.bridged.sequences == list(range(1, 51))
        assert not elsewhere.messages
        # And the next time it is taken.
        assert (await sidecar.reload(changed, moved(b, "elsewhere"), connections=connections))["result"] == "applied"
        await b.load.burst(50)
        await elsewhere.until_sequence(100)
        assert b.bridged.sequences + elsewhere.sequences == list(range(1, 101))
        assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
async def test_a_worker_that_died_after_it_starts_with_what_was_taken(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    a, b = [await Scene.make(peer, unique_name("joint")) for _ in range(2)]
    elsewhere = await seen_at(peer, b, "elsewhere")
    sidecar = await (await joint(url, rule_of(a), rule_of(b))).ready()
    assert (await sidecar.reload(rule_of(a), moved(b, "elsewhere")))["result"] == "applied"
    await sidecar.kill_worker(2)
    await sidecar.back()
    await b.load.burst(50)
    await elsewhere.until_sequence(50)
    assert not b.bridged.messages
    assert await sidecar.process.stop() == 0


@pytest.mark.exhaustive
async def test_a_hangup_and_the_watched_file(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, joint: Start
) -> None:
    url = await servers.url("2.15.1")
    peer = await raw_peer(url)
    a, b = [await Scene.make(peer, unique_name("joint")) for _ in range(2)]
    sidecar = await (await joint(url, rule_of(a), rule_of(b))).ready()
    sidecar.write(rule_of(a), moved(b, "elsewhere"), reload={"watch": True})
    sidecar.process.send(signal.SIGHUP)
    applied = await sidecar.process.said("reload.applied")
    assert (applied["asked_by"], applied["rules"]) == ("SIGHUP", [b.name])
    sidecar.write(rule_of(a), rule_of(b), reload={"watch": True})
    await until(lambda: sidecar.events("reload.applied", asked_by="file changed") == 1)
    for scene in (a, b):
        await scene.load.burst(50)
        await scene.bridged.until_sequence(50)
    assert await sidecar.process.stop() == 0
