"""Which message something was made of, where several had its sequence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.evidence import version
from tests.chaos.plan import RULES
from tests.chaos.story import Original

(TAKEN,) = (rule for rule in RULES if rule.name == "taken")


def numbered(number: int, size: int = 0) -> Original:
    return Original("tasks.eu.1", f"NATS/1.0\r\nChaos-Number: {number}\r\n\r\n", size, "digest")


def story_of(*versions: Original) -> Any:
    return SimpleNamespace(versions=lambda _stream, _sequence: list(versions))


@pytest.mark.parametrize("number", [1, 2])
def test_of_two_empty_messages_on_a_subject_the_number_decides(number: int) -> None:
    came = Original("taken.eu.1", f"NATS/1.0\r\nChaos-Number: {number}\r\nMore: 1\r\n\r\n", 0, "digest")
    found = version(story_of(numbered(1), numbered(2)), TAKEN, "TASKS", 7, came)
    assert found == numbered(number)


def test_a_payload_says_more_than_a_number() -> None:
    came = Original("taken.eu.1", "", 9, "digest")
    assert version(story_of(numbered(1), numbered(2, size=9), numbered(3)), TAKEN, "TASKS", 7, came) == numbered(2, 9)
    assert version(story_of(numbered(1), numbered(2)), TAKEN, "TASKS", 7, came) == numbered(2)
    assert version(story_of(), TAKEN, "TASKS", 7, came) is None
