"""What a message and the story say, for all judges."""

from __future__ import annotations

import re

from chaos.findings import Judgement
from chaos.plan import EXPIRING, SCHEDULED, STREAMS, RuleUnderTest
from chaos.story import Original, Stored, Story

__all__ = [
    "COPY_ID",
    "RECORD",
    "compare_copy",
    "header",
    "lost_tail",
    "opened",
    "sent_without_answer",
    "source_of",
    "time_of",
    "when",
]

RECORD = re.compile(r"\r\n(?:Nats-Stream-Source|Nats-Bridge-Source): ([^\r]*)\r\n")
COPY_ID = re.compile(r"Nats-Msg-Id: bridge-[0-9a-f]{12}-[0-9]+-[0-9]+\r\n")
_COUNTED = re.compile(r"Nats-Bridge-Counter-Sources: [^\r]*\r\n")
_EXPIRING = re.compile(r"\r\n(?:Nats-TTL: [0-9]|Nats-Schedule: )")
_START = "NATS/1.0\r\n"


def compare_copy(
    judgement: Judgement, story: Story, rule: RuleUnderTest, stored: Stored, original: Original, of: str
) -> None:
    """Find what a copy and its original differ in."""
    copy = stored.message
    wanted = rule.destination(original.subject)
    at = when(story, stored)
    if copy.subject != wanted:
        judgement.add("wrong subject", "violation", f"{of}: {copy.subject}, not {wanted}", at)
    if (copy.size, copy.digest) != (original.size, original.digest):
        judgement.add("wrong bytes", "violation", f"{of}: {copy.size} bytes, not {original.size}", at)
    block = RECORD.sub("\r\n", copy.block, count=1)
    if "\nNats-Msg-Id: " not in original.block:
        block = COPY_ID.sub("", block, count=1)
    if "\r\nNats-Incr: " in original.block:
        block = _COUNTED.sub("", block, count=1)
    if block != opened(original.block).replace("\r\nNats-Schedul", "\r\nNats-Bridge-Schedul") + "\r\n":
        judgement.add("wrong headers", "violation", f"{of}: {block!r}, not {original.block!r}", at)


def sent_without_answer(story: Story, rule: RuleUnderTest, stream: str, copy: Original) -> bool:
    """Whether a copy is one of a message whose publisher got no PubAck."""
    answered = story.acknowledged[stream]
    return any(
        (rule.destination(sent.subject), sent.size, sent.digest) == (copy.subject, copy.size, copy.digest)
        for number, sent in story.sent[stream].items()
        if number not in answered
    )


def opened(block: str) -> str:
    """A header block without its final line end, so that lines can follow."""
    return block[:-2] if block else _START


def source_of(block: str) -> tuple[str, int]:
    """The stream and sequence in a copy's source record; empty and 0 without one."""
    record = RECORD.search(block)
    fields = record[1].split(" ") if record else []
    return (fields[0], int(fields[1])) if len(fields) > 1 and fields[1].isdigit() else ("", 0)


def header(block: str, name: str) -> str:
    """The value of a header; empty without it."""
    found = re.search(rf"\r\n{name}: ([^\r]*)\r\n", block)
    return found[1] if found else ""


def lost_tail(story: Story, stream: str, place: str = "") -> bool:
    """Whether the servers, killed, lost messages of a stream that they had acknowledged: not a sidecar's doing."""
    final = story.final[stream]
    killed = any(each.kind in ("server killed", "all servers killed") for each in story.disturbances)
    return killed and any(
        sequence not in final
        and not story.was_removed(stream, sequence)
        and not (stream in EXPIRING | SCHEDULED and _expires(stream, story.sent[stream][number].block))
        for number, sequence in story.acknowledged[place or stream].items()
    )


def _expires(stream: str, block: str) -> bool:
    """Whether such a message soon expires in a stream."""
    aging = "max_age" in STREAMS[stream] and "\r\nNats-TTL: never\r\n" not in block
    return aging or _EXPIRING.search(block) is not None


def time_of(story: Story, stream: str, sequence: int) -> float | None:
    """The same for a stream's message; None if it is not there."""
    stored = story.final[stream].get(sequence)
    return None if stored is None else when(story, stored)


def when(story: Story, stored: Stored) -> float:
    """When a message was stored, as seconds of the run."""
    return round(stored.time_ns / 1e9 - float(story.run.get("began", 0)), 3)
