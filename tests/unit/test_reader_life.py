"""The states of a reader: every event in every state, and what its queue holds back."""

from __future__ import annotations

from typing import get_args

import pytest

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.reader_life import MARK, READER, Queued, ReaderEvent, ReaderLife, ReaderState
from nats_bridge.states import IllegalTransitionError
from tests.unit.test_states import ways

WAYS = ways(READER, "new")
WORKING = {"opening", "busy", "checking", "finishing"}


def batch(payload: bytes) -> list[Delivered]:
    return [(b"s", b"", b"", payload)]


A, B, C = batch(b"a"), batch(b"b"), batch(b"c")
BEAT: Queued = (b"$JS.FC.S.c", b"")


def in_state(state: str) -> ReaderLife:
    """A life that has come to a state by the fewest events."""
    life = ReaderLife()
    for event in WAYS[state]:
        if event == "away":
            life.happened("lost")
        life.happened(event)  # type: ignore[arg-type]
    assert life.state == state
    return life


@pytest.mark.parametrize("state", get_args(ReaderState))
def test_every_event_in_every_state_follows_the_drawing(state: ReaderState) -> None:
    for event in get_args(ReaderEvent):
        life, following = in_state(state), READER.rows[state][event]
        if following == "-":
            with pytest.raises(IllegalTransitionError):
                life.happened(event)
            assert life.state == state, event
            continue
        life.happened(event)
        assert life.state == following, event
        assert life.queues == (following not in ("flowing", "draining")), event
        assert life.closes == (following in ("draining", "finishing", "closed")), event


def test_only_a_wait_a_check_or_a_close_begins_work() -> None:
    begins = {
        event
        for state, row in READER.rows.items()
        for event, following in row.items()
        if state not in WORKING and following in WORKING
    }
    assert begins == {"open", "wait", "check", "close"}
    assert READER.rows["cut_off"]["close"] == "finishing"  # what has waited there is delivered


def test_what_arrives_while_the_sink_is_awaited_follows_in_order() -> None:
    life = in_state("busy")
    life.queue += [A, BEAT]
    assert [life.next_item(connected=True, durable=True) for _ in range(3)] == [A, BEAT, None]
    assert life.state == "flowing"


def test_a_check_comes_before_what_arrived_after_a_lost_connection() -> None:
    life = in_state("busy")
    life.queue.append(A)
    life.happened("lost")
    life.happened("lost")
    life.queue.append(B)
    assert (life.uncertain, life.items) == (True, [A, B])
    assert [life.next_item(connected=True, durable=True) for _ in range(2)] == [A, "check"]
    life.happened("check")
    life.queue.append(C)
    life.happened("checked")
    assert [life.next_item(connected=True, durable=True) for _ in range(3)] == [B, C, None]
    assert (life.state, life.uncertain) == ("flowing", False)


def test_nothing_behind_a_mark_is_delivered_while_the_connection_is_away() -> None:
    life = in_state("busy")
    life.happened("lost")
    life.queue.append(A)
    assert life.next_item(connected=False, durable=True) is None
    assert (life.state, list(life.queue)) == ("cut_off", [MARK, A])


def test_the_check_after_a_reconnect_is_the_one_that_the_mark_asks_for() -> None:
    life = in_state("flowing")
    life.happened("lost")
    life.queue.append(A)
    life.happened("check")
    assert list(life.queue) == [A]
    life.happened("checked")
    assert [life.next_item(connected=True, durable=True) for _ in range(2)] == [A, None]


def test_a_connection_that_is_lost_during_a_check_needs_another_one() -> None:
    life = in_state("checking")
    life.happened("lost")
    life.queue.append(A)
    life.happened("checked")
    assert life.next_item(connected=True, durable=True) == "check"


@pytest.mark.parametrize("state", ["busy", "checking", "cut_off"])
def test_a_reader_without_a_position_delivers_all_when_it_closes(state: str) -> None:
    life = in_state(state)
    life.happened("lost")
    life.queue.append(A)
    life.happened("close")
    assert [life.next_item(connected=connected, durable=False) for connected in (False, True)] == [A, None]
    assert life.state == "draining"


@pytest.mark.parametrize("state", ["busy", "checking", "cut_off"])
@pytest.mark.parametrize("connected", [True, False])
def test_a_durable_reader_that_closes_delivers_nothing_unchecked(state: str, connected: bool) -> None:
    life = in_state(state)
    life.happened("lost")
    life.queue.append(A)
    life.happened("close")
    assert life.next_item(connected=connected, durable=True) == ("check" if connected else None)
    assert life.state == ("finishing" if connected else "draining")


@pytest.mark.parametrize("lost", [True, False])
def test_what_waits_is_dropped_with_its_consumer_but_not_the_check(lost: bool) -> None:
    life = in_state("checking")
    life.queue.append(A)
    if lost:
        life.happened("lost")
    life.discard()
    assert (life.items, life.uncertain) == ([], lost)
    life.failed()
    assert life.state == ("cut_off" if lost else "flowing")
