"""Several replicas of a sidecar: one works on a rule, another takes over, and no two ever write."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.live.cut_wire import cut_wire
from tests.live.leadership.replicas import LONG, EveryKind, one_behind_another, replicas, under_load
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import SidecarProcess
from tests.live.tiers import EACH
from tests.live.until import until

SHARE = {"share": True}


async def test_a_clean_stop_hands_over_under_load(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("handover"))
    async with one_behind_another(tmp_path, url, here, ttl=LONG) as (group, first, second):
        async with under_load(here):
            await here.least.count(500)
            await here.report_something()
            assert await first.stop() == 0, first.log
            await group.leads(second)
            await here.report_something()
            await here.least.count(len(here.least.messages) + 500)
        end = await here.end()
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=False)


# In `make test` the other tests have the newest server.
@pytest.mark.parametrize(
    "version", ["2.9.10", *(pytest.param(newer, marks=pytest.mark.exhaustive) for newer in ("2.10.27", "2.15.3"))]
)
async def test_a_killed_leader_is_replaced(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    here = await EveryKind.make(await raw_peer(url), unique_name("killed"))
    async with one_behind_another(tmp_path, url, here) as (group, first, second):
        async with under_load(here):
            await here.least.count(500)
            await first.kill()
            await group.leads(second)
            await here.report_something()
        end = await here.end()
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=True)


@pytest.mark.unstoppable
async def test_a_paused_leader_writes_nothing_after_it_was_replaced(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("paused"))
    async with one_behind_another(tmp_path, url, here) as (group, first, second):
        async with under_load(here):
            await here.least.count(500)
            first.send(signal.SIGSTOP)
            await group.leads(second)
            await here.report_something()
        end = await here.end()
        seen = len(here.once.messages), len(here.least.messages), len(here.reported.messages)
        first.send(signal.SIGCONT)
        await group.lost(first)
        # A stop closes its connections, behind whatever was written to them.
        assert await first.stop() == 0, first.log
        await here.peer.client.flush()
        assert (len(here.once.messages), len(here.least.messages), len(here.reported.messages)) == seen
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=True)


async def test_a_leader_that_is_cut_off_is_replaced_and_returns_on_standby(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("cut"))
    async with cut_wire(url) as wire, one_behind_another(tmp_path, url, here, wire.url) as (group, first, second):
        async with under_load(here):
            await here.least.count(500)
            wire.hold_back()
            wire.cut()
            await group.leads(second)
            wire.let_through()
            await group.lost(first)
            # It may lead again, when this one stops.
            assert await second.stop() == 0, second.log
            await group.leads(first, times=2)
            await here.report_something()
        end = await here.end()
        assert await first.stop() == 0, first.log
    await here.keep_what_they_promise(end, crashed=True)


async def test_replicas_outlive_a_restart_of_the_server(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server(newest_version) as server:
        here = await EveryKind.make(await raw_peer(server.url), "restart")
        async with replicas(tmp_path, server.url, here.name, here.rules) as group:
            await group.free(here.peer)
            for _ in range(2):
                await group.start()
            await until(lambda: all(group.terms().values()))
            await here.load.burst(2000)
            server.restart()
            here = await here.listening_again(await raw_peer(server.url))
            await here.load.burst(2000)
            end = await here.end()
            for process in group.processes:
                assert await process.stop() == 0, process.log
        copied, mirrored = await here.copied(end)
        assert copied == mirrored == list(range(1, end + 1))
        assert here.once.sequences == sorted(set(here.once.sequences))


@pytest.mark.exhaustive
async def test_of_three_that_start_together_one_works_on_a_rule(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.10.27")
    here = await EveryKind.make(await raw_peer(url), unique_name("race"))
    # The bucket is theirs to make, and what is not there is waited for as long as a holder that is silent.
    async with replicas(tmp_path, url, here.name, here.rules, ttl=6.0) as group:
        for _ in range(3):
            await group.start()  # each is ready, whether it leads or is on standby
        await until(lambda: set(group.terms().values()) == {1})
        await here.load.burst(2000)
        end = await here.end()
        for process in group.processes:
            assert await process.stop() == 0, process.log
    await here.keep_what_they_promise(end, crashed=False)


@pytest.mark.parametrize("version", EACH)
async def test_replicas_share_the_rules_without_a_loss(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    here = await EveryKind.make(await raw_peer(url), unique_name("share"))
    rules = [rule for rule in here.rules if rule["name"] != "advisories"]
    async with replicas(tmp_path, url, here.name, rules, LONG) as group:
        await group.free(here.peer)
        first = await group.start(leadership=SHARE)
        await group.leads(first)
        async with under_load(here):
            await here.least.count(500)
            second = await group.start(leadership=SHARE)
            await until(lambda: (len(led(first)), len(led(second))) == (3, 3))
            await here.least.count(len(here.least.messages) + 500)
            assert await first.stop() == 0, first.log
            await until(lambda: len(led(second)) == len(rules))
        end = await here.end()
        assert await second.stop() == 0, second.log
    await here.keep_what_they_promise(end, crashed=False)


async def test_the_rules_of_a_killed_replica_are_shared_by_the_others(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("shared"))
    rules = [rule for rule in here.rules if rule["name"] != "advisories"]
    async with replicas(tmp_path, url, here.name, rules) as group:
        await group.free(here.peer)
        first, second, third = [await group.start(leadership=SHARE) for _ in range(3)]
        await until(lambda: evenly(rules, first, second, third))
        async with under_load(here):
            await here.least.count(500)
            await first.kill()
            await until(lambda: evenly(rules, second, third))
        end = await here.end()
        assert [await process.stop() for process in (second, third)] == [0, 0], (second.log, third.log)
    await here.keep_what_they_promise(end, crashed=True)


async def test_a_rule_that_would_lose_messages_does_not_move(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    here = await EveryKind.make(await raw_peer(url), unique_name("stays"))
    fleeting = {"name": "fleeting", "stream": here.name, "durable": False}
    fleeting["republish"] = {"src": f"{here.name}.>", "dest": f"fleeting{here.name}.>"}
    announced = await here.peer.collect(f"$KV.{here.name}.lease.nats-bridge.$replicas")
    async with replicas(tmp_path, url, here.name, [fleeting, here.rules[-1]]) as group:
        await group.free(here.peer)
        first = await group.start(leadership=SHARE)
        await group.leads(first)
        second = await group.start(leadership=SHARE)
        await until(lambda: sum(b'"leads": 2' in payload for *_, payload in announced.messages) >= 5)
        assert (len(led(first)), len(led(second))) == (2, 0)
        assert [await process.stop() for process in (second, first)] == [0, 0], (second.log, first.log)


def led(process: SidecarProcess) -> set[str]:
    """The rules that a process leads, by its log."""
    rules = set()
    for entry in process.entries:
        match entry["event"]:
            case "rule.ready":
                rules.add(entry["rule"])
            case "leadership.released" | "leadership.lost":
                rules.discard(entry["rule"])
    return rules


def evenly(rules: Sequence[object], *processes: SidecarProcess) -> bool:
    """Whether the processes lead all rules, none two more than another."""
    counts = [len(led(process)) for process in processes]
    return sum(counts) == len(rules) and max(counts) - min(counts) <= 1
