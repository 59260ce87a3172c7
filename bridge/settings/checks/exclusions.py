"""`exclude`: subjects, or keys, that a rule leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nats_bridge.bridge.settings.checks.patterns import covers, filter_problem
from nats_bridge.bridge.settings.problems import Problem
from nats_bridge.marked_yaml import Path

__all__ = ["exclusion_problems"]


def exclusion_problems(
    exclude: Sequence[str], selected: Sequence[str], at: Path, done: str, noun: str = "subject"
) -> Iterator[Problem]:
    """What is wrong with `exclude`.

    Args:
        exclude: the patterns to leave out.
        selected: what the rule selects without them.
        at: where `exclude` stands.
        done: what happens to the messages that are left, such as `copied`.
        noun: what the patterns select.
    """
    wrong = [
        Problem((*at, number), reason)
        for number, pattern in enumerate(exclude)
        if (reason := filter_problem(pattern, noun)) is not None
    ]
    yield from wrong
    if exclude and not wrong and all(any(covers(pattern, wanted) for pattern in exclude) for wanted in selected):
        shown = ", ".join(f"'{wanted}'" for wanted in selected)
        yield Problem(at, f"leaves out all of {shown}; nothing would be {done}; exclude less")
