"""Judges what a republish rule published."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime

from chaos.evidence import lost_tail, opened, time_of
from chaos.findings import Judgement, Verdict
from chaos.plan import RuleUnderTest
from chaos.story import Original, Received, Stored, Story

__all__ = ["republished"]

_SEQUENCE = re.compile(r"\r\nNats-Sequence: ([0-9]+)\r\n")


def republished(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Judge a rule by what a subscriber received."""
    stream = rule.sources[0]
    originals = story.originals(stream)
    final = story.final[stream]
    judgement.seen = len(story.received[rule.name])
    first_received: dict[int, float] = {}
    before: dict[str, list[int]] = {}
    for sequence in sorted(originals):
        before.setdefault(originals[sequence].subject, []).append(sequence)
    newest = 0
    order: list[tuple[int, float]] = []
    for received in story.received[rule.name]:
        found = _SEQUENCE.search(received.message.block)
        sequence = int(found[1]) if found else 0
        original = originals.get(sequence)
        if original is None:
            # An answer can be lost: then only the stream knew the message, and it may have been removed since.
            verdict: Verdict = (
                "unknown" if story.was_removed(stream, sequence) or lost_tail(story, stream) else "violation"
            )
            judgement.add("invented", verdict, f"{received.message.subject}, sequence {sequence}", received.at)
            continue
        _compare_republished(judgement, story, rule, received, sequence, original, final.get(sequence), before)
        if sequence in first_received:
            allowed = rule.promise == "at_least_once" and story.broken(first_received[sequence], received.at)
            judgement.add("duplicated", "allowed" if allowed else "violation", f"{stream} {sequence}", received.at)
            continue
        first_received[sequence] = received.at
        order.append((sequence, received.at))
        if sequence < newest:
            judgement.add("reordered", "violation", f"{stream} {sequence} behind {newest}", received.at)
        newest = max(newest, sequence)
    _missing_republished(judgement, story, rule, order, first_received)


def _missing_republished(
    judgement: Judgement,
    story: Story,
    rule: RuleUnderTest,
    order: list[tuple[int, float]],
    first_received: Mapping[int, float],
) -> None:
    stream = rule.sources[0]
    wanted = [sequence for sequence in sorted(story.final[stream]) if not story.was_removed(stream, sequence)]
    judgement.expected = len(wanted)
    missing = [sequence for sequence in wanted if sequence not in first_received]
    if not missing:
        return
    # Each missing message lies between two that came; what happened between these must be the reason.
    doubted = story.in_doubt[rule.name]
    arrivals = sorted(order)
    place = 0
    for sequence in missing:
        while place < len(arrivals) and arrivals[place][0] < sequence:
            place += 1
        begin = arrivals[place - 1][1] if place else 0.0
        end = arrivals[place][1] if place < len(arrivals) else story.end
        if rule.promise == "at_least_once":
            # kd/messages/removed-in-hand: the server counts all before the removed message as acknowledged.
            excused = story.crashed(begin, end) and story.removed_behind(stream, sequence, begin, end)
            verdict: Verdict = "allowed" if excused else "violation"
            judgement.add("lost", verdict, f"{stream} {sequence}", time_of(story, stream, sequence))
        elif story.crashed(begin, end):
            judgement.add("lost", "allowed", f"{stream} {sequence}: a crash", end)
        elif doubted > 0:
            doubted -= 1
            judgement.add("lost", "allowed", f"{stream} {sequence}: counted as in doubt", end)
        else:
            judgement.add("lost", "violation", f"{stream} {sequence}, no crash and not counted", end)


def _compare_republished(
    judgement: Judgement,
    story: Story,
    rule: RuleUnderTest,
    received: Received,
    sequence: int,
    original: Original,
    stored: Stored | None,
    before: Mapping[str, list[int]],
) -> None:
    stream, came = rule.sources[0], received.message
    wanted = rule.destination(original.subject)
    if came.subject != wanted:
        judgement.add("wrong subject", "violation", f"{came.subject}, not {wanted}", received.at)
    if (came.size, came.digest) != (original.size, original.digest):
        judgement.add(
            "wrong bytes", "violation", f"{stream} {sequence}: {came.size} bytes, not {original.size}", received.at
        )
    fixed = (
        f"{opened(original.block)}Nats-Stream: {stream}\r\nNats-Subject: {original.subject}\r\n"
        f"Nats-Sequence: {sequence}\r\nNats-Time-Stamp: "
    )
    rest = came.block.removeprefix(fixed)
    shape = re.fullmatch(r"([^\r]+)\r\nNats-Last-Sequence: ([0-9]+)\r\n\r\n", rest)
    if not came.block.startswith(fixed) or shape is None:
        judgement.add("wrong headers", "violation", f"{stream} {sequence}: {came.block!r}, not {fixed!r}…", received.at)
        return
    if stored is not None and shape[1] != _time_text(stored.time_ns):
        judgement.add("wrong headers", "violation", f"{stream} {sequence}: time {shape[1]}", received.at)
    row = before[original.subject]
    place = bisect_left(row, sequence)
    last, said = row[place - 1] if place else 0, int(shape[2])
    if said != last:
        # What was removed may have been there still, or not any more, when the message was stored.
        removed = story.was_removed(stream, last) or story.was_removed(stream, said)
        judgement.add(
            "wrong headers",
            "unknown" if removed else "violation",
            f"{stream} {sequence}: last sequence {said}, not {last}",
            received.at,
        )


def _time_text(time_ns: int) -> str:
    seconds, nanos = divmod(time_ns, 10**9)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanos:09d}".rstrip("0").rstrip(".")
    return f"{text}{fraction}Z"
