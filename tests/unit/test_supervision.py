"""The decisions of a supervisor: every event in every state, what it keeps of each, and what it reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from nats_bridge.errors import BridgeError, ConnectionLostError, RuleRefusedError, StreamMissingError
from nats_bridge.rules.supervision import (
    SUPERVISION,
    AbsentStream,
    PauseBefore,
    StartAttempt,
    Supervision,
    SupervisionAction,
    SupervisionEvent,
    SupervisionReport,
    SupervisionState,
    SupervisorState,
    WorkSince,
)
from nats_bridge.states import IllegalTransitionError
from tests.unit.test_states import ways

CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
ABSENT = StreamMissingError("stream 'S' does not exist", connection="default", stream="S")
AWAY = ConnectionLostError("no server")
REFUSED = RuleRefusedError("it loops")
WAYS = ways(SUPERVISION, "new")
DETAILS = {
    "absent": AbsentStream,
    "waiting": AbsentStream,
    "checking": StartAttempt,
    "electing": StartAttempt,
    "standby": StartAttempt,
    "starting": StartAttempt,
    "unchecked": PauseBefore,
    "unstarted": PauseBefore,
    "failed": PauseBefore,
    "ready": WorkSince,
}


def apply(supervision: Supervision, event: str, at: float = 0.0) -> SupervisionReport:
    """Let something happen as the supervisor would report it."""
    match event:
        case "resume":
            return supervision.resume(awaited=False)
        case "missing":
            return supervision.missing(ABSENT)
        case "away":
            return supervision.prevented(AWAY, at, CLOCK, fail_fast=False)
        case "failed":
            return supervision.failed(REFUSED, at, CLOCK, fail_fast=False)
        case "given_up":
            return supervision.failed(REFUSED, at, CLOCK, fail_fast=True)
        case _:
            return supervision.happened(event, at)  # type: ignore[arg-type]


def in_state(state: str) -> Supervision:
    """A supervision that has come to a state by the fewest events."""
    supervision = Supervision()
    for event in WAYS[state]:
        apply(supervision, event)
    assert supervision.state == state
    return supervision


@pytest.mark.parametrize("state", get_args(SupervisionState))
def test_every_event_in_every_state_follows_the_drawing(state: SupervisionState) -> None:
    for event in get_args(SupervisionEvent):
        supervision, following = in_state(state), SUPERVISION.rows[state][event]
        if event == "away" and following == "-" and SUPERVISION.rows[state]["failed"] != "-":
            following = "failed"  # only a start can be put off
        if following == "-":
            with pytest.raises(IllegalTransitionError):
                apply(supervision, event)
            assert supervision.state == state, event
            continue
        apply(supervision, event)
        assert supervision.state == following, event
        assert type(supervision.details).__name__ == DETAILS.get(following, type(Supervision().details)).__name__
        assert supervision.shown in get_args(SupervisorState)
        assert supervision.action in get_args(SupervisionAction)


@pytest.mark.parametrize("state", get_args(SupervisionState))
def test_a_halted_rule_ends_whatever_still_happens(state: SupervisionState) -> None:
    supervision = in_state(state)
    supervision.happened("halt", 0.0)
    for event in get_args(SupervisionEvent):
        if event not in ("resume", "halted"):
            assert apply(supervision, event) == "nothing"
    assert (supervision.shown, supervision.action) == ("draining", "none")
    supervision.happened("halted", 0.0)
    assert supervision.shown == ("failed" if state in ("failed", "given_up", "closing") else "stopped")
    supervision.resume(awaited=False)
    assert (supervision.state, supervision.failure) == ("checking", None)


@pytest.mark.parametrize("state", ["waiting", "standby", "ready"])
def test_a_start_has_begun_when_it_works_or_waits_for_others(state: str) -> None:
    *before, last = WAYS[state]
    supervision = Supervision()
    for event in before:
        assert apply(supervision, event) == "nothing"
    supervision.awaited = True
    assert apply(supervision, last) == "begun"
    assert not supervision.awaited


def test_a_server_that_is_away_delays_a_start_longer_each_time() -> None:
    supervision, pauses = Supervision(), []
    supervision.resume(awaited=False)
    for at in range(6):
        assert apply(supervision, "away", at) == "delayed"
        assert supervision.pause.until == at + supervision.pause.seconds
        pauses.append(supervision.pause.seconds)
        assert supervision.attempt.obstacle == "no server"
        supervision.happened("done", at)
    assert pauses == [0.25, 0.5, 1.0, 2.0, 5.0, 5.0]
    supervision.happened("done", 0.0)
    assert (supervision.state, supervision.attempt) == ("electing", StartAttempt(0, "no server"))


@pytest.mark.parametrize(("waits", "pauses"), [(False, [0.25, 0.5, 1.0]), (True, [0.25, 0.25, 0.25])])
def test_pauses_grow_only_if_no_other_replica_could_lead(waits: bool, pauses: list[float]) -> None:
    supervision, seen = in_state("electing"), []
    for _ in range(3):
        for event in ("done", "done") if waits else ("led",):
            apply(supervision, event)
        apply(supervision, "away")
        seen.append(supervision.pause.seconds)
        assert supervision.state == "unstarted"
        apply(supervision, "done")
    assert seen == pauses


@pytest.mark.parametrize("state", ["checking", "starting"])
@pytest.mark.parametrize("error", [AWAY, REFUSED])
def test_a_caller_of_a_start_gets_its_first_error(state: str, error: BridgeError) -> None:
    supervision = in_state(state)
    supervision.awaited = True
    assert supervision.prevented(error, 0.0, CLOCK, fail_fast=False) == "refused"
    assert supervision.failure is not None
    assert (supervision.state, supervision.awaited) == ("given_up", False)
    assert (supervision.failure.error, supervision.failure.again_at) == (error, None)


def test_a_rule_that_fails_fast_is_not_started_again() -> None:
    supervision = in_state("ready")
    assert apply(supervision, "given_up") == "failed"
    assert supervision.failure is not None
    assert (supervision.action, supervision.failure.again_at) == ("none", None)


def test_failures_are_counted_until_a_rule_has_worked_for_a_minute() -> None:
    supervision, tries = in_state("ready"), []

    def fails(worked_for: float) -> None:
        assert isinstance(supervision.details, WorkSince)
        at = supervision.details.since + worked_for
        assert apply(supervision, "failed", at) == "failed"
        assert supervision.failure is not None
        assert supervision.failure.again_at == CLOCK + timedelta(seconds=supervision.pause.seconds)
        tries.append(supervision.failure.tries)
        for event in ("done", "done", "led"):
            apply(supervision, event, at)
            assert supervision.failure is not None  # until it works
        apply(supervision, "done", at)
        assert supervision.failure is None

    for worked_for in (0.0, 59.0, 60.0, 0.0):
        fails(worked_for)
    assert tries == [1, 2, 1, 2]


def test_work_of_a_minute_counts_also_if_the_lead_is_lost_then() -> None:
    supervision = in_state("ready")
    supervision.tries = 4
    apply(supervision, "lost", 60.0)
    assert supervision.tries == 0


@pytest.mark.parametrize(("event", "searches"), [("done", True), ("failed", True), ("halt", False)])
def test_loops_are_searched_for_after_a_stream_appeared_and_a_refusal(event: str, searches: bool) -> None:
    supervision = in_state("waiting")
    apply(supervision, event)
    assert supervision.may_loop is searches


def test_a_start_stays_kept_until_the_rule_is_halted() -> None:
    supervision: Any = in_state("ready")
    supervision.start_kept = True
    for event in ("lost", "done", "done", "done", "done", "surplus", "done"):
        apply(supervision, event)
        assert supervision.start_kept
    apply(supervision, "halt")
    assert not supervision.start_kept


def test_a_missing_stream_of_an_earlier_check_is_waited_for() -> None:
    supervision = Supervision()
    apply(supervision, "missing")
    assert apply(supervision, "resume") == "begun"
    assert (supervision.action, supervision.absent.error) == ("await_stream", ABSENT)
