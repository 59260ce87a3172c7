"""What a message and the story say, for all judges."""

from __future__ import annotations

import re

from nats_transforms.copy_id import line_pattern
from tests.chaos.findings import Judgement
from tests.chaos.plan import RuleUnderTest
from tests.chaos.story import Original, Stored, Story

RECORD = re.compile(r"\r\n(?:Nats-Stream-Source|Nats-Bridge-Source): (?:([^ \r]*) ([0-9]+))?[^\r]*\r\n")
COPY_ID = re.compile(line_pattern().decode() + r"\r\n")
_ADDED = re.compile(r"Nats-Sequence: ([0-9]+)\r\nNats-Time-Stamp: ([^\r]+)\r\nNats-Last-Sequence: ([0-9]+)\r\n\r\n")
_COUNTED = re.compile(r"Nats-Bridge-Counter-Sources: [^\r]*\r\n")


def compare(judgement: Judgement, rule: RuleUnderTest, came: Original, original: Original, of: str, at: float) -> None:
    """Find what the subjects and payloads of a message and its original differ in."""
    wanted = rule.destination(original.subject)
    if came.subject != wanted:
        judgement.add("wrong subject", "violation", f"{of}: {came.subject}, not {wanted}", at)
    if not alike(original, came):
        judgement.add("wrong bytes", "violation", f"{of}: {came.size} bytes, not {original.size}", at)


def compare_copy(
    judgement: Judgement, story: Story, rule: RuleUnderTest, stored: Stored, original: Original, of: str
) -> None:
    """Find what a copy in a stream and its original differ in."""
    at = story.when(stored)
    compare(judgement, rule, stored.message, original, of, at)
    block = RECORD.sub("\r\n", stored.message.block, count=1)
    if "\nNats-Msg-Id: " not in original.block:
        block = COPY_ID.sub("", block, count=1)
    if "\r\nNats-Incr: " in original.block:
        block = _COUNTED.sub("", block, count=1)
    if block != opened(original.block).replace("\r\nNats-Schedul", "\r\nNats-Bridge-Schedul") + "\r\n":
        judgement.add("wrong headers", "violation", f"{of}: {block!r}, not {original.block!r}", at)


def republished_lines(came: Original, original: Original, stream: str) -> re.Match[str] | None:
    """Match the header lines of a republished message: its sequence, time, and last sequence; None if they differ."""
    fixed = f"{opened(original.block)}Nats-Stream: {stream}\r\nNats-Subject: {original.subject}\r\n"
    return _ADDED.fullmatch(came.block.removeprefix(fixed)) if came.block.startswith(fixed) else None


def sent_without_answer(story: Story, rule: RuleUnderTest, stream: str, copy: Original) -> bool:
    """Whether a copy is one of a message whose publisher got no PubAck."""
    answered = story.acknowledged[stream]
    return any(
        number not in answered and rule.destination(sent.subject) == copy.subject and alike(sent, copy)
        for number, sent in story.sent[stream].items()
    )


def version(story: Story, rule: RuleUnderTest, stream: str, sequence: int, came: Original) -> Original | None:
    """The message that something was made of: of those that had its sequence, the one that it looks like."""
    versions = story.versions(stream, sequence)
    likely = [each for each in versions if rule.destination(each.subject) == came.subject and alike(each, came)]
    # Several can be empty, on one subject.
    number = header(came.block, "Chaos-Number")
    same = [each for each in likely if header(each.block, "Chaos-Number") == number]
    return next(iter(same or likely or versions[-1:]), None)


def alike(original: Original, came: Original) -> bool:
    """Whether two messages have the same payload."""
    return (original.size, original.digest) == (came.size, came.digest)


def opened(block: str) -> str:
    """A header block without its final line end, so that lines can follow."""
    return block[:-2] if block else "NATS/1.0\r\n"


def source_of(copy: Original) -> tuple[str, int]:
    """The stream and sequence in a copy's source record; empty and 0 without one."""
    record = RECORD.search(copy.block)
    return (record[1], int(record[2])) if record and record[2] else ("", 0)


def header(block: str, name: str) -> str:
    """The value of a header; empty without it."""
    found = re.search(rf"\r\n{name}: ([^\r]*)\r\n", block)
    return found[1] if found else ""
