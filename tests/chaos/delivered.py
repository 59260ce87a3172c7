"""Judges what reaches a stream by its ingress, and dead letters."""

from __future__ import annotations

from tests.chaos.evidence import alike, header, opened, version
from tests.chaos.findings import Judgement, Verdict
from tests.chaos.plan import RuleUnderTest
from tests.chaos.story import Story


def ingress(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Judge a rule by what its stream stored, and how publishers were answered."""
    place = rule.sources[0]
    sent, rows = story.sent[place], story.final[rule.target]
    wanted = {rule.destination(message.subject): number for number, message in sent.items()}
    judgement.expected, judgement.seen = len(story.acknowledged[place]), len(rows)
    places: dict[int, int] = {}
    for sequence in sorted(rows):
        message = rows[sequence].message
        number = wanted.get(message.subject)
        if number is None:
            judgement.add("invented", "violation", f"{rule.target} {sequence}: {message.subject}")
            continue
        original, at = sent[number], story.when(rows[sequence])
        if number in places:
            judgement.add("duplicated", "violation", f"number {number} at {places[number]} and {sequence}", at)
            continue
        places[number] = sequence
        if not alike(original, message):
            judgement.add("wrong bytes", "violation", f"number {number}: {message.size} bytes", at)
        if message.block != original.block:
            judgement.add("wrong headers", "violation", f"number {number}: {message.block!r}", at)
    newest = 0
    answered: list[tuple[float, int]] = []
    for number, sequence in sorted(story.remembered(place).items()):
        sent_at, answered_at = story.sent_at[place][number]
        if (held := places.get(number, "nowhere")) != sequence:
            verdict: Verdict = "unknown" if story.lost_tail(rule.target, place) else "violation"
            detail = f"number {number}: acknowledged as {sequence}, stored at {held}"
            judgement.add("lost", verdict, detail, answered_at)
        # Who was answered before another was sent must be stored before it.
        while answered and answered[0][0] < sent_at:
            newest = max(newest, answered.pop(0)[1])
        if sequence < newest:
            judgement.add("reordered", "violation", f"number {number} at {sequence}, before {newest}", answered_at)
        if answered_at is not None:
            answered.append((answered_at, sequence))


def dead_letters(judgement: Judgement, story: Story, rule: RuleUnderTest) -> None:
    """Judge a rule by the advisories that were published, and its stream."""
    jobs, rows = story.originals("JOBS"), story.final[rule.target]
    advised = {each.id: each for each in story.advised}
    judgement.seen = len(rows)
    came: set[str] = set()
    for place in sorted(rows):
        letter = rows[place].message
        reported = header(letter.block, "Nats-Bridge-Advisory-Id") or header(letter.block, "Nats-Msg-Id")
        at = story.when(rows[place])
        if reported in came:
            judgement.add("duplicated", "violation", f"advisory {reported}", at)
        came.add(reported)
        if letter.subject != rule.destination(""):
            judgement.add("wrong subject", "violation", letter.subject, at)
        reason = header(letter.block, "Nats-Bridge-Message")
        if reason:
            judgement.add("wrong bytes", "allowed", f"advisory {reported} without its message: {reason}", at)
            continue
        sequence = int(header(letter.block, "Nats-Sequence") or 0)
        job = version(story, rule, "JOBS", sequence, letter) or jobs.get(sequence)
        if job is None:
            judgement.add("invented", "unknown" if story.lost_tail("JOBS") else "violation", f"JOBS {sequence}", at)
        elif not alike(job, letter):
            judgement.add("wrong bytes", "violation", f"JOBS {sequence}: {letter.size} bytes, not {job.size}", at)
        elif not letter.block.startswith(
            opened(job.block).replace("\r\nNats-Msg-Id: ", "\r\nNats-Bridge-Original-Msg-Id: ")
        ):
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
