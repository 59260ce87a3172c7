"""A dead letter, as rules of kind `advisories` and `on_rejected` write it, and the message that it was. Pure.

What acted in the first stream must not act again: the message comes back without its expectations, rollup, increment,
schedule and source record, and under an id of the redrive. Its time to live begins again.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

from nats_bridge.bridge.kinds.advisories.advisory import STREAM_NAME, Advisory
from nats_bridge.transforms import header_block
from nats_bridge.transforms.subject import matches

_ACTING: Final = re.compile(
    rb"(?<=\n)Nats-(?:Bridge-Original-)?(?:Rollup|Stream-Source|Incr|Expected-[^:\r\n]*|Batch-[^:\r\n]*"
    rb"|Schedule[^:\r\n]*):.*?\r\n",
    re.DOTALL,
)
_EARLIER: Final = re.compile(rb"(?<=\n)Nats-(?:Bridge-Original-)?Msg-Id: redrive-[^\r\n ]+-[0-9a-f]{8}-\d+\r\n")
"""The id of an earlier redrive, of a message that was given up again."""
_SEQUENCE: Final = re.compile(rb"[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter's facts about its message.

    Attributes:
        sequence: its own sequence, in the dead letters' stream.
        time_ns: when it was stored there, in nanoseconds since 1970.
        stream: the stream that held the message.
        subject: the message's subject there; empty where the letter is an advisory alone.
        original: the message's sequence there.
        stamp: when the message was stored there, as its header says; empty where none does.
        copy_id: of a rejected copy, the id that its rule gave it; else empty.
        consumer: who gave it up; empty for a rejected copy.
        reason: why, in words.
        rejected: whether it is a copy that a rule's target rejected.
        complete: whether it holds the message itself.
    """

    sequence: int
    time_ns: int
    stream: str
    subject: bytes
    original: int
    stamp: bytes
    consumer: str
    reason: str
    rejected: bool
    complete: bool
    copy_id: bytes = b""

    @property
    def message(self) -> tuple[str, int, bytes, bytes]:
        """The same for all letters of one message, which several consumers can give up.

        Copies that several rules could not store of one message are several messages, each with its own subject.
        """
        return self.stream, self.original, self.stamp, self.copy_id


def read_letter(sequence: int, time_ns: int, block: bytes, payload: bytes | None) -> Letter | None:
    """Read a message of the dead letters' stream; None if it is no dead letter.

    Args:
        sequence: its sequence.
        time_ns: when it was stored, in nanoseconds since 1970.
        block: its header block.
        payload: its payload, which only an advisory alone needs; None where it was not read.
    """

    def value(name: bytes) -> bytes:
        return header_block.read(block, name) or b""

    reason, kind = value(b"Nats-Bridge-Rejected"), value(b"Nats-Bridge-Advisory")
    if reason or kind:
        subject, original = value(b"Nats-Subject"), value(b"Nats-Sequence")
        stream = _text(value(b"Nats-Stream"))
        if not subject or not _SEQUENCE.fullmatch(original) or not STREAM_NAME.fullmatch(stream):
            return None
        return Letter(
            sequence,
            time_ns,
            stream,
            subject,
            int(original),
            value(b"Nats-Time-Stamp"),
            _text(value(b"Nats-Bridge-Consumer")),
            _text(reason)
            or _reason(_text(value(b"Nats-Bridge-Reason")), _text(kind), value(b"Nats-Bridge-Deliveries")),
            rejected=bool(reason),
            # Behind our own lines the size is one of ours: the payload was left out.
            complete=b"\r\nNats-Msg-Size:" not in block[block.rfind(b"\nNats-Bridge-") :],
            copy_id=value(b"Nats-Msg-Id") if reason else b"",
        )
    if not value(b"Nats-Subject").startswith(b"$JS.EVENT.ADVISORY.CONSUMER.") or payload is None:
        return None
    return _alone(sequence, time_ns, Advisory.read(value(b"Nats-Subject"), payload))


def _alone(sequence: int, time_ns: int, advisory: Advisory) -> Letter | None:
    if not advisory.names_a_message:
        return None
    reason = _reason(advisory.reason, advisory.kind, b"%d" % advisory.deliveries)
    return Letter(
        *(sequence, time_ns, advisory.stream, b"", advisory.sequence, b"", advisory.consumer, reason),
        rejected=False,
        complete=False,
    )


def restored(block: bytes, identity: bytes) -> bytes:
    """The message's header block, as it is published again.

    Args:
        block: that of a complete letter, or of the message as its stream holds it.
        identity: its `Nats-Msg-Id` from now on.
    """
    if b"\nNats-Bridge-Advisory:" in block or b"\nNats-Bridge-Rejected:" in block:
        block = block[: block.rfind(b"\nNats-Stream:") + 1] + b"\r\n"  # what the rule appended begins there
        if b"\nNats-Msg-Id: rejected-" in block:
            block = without_last(block, b"Nats-Msg-Id")
    block = _EARLIER.sub(b"", _ACTING.sub(b"", header_block.untraced(block)))
    block = re.sub(rb"(?<=\n)Nats-Bridge-Original-TTL:", b"Nats-TTL:", block)
    block = re.sub(rb"(?<=\n)Nats-Msg-Id:", b"Nats-Bridge-Original-Msg-Id:", block)
    return header_block.append(block, [(b"Nats-Msg-Id", identity)])


def redrive_id(stream: str, created: str, sequence: int) -> bytes:
    """The `Nats-Msg-Id` of what is redriven: the same for the same dead letter of the same stream, however often.

    Args:
        stream: the dead letters' stream.
        created: when that was created, as its server writes it: another stream of this name has other letters.
        sequence: the letter's.
    """
    return b"redrive-%b-%08x-%d" % (stream.encode(), zlib.crc32(created.encode()), sequence)


def without_last(block: bytes, name: bytes) -> bytes:
    """A header block without the last line of a name."""
    start = block.rfind(b"\n" + name + b":") + 1
    end = block.find(b"\r\n", start) + 2
    return block[:start] + block[end:] if start and end > 1 else block


def _reason(given: str, kind: str, deliveries: bytes) -> str:
    return given or ("terminated" if kind.endswith(".terminated") else f"{_text(deliveries)} deliveries")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters; what is empty selects all.

    Attributes:
        stream: the stream that held the message.
        consumer: who gave it up.
        subject: the message's subject, perhaps with wildcards.
        reason: a part of the reason; case does not matter.
        from_ns, to_ns: letters stored at or after the first, and before the second, nanoseconds since 1970.
        most: how many at most; 0 for all.
    """

    stream: str = ""
    consumer: str = ""
    subject: str = ""
    reason: str = ""
    from_ns: int = 0
    to_ns: int = 0
    most: int = 0

    def selects(self, letter: Letter) -> bool:
        """Whether a letter is meant, whatever their number."""
        return (
            self.stream in ("", letter.stream)
            and self.consumer in ("", letter.consumer)
            and (not self.subject or matches(letter.subject, self.subject.encode()))
            and self.reason.lower() in letter.reason.lower()
            and letter.time_ns >= self.from_ns
            and (not self.to_ns or letter.time_ns < self.to_ns)
        )
