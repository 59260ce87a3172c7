"""Judges copies of messages: each once, in order, as the source has it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from nats_transforms.copy_id import CopyId
from tests.chaos.evidence import compare_copy, header, sent_without_answer, source_of, version
from tests.chaos.findings import Judgement, Verdict
from tests.chaos.history import digest_of
from tests.chaos.plan import QUEUES, SCHEDULED, STREAMS, RuleUnderTest
from tests.chaos.story import Original, Story


def copied(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Judge a rule by all copies that its target holds."""
    seen: dict[tuple[str, int], int] = {}
    newest: dict[str, int] = {}
    counting, totals = "allow_msg_counter" in STREAMS[rule.target], Counter[str]()
    originals = {stream: story.originals(stream) for stream in rule.sources}
    held = {stream: sorted(story.final[stream]) for stream in rule.sources}
    rows = story.final[rule.target]
    judgement.seen = len(rows)
    allowed = story.out_of_order[rule.name]
    for place in sorted(rows):
        copy = rows[place].message
        stream, sequence = source_of(copy)
        if stream not in originals:
            judgement.add("invented", "violation", f"{rule.target} {place}: {copy.subject}")
            continue
        original = version(story, rule, stream, sequence, copy)
        if original is None and stream in QUEUES | SCHEDULED and sent_without_answer(story, rule, stream, copy):
            continue
        if counting:
            totals[copy.subject] += int(header(copy.block, "Nats-Incr") or 0)
        if original is None:
            verdict = story.unless_taken_back(stream, sequence)
            judgement.add("invented", verdict, f"{rule.target} {place}: of {stream} {sequence}")
            continue
        if counting:
            total = b'{"val":"%d"}' % totals[copy.subject]
            original = replace(original, size=len(total), digest=digest_of(total))
        known = stream not in QUEUES | SCHEDULED
        is_gone = known and sequence not in story.final[stream] and not story.was_removed(stream, sequence)
        if not counting and stream not in QUEUES and (is_gone or original != originals[stream][sequence]):
            seems = "was lost" if _is_shown(story, stream, held[stream], sequence, copy) else "is gone"
            judgement.add("invented", "allowed", f"{rule.target} {place}: of {stream} {sequence}, which {seems}")
            continue
        compare_copy(judgement, story, rule, rows[place], original, f"{stream} {sequence}")
        if (stream, sequence) in seen:
            first = seen[stream, sequence]
            judgement.add("duplicated", "violation", f"{stream} {sequence} at {first} and {place} of {rule.target}")
            continue
        seen[stream, sequence] = place
        if sequence < newest.get(stream, 0):
            # Counted by the rule itself: a full target, or a cluster that changed its leader, left it out at first.
            counted = allowed > 0 and not rule.document.get("strict_order")
            allowed -= 1
            verdict = "allowed" if counted else "violation"
            judgement.add("reordered", verdict, f"{stream} {sequence} behind {newest[stream]}")
        newest[stream] = max(newest.get(stream, 0), sequence)
    for stream in rule.sources:
        # Of a work queue nothing is left, but what publishers know of.
        for sequence in story.remembered(stream).values() if stream in QUEUES else story.final[stream]:
            if story.was_removed(stream, sequence):
                continue
            judgement.expected += 1
            if (stream, sequence) not in seen:
                _lost_copy(judgement, story, rule, stream, sequence)
    if counting:
        _compare_sums(judgement, story, rule, totals)


def _is_shown(story: Story, stream: str, held: Sequence[int], sequence: int, copy: Original) -> bool:
    """Return whether a source shows that it lost a message: it is too short, or has a younger one there or before."""
    at = bisect_right(held, sequence)
    if at == len(held) or at == 0:
        return at == len(held)
    copy_id = CopyId.parse(header(copy.block, "Nats-Msg-Id").encode())
    newest = story.final[stream][held[at - 1]]
    return newest.sequence == sequence or (copy_id is not None and newest.time_ns > copy_id.time_ns)


def _compare_sums(judgement: Judgement, story: Story, rule: RuleUnderTest, totals: Counter[str]) -> None:
    """Each counter of the target has what the sources' counters have together."""
    wanted = Counter[str]()
    for stream in rule.sources:
        for stored in story.final[stream].values():
            wanted[rule.destination(stored.message.subject)] += int(header(stored.message.block, "Nats-Incr") or 0)
    verdict: Verdict = "unknown" if any(story.lost_tail(stream) for stream in rule.sources) else "violation"
    for subject in sorted(wanted.keys() | totals.keys()):
        if totals[subject] != wanted[subject]:
            judgement.add("wrong sum", verdict, f"{subject}: {totals[subject]}, not {wanted[subject]}")


def twin(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Judge a rule whose copies have the source's sequences."""
    (stream,) = rule.sources
    originals, rows = story.originals(stream), story.final[rule.target]
    judgement.seen = len(rows)
    for sequence in sorted(rows):
        copy = rows[sequence].message
        original = originals.get(sequence)
        if original is not None:
            compare_copy(judgement, story, rule, rows[sequence], original, f"{stream} {sequence}")
        elif copy.subject == rule.document["filler_subject"]:
            judgement.add("invented", "allowed", f"{rule.target} {sequence}: a filler that is still there")
        else:
            verdict = story.unless_taken_back(stream, sequence)
            judgement.add("invented", verdict, f"{rule.target} {sequence}: {copy.subject}")
    for sequence in story.final[stream]:
        if not story.was_removed(stream, sequence):
            judgement.expected += 1
            if sequence not in rows:
                _lost_copy(judgement, story, rule, stream, sequence)


def _lost_copy(judgement: Judgement, story: Story, rule: RuleUnderTest, stream: str, sequence: int) -> None:
    verdict: Verdict = "unknown" if rule.target in story.trimmed | story.damaged else "violation"
    stored = story.final[stream].get(sequence)
    judgement.add("lost", verdict, f"{stream} {sequence}", story.when(stored) if stored else None)
