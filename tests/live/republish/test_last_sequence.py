"""`Nats-Last-Sequence` where predecessors are gone: what the server writes, the bridge writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from nats_bridge.client.audit_advisories import Purged
from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.republish.run import RepublishRun
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, Seen, differing, last_sequence_of, sequence_of
from tests.live.sidecars import running, settings_for
from tests.live.tiers import OLDEST_AND_NEWEST, by_turns, with_all
from tests.live.until import until

NO_SUCH_MESSAGE = 10043


class Steps:
    """Changes a stream step by step; the bridge has taken note of each before the next."""

    def __init__(self, here: Scene, run: RepublishRun | None) -> None:
        self.here = here
        self.run = run
        self._removals = 0

    async def store(self, *subjects: str, rollup: str = "") -> None:
        block = f"NATS/1.0\r\nNats-Rollup: {rollup}\r\n\r\n".encode() if rollup else b""
        for subject in subjects:
            answer = await self.here.peer.store(f"{self.here.name}.{subject}".encode(), b"", block)
            assert "error" not in answer, answer
            if self.run is not None:
                await self.here.bridged.until_sequence(int(answer["seq"]))

    async def delete(self, sequence: int) -> None:
        await self._remove("MSG.DELETE", {"seq": sequence})

    async def purge(self, **how: Any) -> None:
        if "filter" in how:
            how["filter"] = f"{self.here.name}.{how['filter']}"
        await self._remove("PURGE", how)

    async def _remove(self, what: str, body: dict[str, Any]) -> None:
        answer = await self.here.peer.api(f"STREAM.{what}.{self.here.name}", body)
        if answer.get("error", {}).get("err_code") == NO_SUCH_MESSAGE:
            return  # with one message a subject
        assert answer.get("success"), answer
        self._removals += 1
        if (run := self.run) is not None:
            await until(lambda: run.counters.removals == self._removals)


async def delete_the_last(step: Steps) -> None:
    await step.store("a", "a", "a")
    await step.delete(3)
    await step.store("a")


async def delete_the_last_two(step: Steps) -> None:
    await step.store("a", "b", "a", "a", "b")
    await step.delete(4)
    await step.delete(3)
    await step.store("a", "b", "a")


async def delete_the_only_one(step: Steps) -> None:
    await step.store("a", "b")
    await step.delete(1)
    await step.store("a", "b", "a")


async def delete_an_older_one(step: Steps) -> None:
    await step.store("a", "a", "a")
    await step.delete(2)
    await step.store("a", "b")


async def purge_everything(step: Steps) -> None:
    await step.store("a", "b", "a")
    await step.purge()
    await step.store("a", "b", "a")


async def purge_one_subject(step: Steps) -> None:
    await step.store("a", "b", "a")
    await step.purge(filter="a")
    await step.store("a", "b", "a")


async def purge_subjects_by_wildcard(step: Steps) -> None:
    await step.store("a.x", "a.y", "b.x", "c")
    await step.purge(filter="*.x")
    await step.store("a.x", "a.y", "b.x", "c", "a.x")


async def purge_and_keep_the_last(step: Steps) -> None:
    await step.store("a", "b", "a", "b")
    await step.purge(filter="a", keep=1)
    await step.store("a", "b")


async def purge_everything_and_keep_two(step: Steps) -> None:
    await step.store("a", "b", "a", "b")
    await step.purge(keep=2)
    await step.store("a", "b", "c")


async def purge_up_to_a_sequence(step: Steps) -> None:
    await step.store("a", "b", "a", "b")
    await step.purge(seq=4)
    await step.store("a", "b")


async def purge_one_subject_up_to_a_sequence(step: Steps) -> None:
    await step.store("a", "b", "a", "b")
    await step.purge(filter="a", seq=3)
    await step.store("a", "b")


async def roll_up_a_subject(step: Steps) -> None:
    await step.store("a", "b", "a")
    await step.store("a", rollup="sub")
    await step.store("a", "b")


async def roll_up_everything(step: Steps) -> None:
    await step.store("a", "b", "a")
    await step.store("c", rollup="all")
    await step.store("a", "b", "c")


async def purge_by_wildcard_and_keep_the_last(step: Steps) -> None:
    await step.store("a.x", "b.x", "c", "c.x")
    await step.purge(filter="*.x", keep=1)
    await step.store("a.x", "b.x", "c", "c.x", "c.x")


async def roll_up_after_a_delete(step: Steps) -> None:
    await step.store("b", "a", "a")
    await step.delete(3)
    await step.store("a", rollup="sub")
    await step.store("a")


async def delete_what_a_delete_left(step: Steps) -> None:
    await step.store("a", "a", "b", "a")
    await step.delete(4)
    await step.delete(2)
    await step.store("a", rollup="sub")


async def removals_on_top_of_removals(step: Steps) -> None:
    await step.store("a", "b", "a", "c")
    await step.delete(3)
    await step.purge(filter="b")
    await step.store("a", rollup="sub")
    await step.store("a")
    await step.store("a", "b")
    await step.delete(6)
    await step.store("c", "a")
    await step.purge()
    await step.store("a", "b", "c")


Scenario: TypeAlias = Callable[[Steps], Awaitable[None]]
SCENARIOS: list[Scenario] = [
    delete_the_last,
    delete_the_last_two,
    delete_the_only_one,
    delete_an_older_one,
    purge_everything,
    purge_one_subject,
    purge_subjects_by_wildcard,
    purge_and_keep_the_last,
    purge_everything_and_keep_two,
    purge_by_wildcard_and_keep_the_last,
    purge_up_to_a_sequence,
    purge_one_subject_up_to_a_sequence,
    roll_up_a_subject,
    roll_up_everything,
    roll_up_after_a_delete,
    delete_what_a_delete_left,
    removals_on_top_of_removals,
]
# The server's own number is wrong there (before 2.12.5): 0 although older messages remain. Where the bridge asks for
# them, the server finds them again.
NATIVE_IS_WRONG = {("delete_the_last", "2.10.27")}


@asynccontextmanager
async def stepping(here: Scene, url: str, **more: Any) -> AsyncIterator[Steps]:
    async with running(settings_for(url, here.rule(**more), dialect="native")) as bridge:
        yield Steps(here, bridge.runs[0])


@by_turns(
    "twin_version, scenario, limits",
    OLDEST_AND_NEWEST,
    SCENARIOS,
    [{}, {"max_msgs_per_subject": 1}, {"max_msgs_per_subject": 2}, {"max_msgs": 4}],
)
async def test_removals(
    scenario: Scenario,
    limits: dict[str, Any],
    twin_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(
        await raw_peer(url), unique_name("removals"), storage="memory", allow_rollup_hdrs=True, **limits
    )
    async with stepping(here, url) as step:
        await scenario(step)
        end = await here.end()
        await here.bridged.until_sequence(end)
    assert here.bridged.sequences == list(range(1, end + 1))
    if (scenario.__name__, twin_version) in NATIVE_IS_WRONG and "max_msgs" in limits:
        assert [last_sequence_of(message) for message in here.native.messages][3] == 0
        assert [last_sequence_of(message) for message in here.bridged.messages][3] == 2
    else:
        assert differing(here.bridged, here.native) == []


@by_turns(
    "version, storage, which",
    ["2.9.10", *with_all("2.10.27", "2.11.17"), "2.15.3"],
    ["file", "memory"],
    [{}, {"filter": "a"}, {"filter": "*"}],
)
async def test_a_purge_below_the_first_sequence(
    version: str, storage: str, which: dict[str, Any], servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Older servers remove everything then."""
    url = await servers.url(version)
    here = await Scene.make(await raw_peer(url), unique_name("below"), storage=storage)
    async with stepping(here, url) as step:
        assert step.run is not None
        await step.store("a", "b", "a")
        await step.purge(seq=1, **which)
        await step.store("a", "b", "a")
        await here.bridged.until_sequence(await here.end())
        assert step.run.counters.last_sequence_uncertain == 0
    assert differing(here.bridged, here.native) == []


class Held:
    """What arrives at a rule is kept from it for a while, as it is where a machine is busy."""

    def __init__(self, run: RepublishRun) -> None:
        self._run = run
        self._accept = run.accept
        self._batches: list[tuple[list[Delivered], int | None]] = []
        run.accept = self._keep  # type: ignore[method-assign]

    def _keep(self, batch: list[Delivered], gap_after: int | None) -> None:
        self._batches.append((batch, gap_after))

    async def until_read(self, upto: int) -> None:
        await until(lambda: bool(self._batches) and self._run.position >= upto)

    async def release(self, upto: int) -> None:
        await self.until_read(upto)
        self._run.accept = self._accept  # type: ignore[method-assign]
        for batch in self._batches:
            if waiting := self._accept(*batch):
                await waiting


@pytest.mark.parametrize("late", [False, True], ids=["in-time", "late"])
async def test_a_predecessor_that_is_removed_before_its_successor_is_here(
    late: bool, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """The bridge asks what a removal leaves when it is reported, and counts an answer that comes too late."""
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("moment"), storage="memory", allow_rollup_hdrs=True)
    async with stepping(here, url) as step:
        run = step.run
        assert run is not None
        await step.store("a", "b", "a", "a")
        rolled_up = asyncio.Event()
        ask = run._source.api.last_message

        async def last_message(*which: str) -> Any:
            if late:
                await rolled_up.wait()
            return await ask(*which)

        run._source.api.last_message = last_message  # type: ignore[method-assign]
        held, step.run = Held(run), None
        await step.delete(4)
        if not late:
            await until(lambda: run.counters.removals == 1)
        await step.store("a")
        await held.until_read(5)  # the rollup removes it: a busy server could have it no longer to deliver
        await step.store("a", rollup="sub")
        rolled_up.set()
        await held.release(6)
        end = await here.end()
        await here.bridged.until_sequence(end)
    native = [last_sequence_of(message) for message in here.native.messages]
    # Unless it is asked for it, that server loses sight of the older one.
    assert native[4:] == [0 if late and twin_version == "2.10.27" else 3, 5, 0]
    assert [last_sequence_of(message) for message in here.bridged.messages][4:] == [0 if late else 3, 5, 0]
    assert run.counters.last_sequence_uncertain == late


async def _purged_unnoticed(step: Steps, body: dict[str, Any] | None) -> None:
    """Purge, and store a message before the sidecar reads the report."""
    here, run = step.here, step.run
    assert run is not None
    purged, reported = run._follower.predecessors.purged, list[Purged]()
    run._follower.predecessors.purged = reported.append  # type: ignore[method-assign]
    assert (await here.peer.api(f"STREAM.PURGE.{here.name}", body))["success"]
    await step.store("a")
    await until(lambda: bool(reported))
    purged(reported[0])
    await until(lambda: run.counters.removals == 1)


@pytest.mark.parametrize(
    ("stored", "subject_filter", "below", "later", "native", "bridged"),
    [
        ("aa", "a", 0, "a", [0, 1, 0, 3], [0, 1, 2, 3]),
        ("aa", "*", 0, "a", [0, 1, 0, 3], [0, 1, 2, 3]),
        ("aa", None, 0, "a", [0, 1, 0, 3], [0, 1, 2, 3]),
        # The first remaining message was stored before the purge, and a later one names a purged message.
        ("abc", None, 2, "ab", [0, 0, 0, 0, 4, 2], [0, 0, 0, 1, 4, 2]),
    ],
)
async def test_a_purge_that_is_reported_too_late_is_counted(
    stored: str,
    subject_filter: str | None,
    below: int,
    later: str,
    native: list[int],
    bridged: list[int],
    newest_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    url = await servers.url(newest_version)
    here = await Scene.make(await raw_peer(url), unique_name("reported"), storage="memory")
    async with stepping(here, url) as step:
        run = step.run
        assert run is not None
        await step.store(*stored)
        wanted: dict[str, Any] = {"filter": f"{here.name}.{subject_filter}"} if subject_filter else {}
        if below:
            wanted["seq"] = below
        await _purged_unnoticed(step, wanted or None)
        await step.store(*later)
        await here.native.until_sequence(len(native))
    assert [last_sequence_of(message) for message in here.native.messages] == native
    assert [last_sequence_of(message) for message in here.bridged.messages] == bridged
    assert run.counters.last_sequence_uncertain == 1


async def test_the_newest_message_of_a_subject_in_a_range(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("newest"), storage="memory")
    async with stepping(here, url) as step:
        assert step.run is not None
        api, subject = step.run._source.api, f"{here.name}.a"
        await step.store("b", "a", "a", "b", "a")
        await step.delete(5)
        for first, last, newest in ((1, 1, 0), (1, 2, 2), (1, 3, 3), (3, 3, 3), (1, 5, 3), (4, 5, 0)):
            assert await api.newest_before(here.name, subject, first, last) == newest, (first, last)


async def _all_handed_on(run: RepublishRun, end: int) -> None:
    await until(lambda: run.position == end and not run.has_work)


@pytest.mark.parametrize("source", ["", "k1"], ids=["all", "some"])
async def test_messages_overwritten_before_they_are_read_count_as_a_gap(
    source: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("burst"), storage="memory", max_msgs_per_subject=1)
    republish = {"src": f"{here.name}.{source or '>'}", "dest": f"bridge{here.name}.{source or '>'}"}
    async with running(settings_for(url, here.rule(republish=republish), dialect="native")) as bridge:
        (run,) = bridge.runs
        counters, retention = run.counters, run._encoder.retention
        while not counters.vanished:
            for number in range(1000):
                here.peer.publish(b"%b.k%d" % (here.name.encode(), number % 10))
            await _all_handed_on(run, await here.end())
        # Once it is known that the stream holds nothing of it, nothing is uncertain any more.
        while retention.skipped:
            await _all_handed_on(run, await here.end())
        uncertain = counters.last_sequence_uncertain
        for number in range(20):
            end = int((await here.peer.store(b"%b.k%d" % (here.name.encode(), number % 10)))["seq"])
            await _all_handed_on(run, end)  # or a message on the same subject could remove it first
        assert counters.last_sequence_uncertain == uncertain
        await until(lambda: counters.received + counters.vanished == end)
        await here.bridged.count(counters.republished)
    await here.native.until_sequence(end)
    native = {sequence_of(message): last_sequence_of(message) for message in here.native.messages}
    seen: dict[bytes, int] = {}
    wrong = 0
    for message in here.bridged.messages:
        last, before = last_sequence_of(message), seen.get(message[0], 0)
        if last != native[sequence_of(message)]:
            wrong += 1
            assert last > before
        seen[message[0]] = sequence_of(message)
    assert wrong <= counters.last_sequence_uncertain


async def test_a_filter_hides_only_what_the_rule_does_not_mean(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Without one, every missing sequence is seen."""
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("filter"))
    for source, wanted in ((f"{here.name}.a.>", f"{here.name}.a.>"), (f"{here.name}.>", None), (">", None)):
        rule = here.rule(republish={"src": source, "dest": f"bridge{here.name}.{source.removeprefix(f'{here.name}.')}"})
        async with running(settings_for(url, rule)):
            # Also where the durable consumer had one.
            assert (await here.durable())["config"].get("filter_subject") == wanted


async def test_removals_while_the_sidecar_is_away(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """The next start asks the server for what it cannot have seen: the newest that still exists."""
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("away"), storage="memory")
    async with stepping(here, url) as step:
        await step.store("a", "b", "a", "c", "a.x")
    step.run = None
    await step.delete(3)
    await step.purge(filter="c")
    async with stepping(here, url) as step:
        await step.store("b", "c", "a.x", "a", "d")
        end = await here.end()
        await here.bridged.until_sequence(end)
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []


@by_turns("twin_version, start, durable", OLDEST_AND_NEWEST, [("new", True), ("new", False), ("first", False)])
async def test_many_subjects_are_known_at_the_start(
    start: str, durable: bool, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("many"), storage="memory", max_msgs_per_subject=2)
    subjects = [f"{here.name}.s{number}".encode() for number in range(3000)]
    for subject in subjects * 3:
        peer.publish(subject)
    await here.end()
    async with running(settings_for(url, here.rule(start=start, durable=durable), dialect="native")):
        if start == "first":
            await here.bridged.until_sequence(9001)  # before the next messages evict what is not read yet
        for subject in reversed(subjects):
            peer.publish(subject)
        end = await here.end()
        await here.bridged.until_sequence(end)
    # Messages that were evicted before the start cannot be republished; all that are must be right.
    assert here.bridged.sequences == list(range(3001 if start == "first" else 9002, end + 1))
    new = [message for message in here.bridged.messages if sequence_of(message) > 9001]
    bridged = Seen()
    bridged.messages = new
    assert differing(bridged, here.native) == []


@pytest.mark.parametrize("limit", [{"max_bytes": 4096}, {"max_age": 3600 * 10**9}, {"allow_msg_ttl": True}], ids=str)
async def test_what_cannot_be_computed_is_said_and_counted(
    limit: dict[str, Any], servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("opaque"), **limit)
    async with running(settings_for(url, here.rule(), dialect="native")) as bridge:
        for number in range(60):
            answer = await here.peer.store(f"{here.name}.s{number % 3}".encode(), b"x" * 200)
            await here.bridged.until_sequence(int(answer["seq"]))  # before the next ones evict it
        end = await here.end()
        await here.bridged.until_sequence(end)
        counters = bridge.runs[0].counters
    assert counters.last_sequence_uncertain == 57
    # Whatever the value is, it is a predecessor of the same subject, or none.
    for number, message in enumerate(here.bridged.messages[:-1], 1):
        assert last_sequence_of(message) in {0, number - 3}
