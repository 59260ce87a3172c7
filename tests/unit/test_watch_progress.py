"""When a link counts as stalled, what is watched, and how often what is asked."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nats_bridge.client.connection import Connection
from nats_bridge.kinds.watching.link import links_of
from nats_bridge.kinds.watching.model import WatchRule
from nats_bridge.kinds.watching.reasons import Reason
from nats_bridge.kinds.watching.request_rate import RequestRate
from nats_bridge.kinds.watching.run import WatchRun
from nats_bridge.kinds.watching.watch import LinkProgress, LinkState, StreamSelection
from nats_bridge.rules.context import RuleContext
from nats_bridge.settings import loads
from nats_transforms.source_record import SourceRecord


def test_only_a_position_that_stays_while_something_is_missing_is_a_stall() -> None:
    progress = LinkProgress(stalled_after=3)
    progress.see(0, (5,), behind=True)
    progress.see(4, (6,), behind=True)  # progress
    assert progress.stalled_for(7) == 3
    progress.see(5, (6,), behind=True)
    progress.see(6, (6,), behind=True)
    assert (progress.stalled_for(6), progress.is_stalled) == (2, False)
    progress.see(7, (6,), behind=True)
    assert (progress.stalled_for(7), progress.is_stalled) == (3, True)
    progress.see(10, (6,), behind=False)
    assert (progress.stalled_for(20), progress.is_stalled) == (0, False)
    progress.see(21, (6,), behind=True)
    assert (progress.stalled_for(22), progress.is_stalled) == (1, False)


def test_time_without_a_comparison_is_no_stall() -> None:
    progress = LinkProgress(stalled_after=4)
    progress.see(0, (5,), behind=True)
    progress.see(100, (5,), behind=True)  # the process was paused, and perhaps the server, too
    progress.see(101, (5,), behind=True)
    assert not progress.is_stalled
    progress.interrupted()
    progress.see(200, (5,), behind=True)
    for now in (201, 202, 203):
        progress.see(now, (5,), behind=True)
        assert not progress.is_stalled
    progress.see(204, (5,), behind=True)
    assert progress.is_stalled


def test_a_stall_outlasts_an_interruption_until_there_is_progress() -> None:
    progress = LinkProgress(stalled_after=1)
    for now in range(4):
        progress.see(now, (5,), behind=True)
    assert progress.is_stalled
    progress.interrupted()
    assert (progress.is_stalled, progress.stalled_for(10)) == (True, 10)
    progress.see(10, (5,), behind=True)
    assert progress.is_stalled
    progress.see(11, (6,), behind=True)
    assert not progress.is_stalled


def test_a_leader_that_is_away_stalls_what_it_leads() -> None:
    progress = LinkProgress(stalled_after=3)
    progress.see(0, (5,), behind=False)
    for now in (1, 2, 3, 4):
        progress.see_nothing(now)
    assert (progress.is_stalled, progress.stalled_for(4)) == (True, 3)
    progress.see(5, (5,), behind=False)
    assert not progress.is_stalled


def test_requests_are_spread_evenly() -> None:
    rate = RequestRate(10)
    assert [rate.delay(100) for _ in range(3)] == pytest.approx([0, 0.1, 0.2])
    assert rate.delay(100.05, 3) == pytest.approx(0.25)
    assert rate.delay(100.05) == pytest.approx(0.55)
    assert rate.delay(200) == 0


async def test_who_gives_up_takes_no_turn_from_those_that_follow() -> None:
    rate = RequestRate(1)
    waiting = [asyncio.create_task(rate.turn()) for _ in range(100)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert rate.delay(asyncio.get_running_loop().time()) <= 2, "the first had its turn, and the second reserved one"


def test_which_streams_are_watched() -> None:
    selection = StreamSelection(("ORDERS_*", "A[1]"))
    assert selection.named == ("A[1]",)
    assert [name for name in ("ORDERS_EU", "ORDERS", "XORDERS_EU", "A[1]", "A1") if name in selection] == [
        "ORDERS_EU",
        "A[1]",
    ]
    assert "anything" in StreamSelection()


async def test_a_leader_steps_down_once_in_a_stall_and_again_in_a_later_one() -> None:
    asked: list[str] = []

    async def request(subject: str, **_: Any) -> None:
        asked.append(subject)

    settings = loads("rules: [{name: watch, kind: watch, on_stall: step_down}]", Path(), "bridge.yaml", {})
    connection = object.__new__(Connection)
    connection.api = cast(Any, SimpleNamespace(request=request))
    run = WatchRun(cast(WatchRule, settings.rules[0]), connection, RuleContext("bridge", "native", lambda _: None))
    (link,) = links_of([{"config": {"name": "T", "mirror": {"name": "S"}}}])
    stalled = LinkState(link, "stalled", reason=Reason("wedged", "", "", new_leader_helps=True), replicas=2)

    async def see(state: LinkState, now: float) -> int:
        run._take([state], now)
        await run._help([state], now)
        return len(asked)

    assert [await see(stalled, now) for now in (0, 10, 100_000)] == [1, 1, 1]
    assert await see(LinkState(link, "complete"), 100_000) == 1
    assert [await see(stalled, now) for now in (100_599, 100_600, 100_601)] == [1, 2, 2]
    assert asked == ["STREAM.LEADER.STEPDOWN.T"] * 2


def test_links_and_their_records() -> None:
    external = {"name": "S", "external": {"api": "$JS.hub.API"}}
    transformed = {"name": "S", "subject_transforms": [{"src": "a", "dest": "b"}, {"src": "c", "dest": ""}]}
    streams: list[dict[str, Any]] = [
        {"config": {"name": "M", "mirror": {"name": "S"}}},
        {"config": {"name": "T", "sources": [external, transformed, {"name": "S", "filter_subject": "a"}]}},
        {"config": {"name": "plain"}},
    ]
    mirror, hub, several, filtered = links_of(streams)
    assert [link.name for link in (mirror, hub, several, filtered)] == [
        "M <- S",
        "T <- S",
        "T <- S (a, c)",
        "T <- S (a)",
    ]
    assert len({link.identity for link in (mirror, hub, several, filtered)}) == 4
    assert mirror.is_mirror
    assert hub.is_external
    assert hub.copied(SourceRecord(b"S:" + _hash(), 1))
    assert not hub.copied(SourceRecord(b"S", 1))
    assert several.copied(SourceRecord(b"S", 1, (b"a", b"c"), (b"b", b">")))
    assert not several.copied(SourceRecord(b"S", 1, (b"a",), (b">",)))
    assert filtered.copied(SourceRecord(b"S", 1, (b"a",), (b">",)))
    assert filtered.copied(SourceRecord(b"S", 1))


def test_several_sources_of_a_name() -> None:
    entries: list[dict[str, Any]] = [
        {"name": "S", "subject_transforms": [{"src": "a", "dest": "b"}]},
        {"name": "S", "subject_transforms": [{"src": "a", "dest": "c"}]},
        {"name": "S", "filter_subject": "x"},
        {"name": "S", "external": {"api": "$JS.hub.API", "deliver": ""}},
    ]
    answer = {
        "config": {"name": "T", "sources": entries},
        "sources": [{**each, "lag": at} for at, each in enumerate(entries)],
    }
    links = list(links_of([answer]))
    assert len({link.identity for link in links}) == 4
    assert [link.reported(answer)["lag"] for link in links] == [0, 1, 2, 3]
    assert links[2].reported({"sources": [{"name": "S", "lag": 7}]})["lag"] == 7  # as 2.9 says it


def _hash() -> bytes:
    from nats_transforms.source_record import external_name

    return external_name(b"S", b"$JS.hub.API").partition(b":")[2]
