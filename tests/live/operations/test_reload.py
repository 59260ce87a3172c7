"""The configuration changes while rules run: all of it or nothing, and unchanged rules keep running."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from nats_bridge.app import sidecar
from nats_bridge.app.reload import coordinator as reloading_module
from nats_bridge.app.reload import file_watch
from nats_bridge.app.reload.changeover import Changeover
from nats_bridge.app.reload.file_watch import content_hash
from nats_bridge.rules.supervisor import RuleSupervisor
from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.leadership.leases import LONG, free, lease
from tests.live.operations.reloading import reloading
from tests.live.processes import stands_still
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load, Scene, Seen, differing
from tests.live.sidecars import listeners_of
from tests.live.until import LIMIT, until


def to(here: Scene, dest: str, **more: Any) -> dict[str, Any]:
    """A rule `other` on the scene's stream with a destination of its own."""
    republish = {"src": f"{here.name}.>", "dest": f"{dest}.>"}
    return {"name": "other", "stream": here.name, "republish": republish, **more}


# -- changed rules resume where they were, next to unchanged ones ---------------------------------------------------


@pytest.mark.parametrize("delivery", ["at_least_once", pytest.param("at_most_once", marks=pytest.mark.exhaustive)])
async def test_reloads_in_a_row_under_load(
    delivery: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """ADR-28: the republish configuration may be edited; every message goes to the one destination or the other."""
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("row"))
    dests = [unique_name("one"), unique_name("two")]
    seen = [await Seen.of(peer, f"{dest}.>") for dest in dests]
    unchanged = here.rule(delivery=delivery, start="first")
    load = Load(await raw_peer(url), here.name)
    first = to(here, dests[0], delivery=delivery, start="first")
    async with reloading(url, tmp_path, unchanged, first) as bridge:
        run, before = bridge.supervisor("rule").run, listeners_of(bridge.sidecar.connections["default"])
        # Never far ahead: the publisher shares its event loop with the sidecar.
        flowing = asyncio.create_task(load.flow(here.bridged, ahead=100))
        for number in range(1, 5):
            await seen[(number - 1) % 2].count(len(seen[(number - 1) % 2].messages) + 50)
            facts = await bridge.applied(unchanged, to(here, dests[number % 2], delivery=delivery, start="first"))
            assert facts.changed == ("other",)
        flowing.cancel()
        await asyncio.gather(flowing, return_exceptions=True)
        await load._peer.client.flushed()
        end = await here.end()
        await here.bridged.until_sequence(end)
        await seen[0].until_sequence(end)
        assert bridge.supervisor("rule").run is run
        # Counts continue over runs, and nothing of the old ones is left.
        await until(lambda: bridge.supervisor("other").counters()["republished"] == end)
        assert listeners_of(bridge.sidecar.connections["default"]) == before
        assert bridge.sidecar.reloader.results["applied"] == 4
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []
    assert sorted(seen[0].sequences + seen[1].sequences) == list(range(1, end + 1))
    for each in seen:
        assert each.sequences == sorted(each.sequences)
        assert differing(each, here.native) == []


async def test_every_edit_resumes_from_the_same_position(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("edits"))
    steps: list[dict[str, Any]] = [
        {},
        {"delivery": "at_least_once"},
        {"delivery": "at_least_once", "exclude": [f"{here.name}.private"]},
        {"republish": {"src": f"{here.name}.*", "dest": f"bridge{here.name}.$1"}},
        {"republish": {"src": f"{here.name}.>", "dest": f"bridge{here.name}.>", "headers_only": True}},
        {"dialect": "2.15"},
        {"start": "first"},
    ]
    async with reloading(url, tmp_path, here.rule()) as bridge:
        for step in steps:
            facts = await bridge.reload(here.rule(**step))
            assert facts.result == ("applied" if step else "unchanged")
            for number in range(5):
                await peer.store(f"{here.name}.s{number}".encode(), b"x")
        await here.bridged.until_sequence(5 * len(steps))
        # While no replica runs the rule, messages wait for it.
        await bridge.applied(here.rule(name="elsewhere", durable=False))
        await peer.store(f"{here.name}.s".encode(), b"x")
        await here.bridged.until_sequence(5 * len(steps) + 1)
    assert here.bridged.sequences == list(range(1, 5 * len(steps) + 2))


async def test_copying_next_to_a_changed_rule_and_changed_itself(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    copies = await Copies.make(peer, unique_name("copies"))
    steady = await Copies.make(peer, unique_name("steady"))
    load, more = Load(await raw_peer(url), copies.name), Load(await raw_peer(url), steady.name)
    unchanged = steady.rule(name="steady")
    async with reloading(url, tmp_path, unchanged, copies.rule()) as bridge:
        run = bridge.supervisor("steady").run
        for number in range(4):
            flowing = [asyncio.create_task(each.burst(500)) for each in (load, more)]
            await copies.holds(1 + 300 * number)
            # What is excluded never comes: the copies stay comparable.
            await bridge.applied(unchanged, copies.rule(entry={"exclude": [f"never.{number}"]}))
            await asyncio.gather(*flowing)
        for each in (copies, steady):
            await each.peer.store(f"{each.name}.end".encode())
            await each.holds(await each.source_end())
        assert bridge.supervisor("steady").run is run
    await copies.are_exact()
    await steady.are_exact()


async def test_a_source_that_stores_elsewhere_restarts(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """As native sources do: the target's records name what was selected and where it went."""
    url = await servers.url(newest_version)
    copies = await Copies.make(await raw_peer(url), unique_name("again"))
    for _ in range(3):
        await copies.peer.store(f"{copies.name}.x".encode())
    async with reloading(url, tmp_path, copies.rule()) as bridge:
        await copies.holds(3)
        elsewhere = [{"src": f"{copies.name}.>", "dest": f"{copies.target}.elsewhere.>"}]
        with capture_logs() as log:
            await bridge.applied(copies.rule(entry={"subject_transforms": elsewhere}))
        assert [line["source"] for line in log if line["event"] == "rule.copied_again"] == [copies.name]
        await copies.holds(6)
    assert await copies.source_sequences() == [1, 2, 3, 1, 2, 3]


async def test_a_rule_added_removed_and_renamed(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("coming"))
    dest = unique_name("dest")
    seen = await Seen.of(peer, f"{dest}.>")
    async with reloading(url, tmp_path, here.rule()) as bridge:
        assert (await bridge.applied(here.rule(), to(here, dest))).changed == ("other",)
        await peer.store(f"{here.name}.x".encode())
        await seen.until_sequence(1)
        await here.bridged.until_sequence(1)  # or the position that is left could be that of before
        assert (await bridge.applied(to(here, dest))).changed == ("rule",)
        assert [supervisor.rule.name for supervisor in bridge.sidecar.supervisors] == ["other"]
        await peer.store(f"{here.name}.x".encode())
        await seen.until_sequence(2)
        # The removed rule's position stays.
        assert (await here.durable())["delivered"]["stream_seq"] == 1
        # Another name is another rule, with a position of its own.
        await bridge.applied(to(here, dest) | {"name": "renamed"})
        await peer.store(f"{here.name}.x".encode())
        await seen.until_sequence(3)
        # With its name comes the position back.
        await bridge.applied(here.rule())
        await here.bridged.until_sequence(3)
    assert seen.sequences == [1, 2, 3]
    assert here.bridged.sequences == [1, 2, 3]


async def test_a_new_rule_waits_for_its_stream(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("there"))
    late = unique_name("late")
    rule = {"name": "late", "stream": late, "republish": {"src": ">", "dest": f"out{late}.>"}, "start": "first"}
    seen = await Seen.of(peer, f"out{late}.>")
    async with reloading(url, tmp_path, here.rule()) as bridge:
        await bridge.applied(here.rule(), rule)
        assert bridge.supervisor("late").state == "waiting"
        await bridge.applied(here.rule(durable=False), rule)  # which the waiting rule outlives
        await peer.create_stream(name=late, subjects=[f"{late}.>"])
        await peer.store(f"{late}.x".encode())
        await seen.count(1)
        await until(lambda: bridge.supervisor("late").ready)


async def test_every_kind_leaves_nothing_on_the_connection(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("kinds"))
    copies = await Copies.make(peer, unique_name("kinds"))
    kept = unique_name("kept")
    await peer.create_stream(name=kept, subjects=[f"{kept}.>"])

    def rules(version: str) -> list[dict[str, Any]]:
        transform = {"src": f"in{kept}.*", "dest": f"{kept}.{version}.$1"}
        advisories = {"src": "$JS.EVENT.ADVISORY.CONSUMER.*.*.*", "dest": f"adv{kept}.{version}"}
        return [
            to(here, f"a{version}{kept}", delivery="at_least_once"),
            to(here, f"b{version}{kept}", durable=False) | {"name": "ephemeral"},
            copies.rule(name="copies", entry={"exclude": [f"never.{version}"]}),
            {"name": "ingress", "kind": "subject_transform", "stream": kept, "subject_transform": transform},
            {"name": "advisories", "kind": "advisories", "republish": advisories, "attach_message": True},
        ]

    async with reloading(url, tmp_path, *rules("v0")) as bridge:
        connection = bridge.sidecar.connections["default"]
        # Of what belongs to a single run nothing may be there twice; requests are answered through one subscription.
        listeners, subscriptions = listeners_of(connection), len(connection.client._subs)
        for number in range(1, 4):
            assert len((await bridge.applied(*rules(f"v{number}"))).changed) == 5
            assert bridge.sidecar.connections["default"] is connection
            assert (listeners_of(connection), len(connection.client._subs)) == (listeners, subscriptions)
        answer = await peer.store(f"in{kept}.x".encode())
        assert answer["stream"] == kept
        await bridge.applied(here.rule())
        one_rule = listeners_of(connection)
        await bridge.applied(here.rule(), *rules("v0"))
        await bridge.applied(here.rule())
        assert listeners_of(connection) == one_rule


async def test_a_connection_that_leads_elsewhere(native_server: Servers, raw_peer: OpenPeer, tmp_path: Path) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as one, native_server("2.10.27") as two:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(one.url))
        elsewhere = await Seen.of(await raw_peer(two.url), "bridgeS.>")
        there = await Seen.of(here.peer, "plainS.>")
        default = {"servers": [source.url]}
        rules = [here.rule(to="target"), to(here, "plainS")]
        before = {"default": default, "target": {"servers": [one.url]}}
        async with reloading(source.url, tmp_path, *rules, connections=before) as bridge:
            old, run = bridge.sidecar.connections["target"], bridge.supervisor("other").run
            await here.peer.store(b"S.x")
            await here.bridged.until_sequence(1)
            after = {"default": default, "target": {"servers": [two.url]}}
            assert (await bridge.applied(*rules, connections=after)).changed == ("rule",)
            await here.peer.store(b"S.x")
            await elsewhere.until_sequence(2)
            await there.until_sequence(2)
            assert old.client.is_closed
            assert bridge.supervisor("other").run is run
            # A connection that no rule needs any more is closed.
            new = bridge.sidecar.connections["target"]
            await bridge.applied(to(here, "plainS"), connections=after)
            assert new.client.is_closed
            assert list(bridge.sidecar.connections) == ["default"]
        assert (here.bridged.sequences, elsewhere.sequences, there.sequences) == ([1], [2], [1, 2])


async def test_a_changed_rule_keeps_its_lead(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """Another replica may not have the new file yet."""
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("lead"))
    more = {"leadership": {"bucket": unique_name("leases"), "ttl": LONG}}
    await free(here.peer, more["leadership"]["bucket"])
    async with reloading(url, tmp_path, here.rule(), **more) as bridge:
        await until(lambda: bridge.supervisor("rule").ready and bridge.supervisor("rule").leader is True)
        term = bridge.supervisor("rule").term
        await here.peer.store(f"{here.name}.x".encode())
        await here.bridged.until_sequence(1)
        await bridge.applied(here.rule(exclude=[f"{here.name}.never"]), **more)
        await until(lambda: bridge.supervisor("rule").ready)
        await here.peer.store(f"{here.name}.x".encode())
        await here.bridged.until_sequence(2)
        assert bridge.supervisor("rule").term is term
        facts = await bridge.reload(here.rule(), leadership={**more["leadership"], "ttl": LONG - 1})
        assert "leadership: read only at the start" in facts.reason
    assert here.bridged.sequences == [1, 2]


async def test_over_http(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("http"))
    more = {"http": {"listen": "127.0.0.1:0"}}
    async with reloading(url, tmp_path, here.rule(), **more) as bridge, aiohttp.ClientSession() as session:
        assert bridge.sidecar.http is not None
        base = "http://{}:{}".format(*bridge.sidecar.http)

        async def config() -> dict[str, Any]:
            async with session.get(f"{base}/status") as answer:
                reported: dict[str, Any] = (await answer.json())["config"]
                return reported

        before = await config()
        assert before == {
            "path": str(bridge.path),
            "hash": content_hash(bridge.path),
            "loaded_at": before["loaded_at"],
            "last_reload": None,
        }
        bridge.write(here.rule(), to(here, "dest"), **more)
        async with session.post(f"{base}/-/reload") as answer:
            assert (answer.status, (await answer.json())["result"]) == (200, "applied")
        after = await config()
        assert after["hash"] == content_hash(bridge.path) != before["hash"]
        assert after["last_reload"]["changed"] == ["other"]
        assert after["last_reload"]["asked_by"] == "requested over HTTP"
        bridge.path.write_text("rules: [\n", "utf-8")
        async with session.post(f"{base}/-/reload") as answer:
            assert (answer.status, (await answer.json())["result"]) == (409, "refused")
        assert (await config())["hash"] == after["hash"]


# -- what is refused changes nothing -----------------------------------------------------------------------------------


async def test_refused_configurations_change_nothing(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path, native_server: Servers
) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("refused"))
    other = unique_name("other")
    await peer.create_stream(name=other, subjects=[f"{other}.>"])
    dest, away = unique_name("dest"), unique_name("away")
    good, changed = here.rule(), to(here, dest)
    with native_server("2.15.3") as gone:
        nowhere = gone.url
    loop = [
        good,
        {"name": "there", "stream": here.name, "republish": {"src": ">", "dest": f"{other}.>"}},
        {"name": "back", "stream": other, "republish": {"src": ">", "dest": f"{here.name}.>"}},
    ]
    connections = {"default": {"servers": [url]}, "gone": {"servers": [nowhere], "connect_timeout": 0.5}}
    refusals: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
        ([good, changed | {"stream": f"{other}s"}], {}, f"stream '{other}s' does not exist"),
        ([good, to(here, f"{here.name}.x")], {}, "forms a cycle"),
        (loop, {}, "loop: stream"),
        ([good, to(here, away, to="gone")], {"connections": connections}, "connection 'gone': no server answers"),
        ([good, changed], {"name": "renamed"}, "bridge.yaml: name: read only at the start"),
        ([good], {"http": {"listen": "127.0.0.1:0"}}, "bridge.yaml: http: read only at the start"),
        ([good | {"kind": "nonsense"}], {}, "rules[0].kind"),
        ([], {}, "no rules"),
    ]
    async with reloading(url, tmp_path, good, changed) as bridge:
        runs, opened, file_hash = bridge.sidecar.runs, bridge.sidecar.connections, bridge.sidecar.reloader.file_hash
        for rules, more, reason in refusals:
            facts = await bridge.reload(*rules, **more)
            assert (facts.result, facts.changed) == ("refused", ())
            assert reason in facts.reason
            assert bridge.sidecar.reloader.last is facts
        bridge.path.write_text("rules:\n  - name: [\n", "utf-8")
        facts = await bridge.sidecar.reload("test")
        assert f"{bridge.path}:" in facts.reason
        assert facts.as_dict()["result"] == "refused"
        assert (bridge.sidecar.runs, bridge.sidecar.connections) == (runs, opened)
        assert bridge.sidecar.reloader.file_hash == file_hash
        assert len(bridge.sidecar._connections) == 1
        end = await here.end()
        await here.bridged.until_sequence(end)
        assert bridge.sidecar.error is None
    assert here.bridged.sequences == [end]


async def test_a_refused_configuration_leaves_no_connection_open(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("closed"))
    connections = {"default": {"servers": [url]}, "more": {"servers": [url]}}
    async with reloading(url, tmp_path, here.rule()) as bridge:
        for valid in (here.rule(to="more"), to(here, unique_name("dest"), to="more")):
            facts = await bridge.reload(valid, to(here, f"{here.name}.x") | {"name": "cycle"}, connections=connections)
            assert (facts.result, "forms a cycle" in facts.reason) == ("refused", True)
            assert [connection.name for connection in bridge.sidecar._connections] == ["default"]


async def test_a_removed_rule_gives_its_lease_back(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """Another replica that still has the rule may resume it."""
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("removed"))
    bucket = unique_name("leases")
    await free(here.peer, bucket, "rule", "other")
    more = {"leadership": {"bucket": bucket, "ttl": LONG}}
    async with reloading(url, tmp_path, here.rule(), to(here, unique_name("dest")), **more) as bridge:
        await until(
            lambda: all(supervisor.ready and supervisor.leader is True for supervisor in bridge.sidecar.supervisors)
        )
        await bridge.applied(here.rule(), **more)
        records = [await lease(here.peer, bucket, rule) for rule in ("rule", "other")]
        assert [record is not None and record["released"] for record in records] == [False, True]


async def test_a_start_that_fails_after_all_is_undone(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """The consumer of a new rule is another client's, which only its start finds out."""
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("undone"))
    config = {"durable_name": "nats-bridge_taken", "ack_policy": "none", "deliver_subject": unique_name("deliver")}
    subject = f"CONSUMER.DURABLE.CREATE.{here.name}.nats-bridge_taken"
    assert "error" not in await peer.api(subject, {"stream_name": here.name, "config": config})
    one, two = unique_name("one"), unique_name("two")
    first, second = await Seen.of(peer, f"{one}.>"), await Seen.of(peer, f"{two}.>")
    gone = to(here, f"gone{one}") | {"name": "gone"}
    async with reloading(url, tmp_path, here.rule(), to(here, one), gone) as bridge:
        run = bridge.supervisor("rule").run
        await peer.store(f"{here.name}.x".encode())
        await first.until_sequence(1)  # what is not sent yet would go where the rule sends in between
        facts = await bridge.reload(here.rule(), to(here, two), to(here, f"never{one}") | {"name": "taken"})
        assert facts.result == "refused"
        assert "consumer 'nats-bridge_taken'" in facts.reason
        assert "started again as they were" in facts.reason
        assert [supervisor.rule.name for supervisor in bridge.sidecar.supervisors] == ["rule", "other", "gone"]
        assert bridge.supervisor("rule").run is run
        await peer.store(f"{here.name}.x".encode())
        await first.until_sequence(2)
        await until(lambda: all(supervisor.ready for supervisor in bridge.sidecar.supervisors))
        assert bridge.sidecar.error is None
    assert (first.sequences, second.sequences) == ([1, 2], [])


async def test_a_start_that_meets_a_fault_of_the_program_is_undone(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("fault"))

    class Broken(RuleSupervisor):
        async def start(self) -> None:
            if self.rule.name == "other":
                raise OSError("too many open files")
            await super().start()

    monkeypatch.setattr(sidecar, "RuleSupervisor", Broken)
    async with reloading(url, tmp_path, here.rule()) as bridge:
        facts = await bridge.reload(here.rule(exclude=[f"{here.name}.never"]), to(here, unique_name("never")))
        assert (facts.result, facts.reason) == ("refused", "unexpected OSError: too many open files")
        await until(lambda: [supervisor.ready for supervisor in bridge.sidecar.supervisors] == [True])
        await here.peer.store(f"{here.name}.x".encode())
        await here.bridged.until_sequence(1)


async def test_a_rule_whose_server_is_away_is_not_stopped_for_a_change(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with reloading(source.url, tmp_path, here.rule(to="target"), connections=connections) as bridge:
            await asyncio.to_thread(target.stop)
            await until(lambda: not bridge.sidecar.connections["target"].client.is_connected)
            facts = await bridge.reload(here.rule(to="target", exclude=["S.y"]), connections=connections)
            assert (facts.result, facts.retriable) == ("refused", True)
            assert "connection 'target' has no server at the moment" in facts.reason
            await asyncio.to_thread(target.start)
            await until(lambda: bridge.sidecar.connections["target"].client.is_connected)
            assert (await bridge.sidecar.reload("test")).result == "applied"


# -- the file is watched -----------------------------------------------------------------------------------------------


async def test_the_file_is_not_taken_without_being_asked_for(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []

    def looked(path: Path) -> str | None:
        looks.append(path)
        return content_hash(path)

    monkeypatch.setattr(file_watch, "EVERY_SECOND", 0.001)
    monkeypatch.setattr(file_watch, "content_hash", looked)
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("still"))
    async with reloading(url, tmp_path, here.rule()) as bridge:
        bridge.path.write_text("rules: [\n", "utf-8")
        before = len(looks)
        await until(lambda: len(looks) > before + 5)
        assert bridge.sidecar.reloader.last is None
        # Wanting it is in the file itself.
        await bridge.applied(here.rule(), to(here, "dest"), reload={"watch": True})
        bridge.write(here.rule(), reload={"watch": True})
        await until(lambda: bridge.sidecar.reloader.results["applied"] == 2)
        assert bridge.sidecar.reloader.last is not None
        assert bridge.sidecar.reloader.last.asked_by == "file changed"


async def test_a_file_that_could_not_be_taken_because_of_a_server_is_taken_later(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "EVERY_SECOND", 0.001)
    monkeypatch.setattr(reloading_module, "_AGAIN", 0.0)
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S")
        await asyncio.to_thread(target.stop)
        late = {"default": {"servers": [source.url]}, "late": {"servers": [target.url], "connect_timeout": 0.5}}
        async with reloading(source.url, tmp_path, here.rule(), reload={"watch": True}) as bridge:
            bridge.write(here.rule(), to(here, "late", to="late"), connections=late, reload={"watch": True})
            await until(lambda: bridge.sidecar.reloader.results["refused"] > 1)
            await asyncio.to_thread(target.start)
            await until(lambda: bridge.sidecar.reloader.results["applied"] == 1)
            assert bridge.supervisor("other").ready


# -- one at a time -----------------------------------------------------------------------------------------------------


async def test_the_last_of_several_counts(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("several"))
    async with cut_wire(url) as wire, reloading(url, tmp_path, here.rule()) as bridge:
        wire.hold_back()
        through = {"default": {"servers": [url]}, "held": {"servers": [wire.url], "connect_timeout": 2 * LIMIT}}
        bridge.write(here.rule(to="held"), connections=through)
        first = asyncio.create_task(bridge.sidecar.reload("first"))
        await until(lambda: bridge.sidecar._changeover is not None)
        bridge.write(here.rule(), to(here, "nowhere"))
        later = [asyncio.create_task(bridge.sidecar.reload(f"later {number}")) for number in range(3)]
        bridge.write(here.rule(), to(here, "somewhere"))
        wire.let_through()
        assert (await first).changed == ("rule",)
        found = [await each for each in later]
        assert {(facts.result, facts.changed) for facts in found} == {("applied", ("rule", "other"))}
        assert bridge.sidecar.reloader.results["applied"] == 2
        assert bridge.sidecar.settings.rules[1].republish.dest == "somewhere.>"  # type: ignore[union-attr]


async def test_the_end_comes_in_the_middle_of_a_reload(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("end"))
    async with cut_wire(url) as wire, reloading(url, tmp_path, here.rule()) as bridge:
        wire.hold_back()
        through = {"default": {"servers": [url]}, "held": {"servers": [wire.url], "connect_timeout": 2 * LIMIT}}
        bridge.write(here.rule(to="held"), connections=through)
        reload = asyncio.create_task(bridge.sidecar.reload("test"))
        await until(lambda: bridge.sidecar._changeover is not None)
        assert await bridge.sidecar.stop()
        wire.let_through()
        facts = await reload
        assert (facts.result, facts.reason) == ("refused", "the sidecar is draining")
        assert (await bridge.sidecar.reload("late")).result == "refused"


@pytest.mark.unstoppable
async def test_the_end_comes_while_a_changed_rule_drains(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery="at_least_once")
        async with reloading(source.url, tmp_path, rule, connections=connections) as bridge:
            run = bridge.supervisor("rule").run
            assert run is not None

            class Held(Changeover):
                async def apply(self) -> None:
                    os.kill(target.pid, signal.SIGSTOP)
                    await until(lambda: stands_still(target.pid))
                    await here.load.burst(100)
                    # All of them: what has not arrived by then waits for a next start.
                    await until(lambda: run.counters.as_dict()["received"] == 100)
                    await super().apply()

            monkeypatch.setattr(sidecar, "Changeover", Held)
            bridge.write(rule | {"exclude": ["S.never"]}, connections=connections)
            reload = asyncio.create_task(bridge.sidecar.reload("test"))
            try:
                await until(lambda: run.state == "draining")
                stopping = asyncio.create_task(bridge.sidecar.stop())
                await until(lambda: bridge.sidecar.draining)
            finally:
                os.kill(target.pid, signal.SIGCONT)
            assert await stopping
            assert (await reload).result == "refused"
            assert run.state == "stopped"
        await here.bridged.until_sequence(100)
        assert here.bridged.sequences == list(range(1, 101))
