"""A dead letter, as rules of kind `advisories` and `on_rejected` write it, and the message that it was. Pure.

Headers that acted in the first stream must not act again. The message comes back without its expectations, rollup,
increment, schedule and source record, and with an id of the redrive. Its time to live begins again.
"""

import re
import zlib
from dataclasses import dataclass
from typing import Final

from nats_bridge.kinds.advisories.advisory import STREAM_NAME
from nats_transforms import header_block

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
    """A dead letter's facts about its message."""

    sequence: int  # its own, in the dead letters' stream
    stream: str
    subject: bytes  # the message's subject; for an advisory alone, the advisory's
    original: int  # the message's sequence in `stream`
    stamp: bytes  # the time when the message was stored there, according to a header; empty without one
    consumer: str  # the consumer that gave it up; empty for a rejected copy
    reason: str  # in words
    rejected: bool  # whether it is a copy that a rule's target rejected
    complete: bool  # whether it contains the message itself
    copy_id: bytes = b""  # of a rejected copy, the id that its rule gave it

    @property
    def message(self) -> tuple[str, int, bytes, bytes]:
        """The identity of the message, for all letters about it: several consumers can give up the same message.

        Copies that several rules could not store of one message are several messages, each with its own subject.
        """
        return self.stream, self.original, self.stamp, self.copy_id

    @property
    def about(self) -> tuple[str, str, str]:
        """The message's stream, who gave it up, and why."""
        return self.stream, self.consumer or "(rejected copy)", self.reason


def read_letter(sequence: int, block: bytes) -> Letter | None:
    """Read a message of the dead letters' stream. Return None if it is not a dead letter."""

    def value(name: bytes) -> bytes:
        return header_block.read(block, name) or b""

    reason, kind = value(b"Nats-Bridge-Rejected"), value(b"Nats-Bridge-Advisory")
    subject, original, stream = value(b"Nats-Subject"), value(b"Nats-Sequence"), _text(value(b"Nats-Stream"))
    if not (reason or kind):
        if not subject.startswith(b"$JS.EVENT.ADVISORY.CONSUMER."):
            return None
        alone = "an advisory alone"
        return Letter(sequence, "", subject, 0, b"%d" % sequence, "", alone, rejected=False, complete=False)
    if not subject or not _SEQUENCE.fullmatch(original) or not STREAM_NAME.fullmatch(stream):
        return None
    deliveries = f"{_text(value(b'Nats-Bridge-Deliveries'))} deliveries"
    why = _text(reason) or _text(value(b"Nats-Bridge-Reason"))
    return Letter(
        *(sequence, stream, subject, int(original), value(b"Nats-Time-Stamp"), _text(value(b"Nats-Bridge-Consumer"))),
        why or ("terminated" if kind.endswith(b".terminated") else deliveries),
        rejected=bool(reason),
        # If the sidecar left out the payload, it writes the size after its own lines.
        complete=b"\r\nNats-Msg-Size:" not in block[block.rfind(b"\nNats-Bridge-") :],
        copy_id=value(b"Nats-Msg-Id") if reason else b"",
    )


def restored(block: bytes, identity: bytes) -> bytes:
    """Return the message's header block, as it is published again.

    Args:
        block: the header block of a complete letter, or of the message in its stream.
        identity: its `Nats-Msg-Id` from now on.
    """
    if b"\nNats-Bridge-Advisory:" in block or b"\nNats-Bridge-Rejected:" in block:
        block = block[: block.rfind(b"\nNats-Stream:") + 1] + b"\r\n"  # the headers that the rule appended begin here
        if b"\nNats-Msg-Id: rejected-" in block:
            block = without_last(block, b"Nats-Msg-Id")
    block = _EARLIER.sub(b"", _ACTING.sub(b"", header_block.untraced(block)))
    block = re.sub(rb"(?<=\n)Nats-Bridge-Original-TTL:", b"Nats-TTL:", block)
    block = re.sub(rb"(?<=\n)Nats-Msg-Id:", b"Nats-Bridge-Original-Msg-Id:", block)
    return header_block.append(block, [(b"Nats-Msg-Id", identity)])


def redrive_id(stream: str, created: str, sequence: int) -> bytes:
    """Return the `Nats-Msg-Id` of a redriven message, which is always the same for one dead letter of a stream.

    Args:
        stream: the dead letters' stream.
        created: when that was created, as its server wrote it first: another stream of this name has other letters.
        sequence: the letter's.
    """
    return b"redrive-%b-%08x-%d" % (stream.encode(), zlib.crc32(created.encode()), sequence)


def without_last(block: bytes, name: bytes) -> bytes:
    """Return a header block without the last line of a name."""
    start = block.rfind(b"\n" + name + b":") + 1
    end = block.find(b"\r\n", start) + 2
    return block[:start] + block[end:] if start and end > 1 else block


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
