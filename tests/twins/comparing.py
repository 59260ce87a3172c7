"""What native and bridge made of the same stream, compared: equal, a known divergence, or a finding. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nats_transforms.republish import StoredMessage
from tests.live.copied_messages import taken_apart

FILLER = b".filler"
"""How the subject of fillers ends, in targets with the source's sequence numbers."""
_LAST = b"Nats-Last-Sequence"
_OURS, _THEIRS = b"\nNats-Bridge-", b"\nNats-"
_SCHEDULE = b"\nNats-Bridge-Schedule:"
_WITHHELD = re.compile(rb"Nats-TTL: [^\r]*\r\n")
"""What a stream without `allow_msg_ttl` refuses from a client, and stores of a native source (kd/copy/withheld)."""


@dataclass(frozen=True, slots=True)
class Republished:
    """A republished message; `subject` is without the first token."""

    subject: bytes
    block: bytes
    payload: bytes

    @property
    def sequence(self) -> int:
        """Its sequence in the stream: the last such header, since publishers may write one as well."""
        return int(_last_value(self.block, b"Nats-Sequence"))


@dataclass(slots=True)
class Comparison:
    """What a comparison found.

    Attributes:
        equal: messages that are equal to the byte.
        known: differences by the counter of the bridge that accounts for them.
        findings: differences that nothing accounts for, in words.
    """

    equal: int = 0
    known: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, other: Comparison) -> None:
        """Add another one's."""
        self.equal += other.equal
        self.known.update(other.known)
        self.findings += other.findings

    def check(self, counters: Mapping[str, int], *names: str) -> None:
        """Add a finding where a counter is lower than the differences that it accounts for."""
        for name in names:
            if (differences := self.known[name]) > counters[name]:
                self.findings.append(f"{differences} differences, but {name} is {counters[name]}")


def compare_republished(
    native: Sequence[Republished], bridged: Sequence[Republished], counters: Mapping[str, int]
) -> Comparison:
    """Compare what a stream's republish and a rule published of the same stream."""
    found = Comparison()
    theirs = {message.sequence: message for message in native}
    sequences = [message.sequence for message in bridged]
    if sequences != sorted(set(sequences)):
        found.findings.append("republished out of order, or twice")
    for message in bridged:
        other = theirs.pop(message.sequence, None)
        if other == message:
            found.equal += 1
        elif other is not None and _without_last(other) == _without_last(message):
            found.known["last_sequence_uncertain"] += 1
        else:
            found.findings.append(f"republish of {message.sequence}: native {other}, bridge {message}")
    if theirs:
        found.known["vanished"] = len(theirs)
    found.check(counters, "last_sequence_uncertain", "vanished")
    return found


def compare_copies(
    native: Sequence[StoredMessage],
    bridged: Sequence[StoredMessage],
    there: Collection[int],
    counters: Mapping[str, int],
    *,
    end: int = 2**63,
    numbered: bool = False,
) -> Comparison:
    """Compare a stream with native sources, or a native mirror, with the target of a rule.

    Args:
        native: what the native stream holds.
        bridged: what the rule's target holds; fillers are not compared.
        there: the sequences that the source still holds: a message that it has removed may have been read by one alone.
        counters: the rule's.
        end: the sequence of the source through which both are compared.
        numbered: whether both streams have the source's sequence numbers (mirrors), and so no records.
    """
    found = Comparison()
    mine, theirs = _by_sequence(bridged, numbered), _by_sequence(native, numbered)
    for name, copies, messages in (("bridge", mine, bridged), ("native", theirs, native)):
        if list(copies) != sorted(copies):
            found.findings.append(f"{name}: copies out of order, of {len(messages)}")
    for sequence in sorted(each for each in mine.keys() | theirs.keys() if each <= end):
        own, other = mine.get(sequence), theirs.get(sequence)
        if own is None or other is None:
            if own is not None and _SCHEDULE in own[1]:
                # What it fires is copied too, and removes a native copy of it (kd/copy/renamed).
                found.known["renamed_headers"] += 1
            elif sequence in there:
                found.findings.append(f"copy of {sequence}: native {other}, bridge {own}")
            else:
                found.known["removed during the comparison"] += 1
        elif own == other:
            found.equal += 1
        elif (own[0], own[1].replace(_OURS, _THEIRS), own[2]) == other:
            found.known["renamed_headers"] += 1
        elif own == (other[0], _withheld(other[1]), other[2]):
            found.known["withheld_headers"] += 1
        else:
            found.findings.append(f"copy of {sequence}: native {other}, bridge {own}")
    found.check(counters, "renamed_headers", "withheld_headers")
    return found


def compare_counters(native: Sequence[StoredMessage], bridged: Sequence[StoredMessage]) -> Comparison:
    """Compare counter streams: subjects and values, in order. Native copies keep the source's totals in a header."""
    found = Comparison()
    mine, theirs = [(m.subject, m.payload) for m in bridged], [(m.subject, m.payload) for m in native]
    if mine == theirs:
        found.equal = len(mine)
    else:
        found.findings.append(f"counters: {len(theirs)} native, {len(mine)} of the bridge, with other values")
    return found


def _by_sequence(messages: Sequence[StoredMessage], numbered: bool) -> dict[int, tuple[bytes, bytes, bytes]]:
    copies = {}
    for message in messages:
        if numbered and message.subject.endswith(FILLER):
            continue
        copy = taken_apart(message)
        sequence = message.sequence if numbered else copy.sequence
        if sequence in copies:
            copies[-sequence] = (copy.subject, b"stored twice", copy.payload)
        copies[sequence] = (copy.subject, copy.block, copy.payload)
    return copies


def _withheld(block: bytes) -> bytes:
    """A block as it is where the rule has removed what the target refuses; empty without any header left."""
    left = _WITHHELD.sub(b"", block)
    return b"" if left == b"NATS/1.0\r\n\r\n" else left


def _without_last(message: Republished) -> tuple[bytes, bytes, bytes]:
    """All but the value of the server's own line about the predecessor."""
    before, name, after = message.block.rpartition(b"\r\n" + _LAST + b": ")
    return message.subject, before + name + after.partition(b"\r\n")[2], message.payload


def _last_value(block: bytes, name: bytes) -> bytes:
    return block.rpartition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]
