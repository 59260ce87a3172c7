"""When a stream's limits overtake a rule, from two readings of both."""

from __future__ import annotations

import pytest

from nats_bridge.consuming.lag import Edge, pause_after, time_left


@pytest.mark.parametrize(
    ("before", "now", "seconds"),
    [
        (Edge(0, "a", 1, 100), Edge(5, "a", 11, 100), 45.0),  # 2 a second, 90 of them left
        (Edge(0, "a", 1, 100), Edge(5, "a", 21, 110), 45.0),  # the rule goes half as fast
        (Edge(0, "a", 1, 100), Edge(5, "a", 21, 120), None),  # as fast
        (Edge(0, "a", 1, 0), Edge(5, "a", 1, 0), None),  # begins at the start of what is kept
        (Edge(0, "a", 1, 100), Edge(5, "a", 1, 90), None),  # goes back, and nothing is removed
        (Edge(0, "a", 90, 100), Edge(5, "a", 200, 100), 0.0),  # overtaken
        (Edge(0, "a", 1, 100), Edge(5, "b", 11, 100), None),  # another stream
        (Edge(5, "a", 1, 100), Edge(5, "a", 11, 100), None),
    ],
)
def test_seconds_until_limits_remove_what_was_not_taken(before: Edge, now: Edge, seconds: float | None) -> None:
    assert time_left(before, now) == seconds


@pytest.mark.parametrize(
    ("first", "handled", "headroom"), [(1, 0, 0), (1, 10, 10), (11, 10, 0), (12, 10, 0), (5, 10, 6)]
)
def test_headroom_is_what_can_be_removed_before_the_next_message(first: int, handled: int, headroom: int) -> None:
    assert Edge(0, "a", first, handled).headroom == headroom


def test_a_rule_that_has_nothing_to_do_asks_less_and_less_often() -> None:
    pauses = [2.0]
    for _ in range(5):
        pauses.append(pause_after(pauses[-1], idle=True))
    assert pauses == [2.0, 5.0, 10.0, 20.0, 20.0, 20.0]
    assert pause_after(20.0, idle=False) == 2.0
