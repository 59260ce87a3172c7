"""The outcome of each message of a history, without publishing anything: the sidecar's own operations, taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from nats_bridge.bridge.replication import (
    AckReply,
    CopyCounters,
    CopyEncoder,
    Delivered,
    EntryPlan,
    Operation,
    Rejected,
    RepublishEncoder,
    Target,
    message_sequence,
    parts_of,
)
from nats_bridge.transforms import header_block

_REASONS: Final = {
    "suppressed": "its destination is no subject that can be published",
    "reserved": "its destination is a command to the server",
    "looped": "its destination belongs to the rule's own stream",
    "too_large": "with its headers it is larger than the target's max_payload",
}


@dataclass(frozen=True, slots=True)
class Made:
    """The outcome of one message.

    Attributes:
        source: as it was delivered.
        subject: of what is published, or would be.
        header_block: raw.
        payload: raw.
        rejected: why the target does not take it; empty if it does.
    """

    source: Delivered
    subject: bytes
    header_block: bytes
    payload: bytes
    rejected: str = ""


@dataclass(frozen=True, slots=True)
class CopyOutcomes:
    """The outcomes of an entry of a copying rule.

    Attributes:
        plan: what it does.
        key: what stands for it in message ids.
        target: the stream that receives.
        max_payload: bytes that the target's server takes in one message, headers included.
    """

    plan: EntryPlan
    key: bytes
    target: Target
    max_payload: int

    def made_of(self, batches: Iterator[list[Delivered]]) -> Iterator[list[Made]]:
        """Per batch what is made of it, in its order."""
        loop = CopyEncoder(
            self.plan.sourcing,
            self.key,
            self.target,
            CopyCounters(),
            max_payload=self.max_payload,
            records=not self.plan.keep_sequence,
        )
        for batch in batches:
            by_sequence = {message_sequence(message[1]): message for message in batch}
            made: list[Made] = []
            done = 0
            while done < len(batch):
                out: list[Operation] = []
                done, special = loop.run(batch, out, done)
                made += [Made(by_sequence[sequence], *parts_of(operation)) for sequence, operation in out]
                if special is None:
                    continue
                message = batch[done - 1]
                if isinstance(special, Rejected):
                    copy = self.plan.sourcing.destination(special.subject) or special.subject
                    made.append(Made(message, copy, special.header_block, special.payload, special.reason))
                else:
                    made.append(Made(message, *parts_of(special[1])))
            yield made


@dataclass(frozen=True, slots=True)
class RepublishOutcomes:
    """The outcomes of a republish rule, for the whole history in order.

    `Nats-Last-Sequence` is the sequence before it of the same subject in the history: what the stream had deleted
    before the history was read cannot be seen any more, and counts as if it had never been there.

    Attributes:
        loop: the sidecar's, which has seen nothing yet.
        first: the first sequence wanted; what is before it is only read.
        headers_only: whether bodies are left out.
    """

    loop: RepublishEncoder
    first: int
    headers_only: bool

    def made_of(self, batches: Iterator[list[Delivered]]) -> Iterator[list[Made]]:
        """Per batch what is made of it, in its order."""
        for batch in batches:
            made: list[Made] = []
            for message in batch:
                if AckReply.parse(message[1]).stream_sequence < self.first:
                    self.seen(message)
                    continue
                operation, reason = self.operation_of(message)
                if operation is not None:
                    made.append(Made(message, *parts_of(operation)))
                elif reason in _REASONS:
                    made.append(Made(message, message[0], message[2], message[3], _REASONS[reason]))
            yield made

    def seen(self, message: Delivered) -> None:
        """Note a message that is not published, but may be the predecessor of others."""
        self.loop.seed(message[0], message[1].split(b".")[5])

    def operation_of(self, message: Delivered) -> tuple[bytes | None, str]:
        """The `HPUB` operation without a reply subject; or None, and the name of the counter that says why."""
        counters = self.loop.counters
        before = (counters.suppressed, counters.reserved, counters.looped, counters.too_large)
        out: list[bytes] = []
        self.loop.run([_as_delivered(message) if self.headers_only else message], out)
        if out:
            return out[0], ""
        after = (counters.suppressed, counters.reserved, counters.looped, counters.too_large)
        names = ("suppressed", "reserved", "looped", "too_large")
        return None, next((name for name, a, b in zip(names, before, after, strict=True) if a != b), "unmatched")


Outcomes: TypeAlias = CopyOutcomes | RepublishOutcomes
"""What applies a rule to messages."""


def _as_delivered(message: Delivered) -> Delivered:
    """The message as a consumer with `headers_only` delivers it: the body's size in a header, no body."""
    subject, reply, block, payload = message
    return subject, reply, header_block.append(block, [(b"Nats-Msg-Size", b"%d" % len(payload))]), b""
