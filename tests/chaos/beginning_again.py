"""Judges rules whose source is in memory: it begins again, with sequence 1, whenever its server restarts.

Sequences name no message then, so messages are known by their number, which stands in the subject. A message of an
earlier beginning may be gone before a rule has read it. Every message that the stream holds at the end must have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.evidence import compare, compare_copy, republished_lines
from tests.chaos.findings import Judgement, Verdict
from tests.chaos.plan import RuleUnderTest
from tests.chaos.story import Original, Stored, Story


def begun_again(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Judge a rule by what subscribers received, or by what its target holds."""
    (stream,) = rule.sources
    sent = story.sent[stream]
    numbers = {rule.destination(message.subject): number for number, message in sent.items()}
    first: dict[int, float] = {}
    order: list[tuple[int, float]] = []
    for at, came, copy in _arrivals(story, rule):
        judgement.seen += 1
        number = numbers.get(came.subject)
        if number is None:
            judgement.add("invented", "violation", came.subject, at)
            continue
        if copy is None:
            compare(judgement, rule, came, sent[number], f"number {number}", at)
            if republished_lines(came, sent[number], stream) is None:
                judgement.add("wrong headers", "violation", f"number {number}: {came.block!r}", at)
        else:
            compare_copy(judgement, story, rule, copy, sent[number], f"number {number}")
        if number in first:
            repeats = rule.promise == "at_least_once" and story.broken(first[number], at)
            judgement.add("duplicated", "allowed" if repeats else "violation", f"number {number}", at)
            continue
        first[number] = at
        order.append((number, at))
    counted = story.out_of_order[rule.name]
    for (before, _), (number, at) in pairwise(order):
        if number < before:
            verdict: Verdict = "allowed" if counted > 0 or _in_one_batch(story, stream, number, before) else "violation"
            judgement.add("reordered", verdict, f"number {number} behind {before}", at)
    held = story.final[stream]
    judgement.expected = len(held)
    for sequence in sorted(held):
        number = numbers.get(rule.destination(held[sequence].message.subject))
        if number is not None and number not in first:
            judgement.add("lost", "violation", f"{stream} {sequence}, number {number}", story.when(held[sequence]))


def _arrivals(story: Story, rule: RuleUnderTest) -> Iterator[tuple[float, Original, Stored | None]]:
    """When each message came, the message, and the copy in the target if there is one."""
    if not rule.target:
        for received in story.received[rule.name]:
            yield received.at, received.message, None
        return
    rows = story.final[rule.target]
    for place in sorted(rows):
        yield story.when(rows[place]), rows[place].message, rows[place]


def _in_one_batch(story: Story, stream: str, number: int, before: int) -> bool:
    """Whether the later number was sent before the earlier one was answered: servers may store these in any order."""
    sent_at = story.sent_at[stream]
    answered = sent_at[number][1]
    return answered is None or sent_at[before][0] <= answered
