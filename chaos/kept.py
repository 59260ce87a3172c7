"""Judges streams that remove messages on their own: what they hold in the end."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.evidence import COPY_ID, RECORD, compare_copy, lost_tail, sent_without_answer, source_of, when
from chaos.findings import Judgement, Verdict
from chaos.plan import EXPIRING, MAX_AGE, STREAMS, RuleUnderTest
from chaos.story import Original, Stored, Story

__all__ = ["key_by_key", "marked"]

_AGE = MAX_AGE / 1e9
_DOWN = ("server", "all servers", "lame duck")
_SLACK = 2.0  # seconds by which a server may place or remove something early or late


def key_by_key(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Both streams remove the same of each key, or subject, so what they hold at the end must be equal.

    Buckets keep the newest of each key; messages with a TTL expire in both, and so do delete markers. A server that is
    killed can bring back what a purge or the limit of the history had removed: that does not count.
    """
    (stream,) = rule.sources
    history = STREAMS[stream].get("max_msgs_per_subject", 0)
    expiring = stream in EXPIRING
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
            _, sequence = source_of(stored.message.block)
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
            surely = expiring and not lost_tail(story, stream)
            judgement.add("invented", "violation" if surely else "unknown", detail)


def marked(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """The source's messages expire, and later their delete markers; the target keeps what no marker rolls up.

    So each of the target's subjects ends with the marker of the source, and holds what was acknowledged since the
    newest one, and nothing older.
    """
    (stream,) = rule.sources
    originals = story.originals(stream)
    sent: dict[str, list[int]] = {}
    for sequence in sorted(originals):
        if not _is_marker(originals[sequence]):
            sent.setdefault(rule.destination(originals[sequence].subject), []).append(sequence)
    found = _by_subject(story.final[rule.target].values(), lambda subject: subject)
    judgement.expected, judgement.seen = len(sent), sum(map(len, found.values()))
    late: Verdict = "allowed" if story.out_of_order[rule.name] else "violation"
    tail_lost = lost_tail(story, stream)
    passed = _Passed(story, rule, stream)
    for subject in sorted(sent.keys() | found.keys()):
        sequences: list[int] = []
        marker = 0
        for stored in found.get(subject, []):
            _, sequence = source_of(stored.message.block)
            original, at = originals.get(sequence), when(story, stored)
            if sequence in sequences:
                judgement.add("duplicated", "violation", f"{subject}: {stream} {sequence}", at)
            elif sequences and sequence < max(sequences):
                judgement.add("reordered", late, f"{subject}: {stream} {sequence} behind {max(sequences)}", at)
            sequences.append(sequence)
            if original is not None:
                compare_copy(judgement, story, rule, stored, original, f"{stream} {sequence}")
            elif _is_marker(stored.message):
                if _as_sent(stored.message) != _MARKER or stored.message.size:
                    judgement.add("wrong headers", "violation", f"{subject}: {stored.message.block!r}", at)
            elif not sent_without_answer(story, rule, stream, stored.message):
                verdict: Verdict = "unknown" if tail_lost else "violation"
                judgement.add("invented", verdict, f"{rule.target} {stored.sequence}: {stream} {sequence}", at)
            if _is_marker(stored.message):
                marker = sequence
        wanted = [sequence for sequence in sent.get(subject, []) if sequence > marker]
        for sequence in wanted:
            if sequence not in sequences:
                judgement.add("lost", passed.over(sequence), f"{subject}: {stream} {sequence}")
        staying = any("\r\nNats-TTL: never\r\n" in originals[sequence].block for sequence in sent.get(subject, []))
        if wanted and not staying:
            verdict = "unknown" if tail_lost else passed.over_marker(wanted[-1])
            judgement.add("lost", verdict, f"{subject}: the delete marker behind {stream} {wanted[-1]}")


_MARKER = "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1h0m0s\r\nNats-Rollup: sub\r\n\r\n"


def _is_marker(message: Original) -> bool:
    return "\r\nNats-Marker-Reason: " in message.block


def _as_sent(copy: Original) -> str:
    """The header block of a copy without what the rule adds, where the source's message had no id."""
    return COPY_ID.sub("", RECORD.sub("\r\n", copy.block, count=1), count=1)


class _Passed:
    """What a rule read of an expiring stream, and when: what was there then and is not copied, it passed over."""

    def __init__(self, story: Story, rule: RuleUnderTest, stream: str) -> None:
        sent = story.sent_at[stream]
        self._disturbances = story.disturbances
        self._sent = {sequence: sent[number][0] for number, sequence in story.acknowledged[stream].items()}
        self._copies: list[tuple[int, float]] = []
        for stored in story.final[rule.target].values():
            self._copies.append((source_of(stored.message.block)[1], when(story, stored)))

    def over(self, sequence: int) -> Verdict:
        """A message that is not copied: was it still there when a later one was copied?"""
        if sequence not in self._sent:
            return "unknown"
        later = [at for each, at in self._copies if each > sequence]
        gone = self._sent[sequence] + _AGE - _SLACK
        return "violation" if min(later, default=0.0) < gone else "unknown"

    def over_marker(self, sequence: int) -> Verdict:
        """The delete marker of a message: was it there when one was copied that had been sent behind it?"""
        if sequence not in self._sent:
            return "unknown"
        expired, placed = self._sent[sequence] + _AGE - _SLACK, self._sent[sequence] + _AGE + _SLACK
        if any(each.kind.startswith(_DOWN) and each.meets(expired, placed) for each in self._disturbances):
            return "unknown"  # a server that comes back removes what has expired, and places no marker (2.12.15)
        gone = self._sent[sequence] + 2 * _AGE - _SLACK
        behind = [at for each, at in self._copies if self._sent.get(each, 0.0) > placed]
        return "violation" if any(at < gone for at in behind) else "unknown"


def _alive(rows: list[Stored], history: int) -> list[Stored]:
    """What of a key's messages, in order, should be there: from the last rollup on, and as many as its stream keeps."""
    rollups = [place for place, stored in enumerate(rows) if "\r\nNats-Rollup: sub\r\n" in stored.message.block]
    return rows[rollups[-1] if rollups else 0 :][-history:]


def _by_subject(rows: Iterable[Stored], destination: object) -> dict[str, list[Stored]]:
    assert callable(destination)
    subjects: dict[str, list[Stored]] = {}
    for stored in sorted(rows, key=lambda stored: stored.sequence):
        subjects.setdefault(destination(stored.message.subject), []).append(stored)
    return subjects
