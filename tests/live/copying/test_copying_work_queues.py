"""`acknowledge: true`: work-queue and interest streams are copied exactly once, and acknowledged when it is stored."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.cli.clean import clean
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.kinds.copying.kind import KIND
from tests.live.copies import Copies
from tests.live.copying.forgotten_ids import FORGETFUL, PROBE, forgotten
from tests.live.copying.kills import killed_at_random
from tests.live.cut_wire import cut_wire
from tests.live.leadership.replicas import replicas
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load
from tests.live.sidecars import failure_of, running, settings_for
from tests.live.tiers import OLDEST_AND_NEWEST, by_turns, on_each_version
from tests.live.until import until

RETENTIONS = ["workqueue", "interest"]
SIDECAR = "nats-bridge"


class Queue(Copies):
    """A stream whose messages go when they are acknowledged, and its target."""

    def rule(self, **more: Any) -> dict[str, Any]:
        return super().rule(entry={"acknowledge": True, **more.pop("entry", {})}, **more)

    def entry(self, subject: str, below: str = "") -> dict[str, Any]:
        """An entry that copies some subjects, to the same ones or below another token."""
        transform = {"src": f"{self.name}.{subject}", "dest": f"{self.target}.{below}{subject}"}
        return {"name": self.name, "acknowledge": True, "subject_transforms": [transform]}

    def consumers_of(self, *entries: dict[str, Any]) -> list[str]:
        """The names of the consumers of a rule's entries; without entries, of the usual rule."""
        rule = self.rule() | ({"sources": [*entries]} if entries else {})
        (known,) = settings_for("nats://127.0.0.1", rule).rules
        return [durable.name for durable in KIND.durables(known, SIDECAR)]

    async def consumers(self) -> set[str]:
        """The names of the source's consumers."""
        return {info["name"] for info in (await self.peer.api(f"CONSUMER.LIST.{self.name}"))["consumers"]}

    async def put(self, subject: str, *payloads: bytes) -> None:
        """Store messages in the source."""
        for payload in payloads:
            await self.peer.store(f"{self.name}.{subject}".encode(), payload)

    async def left(self) -> int:
        """How many messages the source holds."""
        return int((await self.peer.api(f"STREAM.INFO.{self.name}"))["state"]["messages"])

    async def drained(self, left: int = 0) -> None:
        """Wait until the source holds only so many messages: a server removes them behind an acknowledgement."""

        async def removed() -> bool:
            return await self.left() == left

        await until(removed)

    async def pending(self, consumer: str, wanted: int) -> bool:
        """Whether so many messages of a consumer are without an acknowledgement."""
        info = await self.peer.api(f"CONSUMER.INFO.{self.name}.{consumer}")
        return bool(info["num_ack_pending"] == wanted)

    async def hold_all(self, payloads: list[bytes]) -> None:
        """Assert that the target holds these payloads, each once and in this order."""
        assert [message.payload for message in await self.stored() if message.payload != PROBE] == payloads

    async def are_all(self, load: Load) -> None:
        """Wait until all of a load is copied and acknowledged, and assert that the target holds it once, in order."""
        await self.holds(load.published)
        await self.drained()
        await self.hold_all([b"%d" % number for number in range(1, load.published + 1)])


@pytest.fixture(params=OLDEST_AND_NEWEST)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@by_turns("version, retention", OLDEST_AND_NEWEST, RETENTIONS)
async def test_what_is_copied_is_acknowledged(
    retention: str, version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("q"), source={"retention": retention})
    load = Load(here.peer, here.name)
    async with running(settings_for(url, here.rule())) as bridge:
        await load.burst(5000)
        await here.are_all(load)
        counters = bridge.runs[0].counters.as_dict()
        await until(lambda: bridge.runs[0].counters.as_dict()["acknowledged"] == 5000)
    assert (counters["copied"], counters["lost"]) == (5000, 0)
    async with running(settings_for(url, here.rule())) as bridge:  # through the same consumer
        await load.burst(500)
        await here.are_all(load)
        assert bridge.runs[0].counters.as_dict()["recreated_consumers"] == 0


@pytest.mark.unstoppable
@pytest.mark.parametrize("retention", ["workqueue", pytest.param("interest", marks=pytest.mark.exhaustive)])
@on_each_version(times=2)
async def test_kills_at_random_moments_lose_and_double_nothing(
    version: str,
    times: int,
    retention: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    tmp_path: Path,
) -> None:
    url = await servers.url(version)
    here = await Queue.make(
        await raw_peer(url),
        unique_name("kills"),
        source={"retention": retention},
        target=FORGETFUL,  # so that ids help only with what is in flight
    )
    load = Load(await raw_peer(url), here.name)
    assert await killed_at_random(here, load, lambda: here.are_all(load), url, times, tmp_path)


@pytest.mark.parametrize(
    ("side", "retention"),
    [
        ("source", "workqueue"),
        ("target", "interest"),
        pytest.param("source", "interest", marks=pytest.mark.exhaustive),
        pytest.param("target", "workqueue", marks=pytest.mark.exhaustive),
    ],
)
@on_each_version(times=2)
async def test_each_connection_cut_at_any_moment(
    version: str, times: int, side: str, retention: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("cut"), source={"retention": retention})
    load = Load(await raw_peer(url), here.name)
    chance = random.Random(version)
    async with cut_wire(url) as wire:
        through, straight = {"servers": [wire.url]}, {"servers": [url]}
        connections = {
            "default": through if side == "target" else straight,
            "there": through if side == "source" else straight,
        }
        settings = settings_for(url, here.rule(entry={"from": "there"}), connections=connections)
        async with running(settings) as bridge:
            for _ in range(times):
                before = load.published
                burst = asyncio.create_task(load.burst(3000))
                await here.holds(before + chance.randrange(1, 2500))
                wire.cut()
                await burst
                await here.are_all(load)
            assert bridge.runs[0].counters.as_dict()["lost"] == 0


@by_turns("version, retention, away", OLDEST_AND_NEWEST, RETENTIONS, ["source", "target"])
async def test_a_server_is_killed_and_comes_back(
    away: str, retention: str, version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    with native_server(version) as source, native_server(version) as target:
        here = await Queue.make(
            await raw_peer(source.url), "S", target_peer=await raw_peer(target.url), source={"retention": retention}
        )
        connections = {"default": {"servers": [target.url]}, "there": {"servers": [source.url]}}
        rule = here.rule(entry={"from": "there"})
        async with running(settings_for(target.url, rule, connections=connections)):
            load = Load(here.peer, here.name)
            for _ in range(2):
                # All of it is known to be stored before the kill, or the source could lose its end unseen.
                await load.burst(2000)
                await here.holds(load.published - 1500)
                server = source if away == "source" else target
                server.kill()
                server.start()
                peer = await raw_peer(server.url)
                if away == "source":
                    here.peer = peer
                    load._peer = peer
                else:
                    here.target_peer = peer
                await here.are_all(load)


async def test_what_is_stored_and_not_acknowledged_is_not_copied_again(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """As a crash between PubAck and acknowledgement leaves it, after the target has forgotten the ids."""
    url = await servers.url(version)
    here = await Queue.make(
        await raw_peer(url), unique_name("again"), source={"retention": "interest"}, target=FORGETFUL
    )
    (durable,) = here.consumers_of()
    slow = {"durable_name": "slow", "ack_policy": "explicit"}
    created = await here.peer.api(
        f"CONSUMER.DURABLE.CREATE.{here.name}.slow", {"stream_name": here.name, "config": slow}
    )
    assert "error" not in created
    load = Load(here.peer, here.name)
    async with running(settings_for(url, here.rule())):
        await load.burst(1000)
        await here.holds(1000)
        await until(lambda: here.pending(durable, 0))
    # Another consumer holds all of them, so a new consumer of the rule gets them again.
    await here.peer.api(f"CONSUMER.DELETE.{here.name}.{durable}")
    await forgotten(here.peer, here.target)
    before = int((await here.state())["messages"])
    async with running(settings_for(url, here.rule())) as bridge:
        await load.burst(500)
        await here.holds(before + 500)
        await until(lambda: here.pending(durable, 0))
        counters = bridge.runs[0].counters.as_dict()
    assert (counters["already_there"], counters["copied"], counters["duplicates"]) == (1000, 500, 0)
    assert (counters["recreated_consumers"], counters["lost"]) == (1, 0)
    await here.hold_all([b"%d" % number for number in range(1, 1501)])
    assert await here.left() == 1500


@pytest.mark.usefixtures("quick_heartbeats")
@pytest.mark.parametrize("retention", RETENTIONS)
async def test_a_consumer_that_is_deleted_is_recreated(
    retention: str,
    version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A work queue keeps what arrives without a consumer; an interest stream does not, and that is counted."""
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("deleted"), source={"retention": retention})
    create, has_arrived = RuleConsumer.create, asyncio.Event()

    async def create_late(consumer: RuleConsumer, handled: int) -> None:
        await has_arrived.wait()
        await create(consumer, handled)

    async with running(settings_for(url, here.rule())) as bridge:
        for number in range(3):
            await here.peer.store(f"{here.name}.x".encode(), b"%d" % number)
        await here.holds(3)
        await here.drained()
        monkeypatch.setattr(RuleConsumer, "create", create_late)
        await here.peer.api(f"CONSUMER.DELETE.{here.name}.{here.consumers_of()[0]}")
        for number in range(3, 7):
            await here.peer.store(f"{here.name}.x".encode(), b"%d" % number)
        has_arrived.set()
        counters = bridge.runs[0].counters
        await until(lambda: counters.as_dict()["recreated_consumers"] == 1)
        await until(lambda: bridge.runs[0].ready)
        await here.peer.store(f"{here.name}.x".encode(), b"7")
        copied = 8 if retention == "workqueue" else 4
        await here.holds(copied)
        await here.drained()
        assert counters.as_dict()["lost"] == 8 - copied
    await here.hold_all([b"%d" % number for number in (range(8) if retention == "workqueue" else (0, 1, 2, 7))])


@pytest.mark.usefixtures("quick_heartbeats")
async def test_messages_an_interest_stream_drops_before_the_consumer_are_counted(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("late"), source={"retention": "interest"})
    create = RuleConsumer.create

    async def create_late(consumer: RuleConsumer, handled: int) -> None:
        monkeypatch.setattr(RuleConsumer, "create", create)
        await here.peer.store(f"{here.name}.x".encode(), b"no consumer wants it yet")
        await create(consumer, handled)

    async with running(settings_for(url, here.rule())) as bridge:
        await here.peer.store(f"{here.name}.x".encode(), b"0")
        await here.holds(1)
        await here.drained()
        monkeypatch.setattr(RuleConsumer, "create", create_late)
        await here.peer.api(f"CONSUMER.DELETE.{here.name}.{here.consumers_of()[0]}")
        counters = bridge.runs[0].counters
        await until(lambda: counters.as_dict()["recreated_consumers"] == 1)
        await until(lambda: bridge.runs[0].ready)
        await here.peer.store(f"{here.name}.x".encode(), b"2")
        await here.holds(2)
        await here.drained()
        assert counters.as_dict()["lost"] == 1
    await here.hold_all([b"0", b"2"])


@pytest.mark.usefixtures("quick_heartbeats")
async def test_a_recreated_source_keeps_its_messages_until_the_user_decides(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Queue.make(await raw_peer(url), unique_name("new"), source={"retention": "workqueue"})
    async with running(settings_for(url, here.rule())) as bridge:
        await here.peer.store(f"{here.name}.x".encode(), b"old")
        await here.holds(1)
        await here.drained()
        await here.peer.api(f"STREAM.DELETE.{here.name}")
        await here.peer.create_stream(name=here.name, subjects=[f"{here.name}.>"], retention="workqueue")
        await here.peer.store(f"{here.name}.x".encode(), b"new")
        await until(lambda: bridge.error is not None)
        assert "is a new one" in str(bridge.error)
    assert await here.left() == 1
    async with running(settings_for(url, here.rule(on_recreated="restart"))):
        await here.holds(2)
        await here.drained()
    await here.hold_all([b"old", b"new"])


async def test_a_message_is_acknowledged_when_its_dead_letter_is_stored(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Queue.make(
        await raw_peer(url), unique_name("dead"), source={"retention": "workqueue"}, target={"max_msg_size": 1000}
    )
    for payload in (b"1", b"x" * 2000, b"3"):
        await here.peer.store(f"{here.name}.x".encode(), payload)
    dead = f"dead{here.name}"
    assert f"'{dead}', where" in str(await failure_of(settings_for(url, here.rule(on_rejected={"skip": dead}))))
    await here.drained(left=2)  # no stream has taken the dead letter
    await here.peer.create_stream(name=dead, subjects=[dead])
    async with running(settings_for(url, here.rule(on_rejected={"skip": dead}))):
        await here.holds(2)
        await here.drained()
    await here.hold_all([b"1", b"3"])
    assert (await here.peer.api(f"STREAM.INFO.{dead}"))["state"]["messages"] == 1


async def test_what_is_sent_is_not_acknowledged_before_it_is_stored(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("sent"), source={"retention": "workqueue"})
    async with cut_wire(url) as wire:
        connections = {"default": {"servers": [wire.url]}, "there": {"servers": [url]}}
        settings = settings_for(url, here.rule(entry={"from": "there"}), connections=connections)
        async with running(settings) as bridge:
            counters = bridge.runs[0].counters
            await here.peer.store(f"{here.name}.x".encode(), b"0")
            await until(lambda: counters.as_dict()["acknowledged"] == 1)
            wire.fall_silent()
            for number in range(1, 11):
                await here.peer.store(f"{here.name}.x".encode(), b"%d" % number)
            await until(lambda: counters.as_dict()["received"] == 11)
            assert counters.as_dict()["acknowledged"] == 1
            wire.speak_again()
            await here.holds(11)
            await here.drained()
    await here.hold_all([b"%d" % number for number in range(11)])


async def test_what_a_full_target_does_not_take_stays_in_the_work_queue(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    target = {"max_msgs": 10, "discard": "new"}
    here = await Queue.make(await raw_peer(url), unique_name("full"), source={"retention": "workqueue"}, target=target)
    async with running(settings_for(url, here.rule())) as bridge:
        for number in range(30):
            await here.peer.store(f"{here.name}.x".encode(), b"%d" % number)
        counters = bridge.runs[0].counters
        await until(lambda: counters.as_dict()["waits"] == 1)
        await until(lambda: counters.as_dict()["acknowledged"] == 10)
        await here.drained(left=20)
        config = {"name": here.target, "subjects": [f"{here.target}.>"], "discard": "new"}
        await here.target_peer.api(f"STREAM.UPDATE.{here.target}", config)
        await here.holds(30)
        await here.drained()
    await here.hold_all([b"%d" % number for number in range(30)])


async def test_entries_share_a_work_queue_by_subjects_and_leave_the_rest(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("shared"), source={"retention": "workqueue"})
    entries = [here.entry(letter) for letter in "ab"]
    rule = here.rule() | {"sources": entries}
    settings = settings_for(url, rule)
    async with running(settings):
        for number in range(300):
            await here.peer.store(f"{here.name}.{'abc'[number % 3]}".encode(), b"%d" % number)
        await here.holds(200)

        async def done() -> bool:
            return await here.left() == 100

        await until(done)
    by_subject = {"a": [], "b": []}  # type: dict[str, list[int]]
    for message in await here.stored():
        by_subject[message.subject.decode()[-1]].append(int(message.payload))
    assert by_subject == {"a": [*range(0, 300, 3)], "b": [*range(1, 300, 3)]}
    lines = await clean(settings, [])
    assert [line.split(": ")[1] for line in lines] == [
        f"removed consumer '{name}' of stream '{here.name}'" for name in here.consumers_of(*entries)
    ]


@pytest.mark.parametrize("retention", RETENTIONS)
async def test_an_entry_keeps_its_consumer_when_the_first_one_is_removed(
    retention: str, version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name("first"), source={"retention": retention})
    a, b = here.entry("a"), here.entry("b")
    async with running(settings_for(url, here.rule() | {"sources": [a, b]})):
        await here.put("b", b"1")
        await here.holds(1)
        await here.drained()
    await here.put("b", b"2", b"3")
    await here.put("a", b"4", b"5")
    async with running(settings_for(url, here.rule() | {"sources": [a]})):
        await here.holds(3)
    with capture_logs() as log:
        async with running(settings_for(url, here.rule() | {"sources": [b]})) as bridge:
            await here.holds(5)
            await here.drained()
            assert bridge.runs[0].counters.as_dict()["recreated_consumers"] == 0
    await here.hold_all([b"1", b"4", b"5", b"2", b"3"])
    assert await here.consumers() == set(here.consumers_of(a, b))
    assert [line["consumer"] for line in log if line["event"] == "rule.durable_left"] == here.consumers_of(a)


@by_turns("version, retention, how", OLDEST_AND_NEWEST, RETENTIONS, ["edited", "renamed", "moving", "split"])
async def test_an_edited_entry_resumes_where_its_former_consumer_is(
    how: str, retention: str, version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Queue.make(await raw_peer(url), unique_name(how), source={"retention": retention})
    if retention == "interest":  # it keeps what is acknowledged, so that it can be seen from where on it is read
        config = {"durable_name": "slow", "ack_policy": "explicit"}
        await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.slow", {"stream_name": here.name, "config": config})
    before = [here.entry(">")]
    after = {"split": [here.entry("a"), here.entry("b")], "edited": [here.entry(">", "x.")]}.get(how, before)
    async with running(settings_for(url, here.rule() | {"sources": before})) as bridge:
        await here.put("a", b"1", b"2")
        await here.holds(2)
        await until(lambda: bridge.runs[0].counters.as_dict()["acknowledged"] == 2)
    (former,) = here.consumers_of(*before)
    await until(lambda: here.pending(former, 0))
    await here.drained(left=2 if retention == "interest" else 0)
    if how in ("renamed", "moving") and (retention == "interest" or how == "renamed"):
        former = await _recreated(here, former, "_moving" if how == "moving" else "")
    await here.put("a", b"3")
    await here.put("b", b"4")
    rule = here.rule() | {"sources": after}
    async with running(settings_for(url, rule)) as bridge:
        await here.holds(4)
        await until(lambda: bridge.runs[0].counters.as_dict()["acknowledged"] == 2)
        await here.put("b", b"5")
        await here.holds(5)
        assert await here.consumers() - {"slow"} == set(here.consumers_of(*after))
    assert sorted(message.payload for message in await here.stored()) == [b"%d" % number for number in range(1, 6)]


async def _recreated(here: Queue, former: str, ending: str) -> str:
    """Recreate a consumer as an earlier version named it, or as its marker, at the same position; its name."""
    config = (await here.peer.api(f"CONSUMER.INFO.{here.name}.{former}"))["config"]
    name = config["durable_name"] = config["name"] = f"{SIDECAR}_rule_2{ending}"
    if await here.left():
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": 3}
    if not await here.left():  # a work queue takes one consumer of a subject
        await here.peer.api(f"CONSUMER.DELETE.{here.name}.{former}")
    request = {"stream_name": here.name, "config": config}
    assert "error" not in await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.{name}", request)
    await here.peer.api(f"CONSUMER.DELETE.{here.name}.{former}")
    return str(name)


@pytest.mark.unstoppable
@pytest.mark.parametrize("retention", ["workqueue", pytest.param("interest", marks=pytest.mark.exhaustive)])
async def test_a_paused_leader_acknowledges_nothing_its_successor_has_to_copy(
    retention: str, newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(newest_version)
    here = await Queue.make(
        await raw_peer(url),
        unique_name("led"),
        source={"retention": retention},
        target={"duplicate_window": 1_000_000_000},
    )
    load = Load(await raw_peer(url), here.name)
    async with replicas(tmp_path, url, f"L{here.name}", [here.rule()]) as group:
        await group.free(here.peer)
        first = await group.start()
        await group.leads(first)
        second = await group.start()
        burst = asyncio.create_task(load.burst(5000))
        await here.holds(1000)
        first.send(signal.SIGSTOP)
        await burst
        await group.leads(second)
        await here.are_all(load)
        first.send(signal.SIGCONT)
        await group.lost(first)
        await load.burst(1000)
        await here.are_all(load)
        for process in (first, second):
            assert await process.stop() == 0, process.log


async def test_a_second_process_without_a_lease_is_refused(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    here = await Queue.make(await raw_peer(url), unique_name("two"), source={"retention": "workqueue"})
    async with running(settings_for(url, here.rule())):
        assert "is in use by another process" in str(await failure_of(settings_for(url, here.rule())))
        await here.peer.store(f"{here.name}.x".encode(), b"1")
        await here.holds(1)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "limits retention": ({"retention": "limits"}, {}, "remove acknowledge"),
    "an exclude": ({}, {"exclude": ["{name}.x"]}, "what exclude leaves out would be taken out of the work queue"),
    "overlapping filters": (
        {},
        {
            "subject_transforms": [
                {"src": "{name}.*.a", "dest": "T{name}.1"},
                {"src": "{name}.b.*", "dest": "T{name}.2"},
            ]
        },
        "write an entry for each, none of which overlap",
    ),
    "a worker of the same subjects": ({}, {}, "other consumers of work queue"),
}


@pytest.mark.parametrize("version", ["2.10.27", "2.12.15"])
async def test_filters_that_overlap_for_older_servers_are_not_acknowledged(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    name = unique_name("byte")
    here = await Queue.make(await raw_peer(url), name, source={"retention": "workqueue"})
    transforms = [{"src": f"{name}.*x.>", "dest": f"T{name}.1.>"}, {"src": f"{name}.b.c", "dest": f"T{name}.2"}]
    error = await failure_of(settings_for(url, here.rule(entry={"subject_transforms": transforms})))
    assert f"no consumer of server {version} selects exactly {name}.*x.>, {name}.b.c" in str(error)


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_acknowledged_is_refused(
    case: str, newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    source, entry, reason = REFUSED[case]
    name = unique_name("no")
    here = await Queue.make(await raw_peer(url), name, source={"retention": "workqueue"} | source)
    await here.peer.store(f"{here.name}.x".encode(), b"1")
    if "worker" in case:
        config = {"durable_name": "worker", "ack_policy": "explicit"}
        await here.peer.api(f"CONSUMER.DURABLE.CREATE.{name}.worker", {"stream_name": name, "config": config})
    entry = json.loads(json.dumps(entry).replace("{name}", name))
    assert reason in str(await failure_of(settings_for(url, here.rule(entry=entry))))
    assert (await here.left(), (await here.state())["messages"]) == (1, 0)
