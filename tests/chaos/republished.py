"""Judges what a republish rule published."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime

from tests.chaos.evidence import compare, header, republished_lines, version
from tests.chaos.findings import Judgement, Verdict
from tests.chaos.plan import RuleUnderTest
from tests.chaos.story import Original, Received, Story


def republished(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Judge a rule by what a subscriber received."""
    stream = rule.sources[0]
    originals = story.originals(stream)
    judgement.seen = len(story.received[rule.name])
    first_received: dict[int, float] = {}
    lost_received: dict[tuple[int, Original], float] = {}  # of messages that a power cut took back
    before: dict[str, list[int]] = {}
    for sequence in sorted(originals):
        before.setdefault(originals[sequence].subject, []).append(sequence)
    newest, set_backs = 0, story.set_backs(stream)
    for received in story.received[rule.name]:
        sequence = int(header(received.message.block, "Nats-Sequence") or 0)
        original = version(story, rule, stream, sequence, received.message)
        while set_backs and received.at > set_backs[0]:
            newest = 0  # the stream continues before where it was
            del set_backs[0]
        if original is None:
            verdict = story.unless_taken_back(stream, sequence)
            judgement.add("invented", verdict, f"{received.message.subject}, sequence {sequence}", received.at)
            continue
        kept = original == originals[sequence]
        _compare_republished(judgement, story, rule, received, sequence, original, before if kept else None)
        first = first_received.get(sequence) if kept else lost_received.get((sequence, original))
        if first is not None:
            allowed = rule.promise == "at_least_once" and story.broken(first, received.at)
            allowed |= story.set_back(first, received.at) or story.position_lost(first, received.at)
            judgement.add("duplicated", "allowed" if allowed else "violation", f"{stream} {sequence}", received.at)
            continue
        if not kept:
            lost_received[sequence, original] = received.at
            continue
        first_received[sequence] = received.at
        if sequence < newest:
            # A killed process had written it to a connection that hangs. It was removed since, so no other one sent it.
            is_late = rule.promise == "at_least_once" and story.was_removed(stream, sequence)
            is_late &= story.crashed(0.0, received.at)
            verdict = "allowed" if is_late else "violation"
            judgement.add("reordered", verdict, f"{stream} {sequence} behind {newest}", received.at)
        newest = max(newest, sequence)
    _missing_republished(judgement, story, rule, first_received)


def _missing_republished(
    judgement: Judgement, story: Story, rule: RuleUnderTest, first_received: Mapping[int, float]
) -> None:
    stream = rule.sources[0]
    wanted = [sequence for sequence in sorted(story.final[stream]) if not story.was_removed(stream, sequence)]
    judgement.expected = len(wanted)
    # Each missing message lies between two that came; what happened between these must be the reason.
    doubted = story.in_doubt[rule.name]
    arrivals = sorted(first_received.items())
    place = 0
    for sequence in [each for each in wanted if each not in first_received]:
        while place < len(arrivals) and arrivals[place][0] < sequence:
            place += 1
        begin = arrivals[place - 1][1] if place else 0.0
        end = arrivals[place][1] if place < len(arrivals) else story.end
        if rule.promise == "at_least_once":
            # kd/messages/removed-in-hand: the server counts all before the removed message as acknowledged.
            excused = story.crashed(begin, end) and story.removed_behind(stream, sequence, begin, end)
            verdict: Verdict = "allowed" if excused else "violation"
            judgement.add("lost", verdict, f"{stream} {sequence}", story.when(story.final[stream][sequence]))
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
    before: Mapping[str, list[int]] | None,
) -> None:
    """One republished message; `before` has the sequences of each subject, None where its message was lost."""
    stream, came = rule.sources[0], received.message
    stored = story.final[stream].get(sequence) if before is not None else None
    compare(judgement, rule, came, original, f"{stream} {sequence}", received.at)
    lines = republished_lines(came, original, stream)
    if lines is None or int(lines[1]) != sequence:
        judgement.add("wrong headers", "violation", f"{stream} {sequence}: {came.block!r}", received.at)
        return
    if stored is not None and lines[2] != _time_text(stored.time_ns):
        judgement.add("wrong headers", "violation", f"{stream} {sequence}: time {lines[2]}", received.at)
    if before is None:
        return
    row = before[original.subject]
    place = bisect_left(row, sequence)
    last, said = row[place - 1] if place else 0, int(lines[3])
    if said != last:
        # What was removed may have been there still, or not any more, when the message was stored; the same holds for
        # what a server has lost. If it has lost the message, the sequences before that may be of others now.
        lost = sequence not in story.final[stream] and not story.was_removed(stream, sequence)
        removed = lost or any(
            story.was_removed(stream, each) or (each and each not in story.final[stream]) for each in (last, said)
        )
        verdict: Verdict = "unknown" if removed and said < sequence else "violation"
        detail = f"{stream} {sequence}: last sequence {said}, not {last}"
        judgement.add("wrong headers", verdict, detail, received.at)


def _time_text(time_ns: int) -> str:
    seconds, nanos = divmod(time_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}".rstrip("0").rstrip(".") + "Z"
