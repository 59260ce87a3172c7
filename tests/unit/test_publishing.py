"""What a publisher decides, without a server: states, recovery, room, and answers that are overdue."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import pytest

from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import Window
from nats_bridge.kinds.copying.writing.publishing import (
    Advanced,
    Fail,
    Interrupt,
    Publishing,
    Recover,
    Terms,
    Transmit,
)
from nats_bridge.kinds.copying.writing.recovery import AwaitAnswers, Decide, Recovery, Retry
from tests.unit.test_unconfirmed import INBOX, SECOND, asked, duplicate, operations, refused, stored

FULL = (503, 10077)  # maximum messages exceeded


def publishing(*, one_by_one: float = 0, exclusive: bool = False, messages: int = 0, **more: Any) -> Publishing:
    config = {"name": "T", "subjects": ["t.>"], "duplicate_window": 120 * SECOND, "discard": "old", **more}
    info = {"config": config, "created": "2026-01-01T00:00:00Z", "state": {"messages": messages, "bytes": 0}}
    terms = Terms(exclusive=exclusive, one_by_one=one_by_one)
    return Publishing(Target.of(info, "2.10.27"), INBOX, CopyCounters(), terms, Window())


def recovering(*answers: Any) -> tuple[Publishing, Recovery]:
    """Messages 1, 2 and 3, each with its own reply subject, and the answers to them."""
    made = publishing()
    made.write(operations(1, 2, 3), 1.0)
    request, recover = made.answered([refused(b"g3", *FULL)], 1.0)
    assert isinstance(request, Transmit)
    assert asked(request.data) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert isinstance(recover, Recover)
    assert made.state == "recovering"
    made.answered(list(answers), 2.0)
    return made, Recovery(made)


def test_what_is_stored_is_reported_with_the_time_when_it_was_sent() -> None:
    made = publishing()
    made.write(operations(1, 2), 1.5)
    assert made.answered(stored(b"g2", 1), 2.0) == ()
    assert made.answered(stored(b"g2", 2), 3.0) == (Advanced(1.5),)
    assert (made.state, made.has_work, made.counters.copied) == ("pipelined", False, 2)


def test_a_full_target_gets_the_first_message_again_after_growing_pauses() -> None:
    made, recovery = recovering(*stored(b"1", 1), refused(b"2", *FULL), refused(b"3", *FULL))
    pauses, waits = [], []
    for _ in range(10):
        step = recovery.next_step(2.0)
        assert isinstance(step, Retry)
        pauses.append(step.pause)
        waits.append(step.begins_waiting)
        assert asked(recovery.again(step.operation)) == [(2, b"2")]
        assert recovery.next_step(2.0) == AwaitAnswers()
        made.answered([refused(b"2", *FULL)], 2.0)
    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert waits == [True] + [False] * 9
    step = recovery.next_step(2.0)
    assert isinstance(step, Retry)
    recovery.again(step.operation)
    made.answered(stored(b"2", 2), 2.0)
    step = recovery.next_step(2.0)
    assert isinstance(step, Retry)
    assert (step.operation, step.pause) == (operations(3)[0], 0)
    recovery.again(step.operation)
    made.answered(stored(b"3", 3), 2.0)
    assert recovery.next_step(2.0) is None
    assert made.recovered()
    assert (made.state, made.counters.copied, made.counters.out_of_order) == ("stepping", 3, 0)


def test_a_message_that_is_stored_behind_later_ones_is_counted_once() -> None:
    made, recovery = recovering(refused(b"1", *FULL), *stored(b"2", 1), *stored(b"3", 2))
    for sequence in (0, 3):
        step = recovery.next_step(2.0)
        assert isinstance(step, Retry)
        recovery.again(step.operation)
        made.answered(stored(b"1", sequence) if sequence else [refused(b"1", *FULL)], 2.0)
    assert recovery.next_step(2.0) is None
    assert (made.unconfirmed.messages.last_confirmed, made.counters.out_of_order) == (3, 1)


def test_a_rejected_message_is_skipped_when_the_policy_has_decided() -> None:
    made, recovery = recovering(*stored(b"1", 1), refused(b"2"), *stored(b"3", 2))
    step = recovery.next_step(2.0)
    assert isinstance(step, Decide)
    assert (step.operation, step.pub_ack.err_code) == (operations(2)[0], 10054)
    recovery.skip()
    assert recovery.next_step(2.0) is None
    assert not made.recovered()
    assert (made.state, made.counters.copied, made.unconfirmed.messages.last_confirmed) == ("pipelined", 2, 3)


def test_no_policy_decides_about_a_message_already_counted_as_stored() -> None:
    made, recovery = recovering(*stored(b"1", 1), refused(b"2"), *stored(b"3", 2))
    made.unconfirmed.messages.uncounted.add(b"2")
    assert recovery.next_step(2.0) is None
    assert made.unconfirmed.messages.uncounted == set()


def test_nothing_new_is_written_while_recovering() -> None:
    made, _ = recovering()
    assert not made.may_write(operations(4))
    assert made.recovers


def test_one_message_at_a_time_until_one_is_stored() -> None:
    made = publishing(one_by_one=1)
    assert not made.may_write(operations(1, 2, 3))
    pending = deque(operations(1, 2, 3))
    assert made.portion(pending) == operations(1)
    assert not made.stepped()  # it was skipped, say
    assert made.portion(pending) == operations(2)
    made.write(operations(2), 1.0)
    made.answered(stored(b"g2", 1), 1.0)
    assert not made.stepped()
    assert (made.state, made.portion(pending), len(pending)) == ("pipelined", operations(3), 0)


def test_one_message_at_a_time_without_end() -> None:
    made = publishing(one_by_one=math.inf)
    for number in range(1, 4):
        made.write(operations(number), 1.0)
        made.answered(stored(b"g%d" % number, number), 1.0)
        made.stepped()
    assert made.state == "stepping"


def test_a_target_that_refuses_when_full_gets_no_more_than_it_has_room_for() -> None:
    made = publishing(discard="new", max_msgs=10, messages=7)
    assert made.may_write(operations(1, 2, 3))
    assert not made.may_write(operations(1, 2, 3, 4))
    made.write(operations(1, 2), 1.0)
    pending = deque(operations(3, 4))
    assert made.portion(pending) == operations(3)
    assert made.state == "stepping"
    made.happened("pipeline")
    made.set_room((5, math.inf))
    assert made.may_write(operations(4, 5, 6, 7, 8))


def test_another_writer_matters_only_while_answers_stand_for_groups() -> None:
    alone, shared = publishing(exclusive=True), publishing()
    for made in (alone, shared):
        made.write(operations(1, 2), 1.0)
    (action,) = alone.request_each(1.0)
    assert isinstance(action, Transmit)
    assert asked(action.data) == [(1, b"1"), (2, b"2")]
    assert alone.request_each(1.0) == shared.request_each(1.0) == ()


def test_what_may_be_stored_twice_interrupts() -> None:
    made = publishing(exclusive=True)
    made.write(operations(1, 2), 1.0)
    (action,) = made.request_each(100.0)
    assert isinstance(action, Interrupt)
    assert "may have forgotten the ids" in action.reason


def test_another_stream_that_answers_ends_the_rule() -> None:
    made = publishing()
    made.write(operations(1), 1.0)
    (action,) = made.answered([(INBOX + b"g1", b"", b"", b'{"stream":"OTHER", "seq":1}')], 1.0)
    assert isinstance(action, Fail)
    assert isinstance(action.error, RuleRefusedError)


def test_answers_are_overdue_when_none_came_between_two_checks() -> None:
    made = publishing()
    assert not made.answers_are_overdue()
    made.write(operations(1, 2, 3), 1.0)
    assert not made.answers_are_overdue()
    made.answered(stored(b"g3", 1), 1.0)
    assert not made.answers_are_overdue()
    assert made.answers_are_overdue()
    made.answered(stored(b"g3", 2, 3), 1.0)
    assert not made.answers_are_overdue()


@pytest.mark.parametrize("event", ["not_stored", "full", "pipeline", "step", "over"])
def test_nothing_leads_out_of_over(event: Any) -> None:
    made = publishing()
    made.happened("over")
    made.happened(event)
    assert (made.state, made.may_write(operations(1))) == ("over", False)


def test_a_duplicate_in_a_group_is_stored_already() -> None:
    made = publishing()
    made.write(operations(1, 2), 1.0)
    assert made.answered([duplicate(b"g2", 1), *stored(b"g2", 2)], 2.0) == (Advanced(1.0),)
    assert (made.counters.copied, made.counters.duplicates) == (1, 1)
