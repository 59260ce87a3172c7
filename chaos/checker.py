"""The judge: compares, from the story alone, what each rule did with what it promises.

Theory of operation: a republished message names its original (`Nats-Sequence`), a copy does so in its source record, a
twin has its sequence. So every published message is compared with its original, and a missing one is known by its
sequence. What a promise allows is allowed only where the story has a reason for it. A message that came
twice with `at_least_once` needs something broken between the two; one that was lost with `at_most_once` needs a crash
between its neighbours, or a counter by which the rule itself reported it. What the run itself removed, or a server
lost, is no rule's fault: `unknown`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from chaos.findings import Judgement, Verdict
from chaos.history import digest_of
from chaos.plan import EXPIRING, LEASED, QUEUES, SCHEDULED, STREAMS, RuleUnderTest
from chaos.story import FORGETFUL, Original, Received, Stored, Story

__all__ = ["judge"]

_RECORD = re.compile(r"\r\n(?:Nats-Stream-Source|Nats-Bridge-Source): ([^\r]*)\r\n")
_COPY_ID = re.compile(r"Nats-Msg-Id: bridge-[0-9a-f]{12}-[0-9]+-[0-9]+\r\n")
_COUNTED = re.compile(r"Nats-Bridge-Counter-Sources: [^\r]*\r\n")
_EXPIRING = re.compile(r"\r\n(?:Nats-TTL: [0-9]|Nats-Schedule: )")
_SEQUENCE = re.compile(r"\r\nNats-Sequence: ([0-9]+)\r\n")
_START = "NATS/1.0\r\n"
_SLACK = 1.0  # seconds in which a server may not have written what it has acknowledged


def judge(story: Story, rules: Iterable[RuleUnderTest]) -> list[Judgement]:
    """Judge every rule, and the sidecar as a whole."""
    judgements = []
    for rule in rules:
        judgement = Judgement(rule.name, rule.kind, rule.promise)
        if rule.kind == "republish":
            _republished(judgement, story, rule)
        elif LEASED in rule.sources:
            _marked(judgement, story, rule)
        elif rule.kind == "kv_sources" or rule.target in EXPIRING:
            _key_by_key(judgement, story, rule)
        elif rule.document.get("keep_sequence"):
            _twin(judgement, story, rule)
        elif rule.promise == "exactly_once":
            _copied(judgement, story, rule)
        elif rule.kind == "subject_transform":
            _ingress(judgement, story, rule)
        else:
            _dead_letters(judgement, story, rule)
        judgements.append(judgement)
    whole = Judgement("(sidecar)", "process", "keeps running")
    for what in story.unsettled:
        whole.add("stuck", "violation", what, story.end)
    for at, reason in story.ended_badly:
        # An end in the middle of a fault can be right (a server that is away at the start); never without one.
        verdict: Verdict = "allowed" if story.broken(at - 30, at - 0.001) else "violation"
        whole.add("ended", verdict, reason, at)
    judgements.append(whole)
    return judgements


# republish


def _republished(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    stream = rule.sources[0]
    originals = story.originals(stream)
    judgement.seen = len(story.received[rule.name])
    first_received: dict[int, float] = {}
    lost_received: dict[tuple[int, Original], float] = {}  # of messages that a power cut took back
    before: dict[str, list[int]] = {}
    for sequence in sorted(originals):
        before.setdefault(originals[sequence].subject, []).append(sequence)
    newest, set_backs = 0, story.set_backs(stream)
    order: list[tuple[int, float]] = []
    for received in story.received[rule.name]:
        found = _SEQUENCE.search(received.message.block)
        sequence = int(found[1]) if found else 0
        original = _version(story, rule, stream, sequence, received.message)
        while set_backs and received.at > set_backs[0]:
            newest = 0  # the stream continues before where it was
            del set_backs[0]
        if original is None:
            # An answer can be lost: then only the stream knew the message, and it may have been removed since.
            verdict: Verdict = (
                "unknown" if story.was_removed(stream, sequence) or _lost_tail(story, stream) else "violation"
            )
            judgement.add("invented", verdict, f"{received.message.subject}, sequence {sequence}", received.at)
            continue
        kept = original == originals[sequence]
        _compare_republished(judgement, story, rule, received, sequence, original, before if kept else None)
        first = first_received.get(sequence) if kept else lost_received.get((sequence, original))
        if first is not None:
            allowed = rule.promise == "at_least_once" and story.broken(first, received.at)
            allowed |= story.set_back(first, received.at)
            judgement.add("duplicated", "allowed" if allowed else "violation", f"{stream} {sequence}", received.at)
            continue
        if not kept:
            lost_received[sequence, original] = received.at
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
            judgement.add("lost", verdict, f"{stream} {sequence}", _time_of(story, stream, sequence))
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
    wanted = rule.destination(original.subject)
    if came.subject != wanted:
        judgement.add("wrong subject", "violation", f"{came.subject}, not {wanted}", received.at)
    if (came.size, came.digest) != (original.size, original.digest):
        judgement.add(
            "wrong bytes", "violation", f"{stream} {sequence}: {came.size} bytes, not {original.size}", received.at
        )
    fixed = (
        f"{_opened(original.block)}Nats-Stream: {stream}\r\nNats-Subject: {original.subject}\r\n"
        f"Nats-Sequence: {sequence}\r\nNats-Time-Stamp: "
    )
    rest = came.block.removeprefix(fixed)
    shape = re.fullmatch(r"([^\r]+)\r\nNats-Last-Sequence: ([0-9]+)\r\n\r\n", rest)
    if not came.block.startswith(fixed) or shape is None:
        judgement.add("wrong headers", "violation", f"{stream} {sequence}: {came.block!r}, not {fixed!r}…", received.at)
        return
    if stored is not None and shape[1] != _time_text(stored.time_ns):
        judgement.add("wrong headers", "violation", f"{stream} {sequence}: time {shape[1]}", received.at)
    if before is None:
        return
    row = before[original.subject]
    place = bisect_left(row, sequence)
    last, said = row[place - 1] if place else 0, int(shape[2])
    if said != last:
        # What was removed may have been there still, or not any more, when the message was stored; the same holds for
        # what a server has lost.
        removed = said < sequence and any(
            story.was_removed(stream, each) or (each and each not in story.final[stream]) for each in (last, said)
        )
        judgement.add(
            "wrong headers",
            "unknown" if removed else "violation",
            f"{stream} {sequence}: last sequence {said}, not {last}",
            received.at,
        )


# copies


def _copied(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    seen: dict[tuple[str, int], int] = {}
    newest: dict[str, int] = {}
    counting, totals = "allow_msg_counter" in STREAMS[rule.target], Counter[str]()
    originals = {stream: story.originals(stream) for stream in rule.sources}
    rows = story.final[rule.target]
    judgement.seen = len(rows)
    allowed = story.out_of_order[rule.name]
    for place in sorted(rows):
        copy = rows[place].message
        record = _RECORD.search(copy.block)
        stream, sequence = _source_of(record[1] if record else "")
        if stream not in originals:
            judgement.add("invented", "violation", f"{rule.target} {place}: {copy.subject}")
            continue
        original = _version(story, rule, stream, sequence, copy)
        if original is None and stream in QUEUES | SCHEDULED and _sent_without_answer(story, rule, stream, copy):
            continue
        if counting:
            totals[copy.subject] += int(_header(copy.block, "Nats-Incr") or 0)
        if original is None:
            verdict: Verdict = (
                "unknown" if story.was_removed(stream, sequence) or _lost_tail(story, stream) else "violation"
            )
            judgement.add("invented", verdict, f"{rule.target} {place}: of {stream} {sequence}")
            continue
        if counting:
            total = b'{"val":"%d"}' % totals[copy.subject]
            original = replace(original, size=len(total), digest=digest_of(total))
        if stream not in QUEUES and original != originals[stream][sequence] and not counting:
            judgement.add("invented", "allowed", f"{rule.target} {place}: of {stream} {sequence}, which was lost")
            continue
        _compare_copy(judgement, story, rule, rows[place], original, f"{stream} {sequence}")
        if (stream, sequence) in seen:
            first = seen[stream, sequence]
            judgement.add("duplicated", "violation", f"{stream} {sequence} at {first} and {place} of {rule.target}")
            continue
        seen[stream, sequence] = place
        if sequence < newest.get(stream, 0):
            # Counted by the rule itself: a full target, or a cluster that changed its leader, left it out at first.
            counted = allowed > 0 and not rule.document.get("strict_order")
            allowed -= 1
            judgement.add(
                "reordered", "allowed" if counted else "violation", f"{stream} {sequence} behind {newest[stream]}"
            )
        newest[stream] = max(newest.get(stream, 0), sequence)
    for stream in rule.sources:
        # Of a work queue nothing is left, but what publishers know of.
        held: Iterable[int] = story.final[stream]
        if stream in QUEUES:
            acknowledged = story.acknowledged[stream]
            held = {acknowledged[number] for number in acknowledged if not story.forgotten(stream, number)}
        for sequence in held:
            if story.was_removed(stream, sequence):
                continue
            judgement.expected += 1
            if (stream, sequence) not in seen:
                _lost_copy(judgement, story, rule, stream, sequence)
    if counting:
        _compare_sums(judgement, story, rule, totals)


def _compare_sums(judgement: Judgement, story: Story, rule: RuleUnderTest, totals: Counter[str]) -> None:
    """Each counter of the target has what the sources' counters have together."""
    wanted = Counter[str]()
    for stream in rule.sources:
        for stored in story.final[stream].values():
            wanted[rule.destination(stored.message.subject)] += int(_header(stored.message.block, "Nats-Incr") or 0)
    verdict: Verdict = "unknown" if any(_lost_tail(story, stream) for stream in rule.sources) else "violation"
    for subject in sorted(wanted.keys() | totals.keys()):
        if totals[subject] != wanted[subject]:
            judgement.add("wrong sum", verdict, f"{subject}: {totals[subject]}, not {wanted[subject]}")


def _sent_without_answer(story: Story, rule: RuleUnderTest, stream: str, copy: Original) -> bool:
    """Whether a copy is one of a message whose publisher got no PubAck."""
    answered = story.acknowledged[stream]
    return any(
        (rule.destination(sent.subject), sent.size, sent.digest) == (copy.subject, copy.size, copy.digest)
        for number, sent in story.sent[stream].items()
        if number not in answered
    )


def _twin(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    (stream,) = rule.sources
    originals, rows = story.originals(stream), story.final[rule.target]
    judgement.seen = len(rows)
    for sequence in sorted(rows):
        copy = rows[sequence].message
        original = originals.get(sequence)
        if original is not None:
            _compare_copy(judgement, story, rule, rows[sequence], original, f"{stream} {sequence}")
        elif copy.subject == rule.document["filler_subject"]:
            judgement.add("invented", "allowed", f"{rule.target} {sequence}: a filler that is still there")
        elif story.was_removed(stream, sequence) or _lost_tail(story, stream):
            judgement.add("invented", "unknown", f"{rule.target} {sequence}")
        else:
            judgement.add("invented", "violation", f"{rule.target} {sequence}: {copy.subject}")
    for sequence in story.final[stream]:
        if not story.was_removed(stream, sequence):
            judgement.expected += 1
            if sequence not in rows:
                _lost_copy(judgement, story, rule, stream, sequence)


def _lost_copy(judgement: Judgement, story: Story, rule: RuleUnderTest, stream: str, sequence: int) -> None:
    verdict: Verdict = "unknown" if rule.target in story.trimmed | story.damaged else "violation"
    judgement.add("lost", verdict, f"{stream} {sequence}", _time_of(story, stream, sequence))


def _key_by_key(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
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
            record = _RECORD.search(stored.message.block)
            _, sequence = _source_of(record[1] if record else "")
            sequences.append(sequence)
            if (original := originals.get(sequence)) is not None:
                _compare_copy(judgement, story, rule, stored, original, f"{stream} {sequence}")
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
            surely = expiring and not _lost_tail(story, stream)
            judgement.add("invented", "violation" if surely else "unknown", detail)


def _marked(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """The source's messages expire when they are copied, and delete markers take their place.

    So the target holds of each subject the newest of the source's markers, which has rolled up all before it, and every
    message that was acknowledged since.
    """
    (stream,) = rule.sources
    acknowledged = story.acknowledged[stream]
    sent: dict[str, dict[int, int]] = {}
    for number, sequence in sorted(acknowledged.items()):
        if not story.forgotten(stream, number):
            sent.setdefault(rule.destination(story.sent[stream][number].subject), {})[sequence] = number
    markers = {rule.destination(subject): marker for subject, marker in story.marked[stream].items()}
    found = _by_subject(story.final[rule.target].values(), lambda subject: subject)
    judgement.seen = sum(map(len, found.values()))
    late: Verdict = "allowed" if story.out_of_order[rule.name] else "violation"
    for subject in sorted(sent.keys() | markers.keys() | found.keys()):
        sequences: list[int] = []
        numbers, (marker, seen_at) = sent.get(subject, {}), markers.get(subject, (0, 0.0))
        for stored in found.get(subject, []):
            record, at = _RECORD.search(stored.message.block), _when(story, stored)
            _, sequence = _source_of(record[1] if record else "")
            if sequence in sequences:
                judgement.add("duplicated", "violation", f"{subject}: {stream} {sequence}", at)
            elif sequences and sequence < max(sequences):
                judgement.add("reordered", late, f"{subject}: {stream} {sequence} behind {max(sequences)}", at)
            sequences.append(sequence)
            if "\r\nNats-Marker-Reason: " in stored.message.block:
                marker, seen_at = max((marker, seen_at), (sequence, at))
                if _as_sent(stored.message) != _MARKER or stored.message.size:
                    judgement.add("wrong headers", "violation", f"{subject}: {stored.message.block!r}", at)
            elif sequence in numbers:
                original = story.sent[stream][numbers[sequence]]
                _compare_copy(judgement, story, rule, stored, original, f"{stream} {sequence}")
            elif not _sent_without_answer(story, rule, stream, stored.message):
                judgement.add("invented", "violation", f"{rule.target} {stored.sequence}: {stream} {sequence}", at)
        since = {
            sequence: story.sent_at[stream][number][1] for sequence, number in numbers.items() if sequence > marker
        }
        expected = since | ({marker: seen_at} if marker else {})
        judgement.expected += len(expected)
        for sequence in sorted(expected.keys() - set(sequences)):
            what = f"{subject}: {stream} {sequence}" + (", the delete marker" if sequence == marker else "")
            judgement.add("lost", "unknown" if _killed_behind(story, expected[sequence]) else "violation", what)


_MARKER = "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1h0m0s\r\nNats-Rollup: sub\r\n\r\n"


def _as_sent(copy: Original) -> str:
    """The header block of a copy without what the rule adds, where the source's message had no id."""
    return _COPY_ID.sub("", _RECORD.sub("\r\n", copy.block, count=1), count=1)


def _killed_behind(story: Story, at: float | None) -> bool:
    """Whether a server was killed at once after it had acknowledged a message, and may have forgotten it."""
    return at is not None and any(
        each.kind in FORGETFUL and each.begin - _SLACK <= at <= each.end for each in story.disturbances
    )


def _alive(rows: list[Stored], history: int) -> list[Stored]:
    """What of a key's messages, in order, should be there: from the last rollup on, and as many as its stream keeps."""
    rollups = [place for place, stored in enumerate(rows) if "\r\nNats-Rollup: sub\r\n" in stored.message.block]
    return rows[rollups[-1] if rollups else 0 :][-history:]


def _compare_copy(
    judgement: Judgement, story: Story, rule: RuleUnderTest, stored: Stored, original: Original, of: str
) -> None:
    copy = stored.message
    wanted = rule.destination(original.subject)
    at = _when(story, stored)
    if copy.subject != wanted:
        judgement.add("wrong subject", "violation", f"{of}: {copy.subject}, not {wanted}", at)
    if (copy.size, copy.digest) != (original.size, original.digest):
        judgement.add("wrong bytes", "violation", f"{of}: {copy.size} bytes, not {original.size}", at)
    block = _RECORD.sub("\r\n", copy.block, count=1)
    if "\nNats-Msg-Id: " not in original.block:
        block = _COPY_ID.sub("", block, count=1)
    if "\r\nNats-Incr: " in original.block:
        block = _COUNTED.sub("", block, count=1)
    if block != _opened(original.block).replace("\r\nNats-Schedul", "\r\nNats-Bridge-Schedul") + "\r\n":
        judgement.add("wrong headers", "violation", f"{of}: {block!r}, not {original.block!r}", at)


# ingress and advisories


def _ingress(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    place = rule.sources[0]
    sent, acknowledged, rows = story.sent[place], story.acknowledged[place], story.final[rule.target]
    wanted = {rule.destination(message.subject): number for number, message in sent.items()}
    judgement.expected, judgement.seen = len(acknowledged), len(rows)
    at: dict[int, int] = {}
    for sequence in sorted(rows):
        message = rows[sequence].message
        number = wanted.get(message.subject)
        if number is None:
            judgement.add("invented", "violation", f"{rule.target} {sequence}: {message.subject}")
            continue
        original, when = sent[number], _when(story, rows[sequence])
        if number in at:
            judgement.add("duplicated", "violation", f"number {number} at {at[number]} and {sequence}", when)
            continue
        at[number] = sequence
        if (message.size, message.digest) != (original.size, original.digest):
            judgement.add("wrong bytes", "violation", f"number {number}: {message.size} bytes", when)
        if message.block != original.block:
            judgement.add("wrong headers", "violation", f"number {number}: {message.block!r}", when)
    newest = 0
    answered: list[tuple[float, int]] = []
    for number in sorted(acknowledged):
        if story.forgotten(place, number):
            continue
        sequence = acknowledged[number]
        sent_at, answered_at = story.sent_at[place][number]
        if at.get(number) != sequence:
            held = at.get(number, "nowhere")
            verdict: Verdict = "unknown" if _lost_tail(story, rule.target, place) else "violation"
            judgement.add(
                "lost", verdict, f"number {number}: acknowledged as {sequence}, stored at {held}", answered_at
            )
        # Who was answered before another was sent must be stored before it.
        while answered and answered[0][0] < sent_at:
            newest = max(newest, answered.pop(0)[1])
        if sequence < newest:
            judgement.add("reordered", "violation", f"number {number} at {sequence}, before {newest}", answered_at)
        if answered_at is not None:
            answered.append((answered_at, sequence))


def _dead_letters(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    jobs, rows = story.originals("JOBS"), story.final[rule.target]
    advised = {each.id: each for each in story.advised}
    judgement.seen = len(rows)
    came: set[str] = set()
    for place in sorted(rows):
        letter = rows[place].message
        reported = _header(letter.block, "Nats-Bridge-Advisory-Id") or _header(letter.block, "Nats-Msg-Id")
        at = _when(story, rows[place])
        if reported in came:
            judgement.add("duplicated", "violation", f"advisory {reported}", at)
        came.add(reported)
        if letter.subject != rule.destination(""):
            judgement.add("wrong subject", "violation", letter.subject, at)
        reason = _header(letter.block, "Nats-Bridge-Message")
        if reason:
            judgement.add("wrong bytes", "allowed", f"advisory {reported} without its message: {reason}", at)
            continue
        sequence = int(_header(letter.block, "Nats-Sequence") or 0)
        job = next((each for each in story.versions("JOBS", sequence) if _alike(each, letter)), jobs.get(sequence))
        if job is None:
            judgement.add("invented", "unknown" if _lost_tail(story, "JOBS") else "violation", f"JOBS {sequence}", at)
        elif (job.size, job.digest) != (letter.size, letter.digest):
            judgement.add("wrong bytes", "violation", f"JOBS {sequence}: {letter.size} bytes, not {job.size}", at)
        elif not letter.block.startswith(_renamed(_opened(job.block))):
            judgement.add("wrong headers", "violation", f"JOBS {sequence}: {letter.block!r}", at)
        if reported in advised and advised[reported].sequence != sequence:
            judgement.add("wrong bytes", "violation", f"advisory {reported} with the message {sequence}", at)
    # Advisories are core messages: only between two that came through in one undisturbed stretch must all have come.
    judgement.expected = len(advised)
    for begin, end in _quiet(story):
        stretch = [each for each in story.advised if begin <= each.at <= end]
        arrived = [index for index, each in enumerate(stretch) if each.id in came]
        for index, each in enumerate(stretch):
            if each.id in came:
                continue
            between = bool(arrived) and arrived[0] < index < arrived[-1]
            judgement.add("lost", "violation" if between else "unknown", f"advisory {each.id}", each.at)
    for each in story.advised:
        if each.id not in came and not any(begin <= each.at <= end for begin, end in _quiet(story)):
            judgement.add("lost", "allowed", f"advisory {each.id}: perhaps without a subscriber", each.at)


def _quiet(story: Story) -> list[tuple[float, float]]:
    """The stretches of time in which nothing was disturbed."""
    stretches = []
    begin = 0.0
    for each in sorted(story.disturbances, key=lambda each: each.begin):
        if each.begin > begin:
            stretches.append((begin, each.begin))
        begin = max(begin, each.end)
    stretches.append((begin, story.end))
    return stretches


# what several need


def _version(story: Story, rule: RuleUnderTest, stream: str, sequence: int, came: Original) -> Original | None:
    """The message that something was made of: of those that had its sequence, the one that it looks like."""
    versions = story.versions(stream, sequence)
    for original in versions:
        if rule.destination(original.subject) == came.subject and _alike(original, came):
            return original
    return versions[-1] if versions else None


def _alike(original: Original, came: Original) -> bool:
    return (original.size, original.digest) == (came.size, came.digest)


def _opened(block: str) -> str:
    """A header block without its final line end, so that lines can follow."""
    return block[:-2] if block else _START


def _renamed(block: str) -> str:
    """What is meant for the stream of the jobs has another name in the stream of the dead letters."""
    return block.replace("\r\nNats-Msg-Id: ", "\r\nNats-Bridge-Original-Msg-Id: ")


def _source_of(record: str) -> tuple[str, int]:
    fields = record.split(" ")
    return (fields[0], int(fields[1])) if len(fields) > 1 and fields[1].isdigit() else ("", 0)


def _by_subject(rows: Iterable[Stored], destination: object) -> dict[str, list[Stored]]:
    assert callable(destination)
    subjects: dict[str, list[Stored]] = {}
    for stored in sorted(rows, key=lambda stored: stored.sequence):
        subjects.setdefault(destination(stored.message.subject), []).append(stored)
    return subjects


def _header(block: str, name: str) -> str:
    found = re.search(rf"\r\n{name}: ([^\r]*)\r\n", block)
    return found[1] if found else ""


def _lost_tail(story: Story, stream: str, place: str = "") -> bool:
    """Whether the servers, killed, lost messages of a stream that they had acknowledged: not a sidecar's doing."""
    final = story.final[stream]
    killed = any(each.kind in FORGETFUL for each in story.disturbances)
    return killed and any(
        sequence not in final
        and not story.was_removed(stream, sequence)
        and not (stream in EXPIRING | SCHEDULED and _expires(stream, story.sent[stream][number].block))
        for number, sequence in story.acknowledged[place or stream].items()
    )


def _expires(stream: str, block: str) -> bool:
    """Whether such a message soon expires in a stream."""
    return stream == LEASED or _EXPIRING.search(block) is not None


def _time_text(time_ns: int) -> str:
    seconds, nanos = divmod(time_ns, 10**9)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanos:09d}".rstrip("0").rstrip(".")
    return f"{text}{fraction}Z"


def _time_of(story: Story, stream: str, sequence: int) -> float | None:
    """When a message was stored, as seconds of the run."""
    stored = story.final[stream].get(sequence)
    return None if stored is None else _when(story, stored)


def _when(story: Story, stored: Stored) -> float:
    return round(stored.time_ns / 1e9 - float(story.run.get("began", 0)), 3)
