"""Judges copies in streams that remove messages on their own: what they hold in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.chaos.evidence import COPY_ID, RECORD, alike, compare_copy, sent_without_answer, source_of, version
from tests.chaos.findings import Judgement, Verdict
from tests.chaos.plan import EXPIRING, STREAMS, RuleUnderTest
from tests.chaos.story import FORGETFUL, Stored, Story

_SLACK = 1.0  # seconds in which a server may not have written what it has acknowledged
_MARKER = "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 72h0m0s\r\nNats-Rollup: sub\r\n\r\n"


def key_by_key(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Both streams remove the same of each key, or subject, so what they hold at the end must be equal.

    Buckets keep the newest of each key; messages with a TTL expire in both, and so do delete markers. A server that is
    killed can bring back what a purge or the limit of the history had removed: that does not count.
    """
    (stream,) = rule.sources
    history = STREAMS[stream].get("max_msgs_per_subject", 0)
    wanted = _by_subject(story.final[stream].values(), rule.destination)
    found = _by_subject(story.final[rule.target].values(), lambda subject: subject)
    judgement.expected = sum(len(_alive(rows, history)) for rows in wanted.values())
    judgement.seen = sum(map(len, found.values()))
    originals = story.originals(stream)
    late = story.out_of_order[rule.name]
    for subject in sorted(wanted.keys() | found.keys()):
        sequences = []
        kept, alive = _alive(wanted.get(subject, []), history), _alive(found.get(subject, []), history)
        for rows, living, stream_name in ((wanted, kept, stream), (found, alive, rule.target)):
            if back := len(rows.get(subject, [])) - len(living):
                judgement.add("invented", "unknown", f"{subject}: {back} removed messages are back in {stream_name}")
        for stored in alive:
            _, sequence = source_of(stored.message)
            sequences.append(sequence)
            if (original := originals.get(sequence)) is not None:
                compare_copy(judgement, story, rule, stored, original, f"{stream} {sequence}")
        expected = [stored.sequence for stored in kept]
        if sequences == expected:
            continue
        detail = f"{subject}: {stream} {sequences}, not {expected}"
        if len(set(sequences)) < len(sequences):
            judgement.add("duplicated", "violation", detail)
        elif late:
            # A copy that was left out at first is stored after later ones, and takes the place of others in the
            # history.
            judgement.add("reordered", "allowed", detail)
        elif set(expected) - set(sequences):
            judgement.add("lost", "violation", detail)
        elif sequences != sorted(sequences):
            judgement.add("reordered", "violation", detail)
        else:
            # More than the source holds: a message that the server there had already taken back.
            surely = stream in EXPIRING and not story.lost_tail(stream)
            judgement.add("invented", "violation" if surely else "unknown", detail)


def marked(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """The source's messages expire when they are copied, and delete markers take their place.

    So the target holds of each subject the newest of the source's markers, which has rolled up all before it, and every
    message that was acknowledged since.
    """
    (stream,) = rule.sources
    sent: dict[str, dict[int, int]] = {}
    for number, sequence in sorted(story.remembered(stream).items()):
        sent.setdefault(rule.destination(story.sent[stream][number].subject), {})[sequence] = number
    markers = {rule.destination(subject): marker for subject, marker in story.marked[stream].items()}
    found = _by_subject(story.final[rule.target].values(), lambda subject: subject)
    judgement.seen = sum(map(len, found.values()))
    late: Verdict = "allowed" if story.out_of_order[rule.name] else "violation"
    for subject in sorted(sent.keys() | markers.keys() | found.keys()):
        sequences: list[int] = []
        numbers, (marker, seen_at) = sent.get(subject, {}), markers.get(subject, (0, 0.0))
        for stored in found.get(subject, []):
            (_, sequence), at = source_of(stored.message), story.when(stored)
            if sequence in sequences:
                judgement.add("duplicated", "violation", f"{subject}: {stream} {sequence}", at)
            elif sequences and sequence < max(sequences):
                judgement.add("reordered", late, f"{subject}: {stream} {sequence} behind {max(sequences)}", at)
            sequences.append(sequence)
            if "\r\nNats-Marker-Reason: " in stored.message.block:
                marker, seen_at = max((marker, seen_at), (sequence, at))
                as_sent = COPY_ID.sub("", RECORD.sub("\r\n", stored.message.block, count=1), count=1)
                if as_sent != _MARKER or stored.message.size:
                    judgement.add("wrong headers", "violation", f"{subject}: {stored.message.block!r}", at)
                continue
            original = version(story, rule, stream, sequence, stored.message)
            known = original is not None and alike(original, stored.message)
            if not known and sent_without_answer(story, rule, stream, stored.message):
                continue
            if original is None:
                judgement.add("invented", "violation", f"{rule.target} {stored.sequence}: {stream} {sequence}", at)
                continue
            compare_copy(judgement, story, rule, stored, original, f"{stream} {sequence}")
            there = story.final[stream].get(sequence)
            if sequence not in numbers and (there is None or there.message != original):
                what = f"{rule.target} {stored.sequence}: of {stream} {sequence}, which a power cut may have taken"
                judgement.add("invented", "allowed", what, at)
        since = {
            sequence: story.sent_at[stream][number][1] for sequence, number in numbers.items() if sequence > marker
        }
        expected = since | ({marker: seen_at} if marker else {})
        judgement.expected += len(expected)
        for sequence in sorted(expected.keys() - set(sequences)):
            what = f"{subject}: {stream} {sequence}" + (", the delete marker" if sequence == marker else "")
            judgement.add("lost", "unknown" if _killed_behind(story, expected[sequence]) else "violation", what)


def _killed_behind(story: Story, at: float | None) -> bool:
    """Whether a server was killed at once after it had acknowledged a message, and may have forgotten it."""
    return at is not None and any(
        each.kind in FORGETFUL and each.begin - _SLACK <= at <= each.end for each in story.disturbances
    )


def _alive(rows: list[Stored], history: int) -> list[Stored]:
    """What of a key's messages, in order, should be there: from the last rollup on, and as many as its stream keeps."""
    rollups = [place for place, stored in enumerate(rows) if "\r\nNats-Rollup: sub\r\n" in stored.message.block]
    return rows[rollups[-1] if rollups else 0 :][-history:]


def _by_subject(rows: Iterable[Stored], destination: Callable[[str], str]) -> dict[str, list[Stored]]:
    subjects: dict[str, list[Stored]] = {}
    for stored in sorted(rows, key=lambda stored: stored.sequence):
        subjects.setdefault(destination(stored.message.subject), []).append(stored)
    return subjects
