"""What a republish rule makes of messages: the sidecar's own loop, told every predecessor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.kinds.republish.encoder import RepublishLoop
from nats_bridge.pipeline.backfill.copy_outcomes import taken_apart
from nats_bridge.pipeline.backfill.outcomes import Made
from nats_bridge.transforms import header_block

__all__ = ["RepublishOutcomes"]

_REASONS: Final = {
    "suppressed": "its destination is no subject that can be published",
    "looped": "its destination belongs to the rule's own stream",
    "too_large": "with its headers it is larger than the target's max_payload",
}


@dataclass(frozen=True, slots=True)
class RepublishOutcomes:
    """A republish rule (see `Outcomes`), for the whole history in order.

    `Nats-Last-Sequence` is the sequence before it of the same subject in the history: what the stream had deleted
    before the history was read cannot be seen any more, and counts as if it had never been there.

    Attributes:
        loop: the sidecar's, which has seen nothing yet.
        first: the first sequence wanted; what is before it is only looked at.
        headers_only: whether bodies are left out.
    """

    loop: RepublishLoop
    first: int
    headers_only: bool

    def made_of(self, batches: Iterator[list[Delivered]]) -> Iterator[tuple[list[Made], int]]:
        """What is made of each batch."""
        for batch in batches:
            made: list[Made] = []
            unselected = 0
            for message in batch:
                if AckReply.parse(message[1]).stream_sequence < self.first:
                    self.seen(message)
                    continue
                operation, reason = self.operation_of(message)
                if operation is not None:
                    made.append(Made(message, *taken_apart(operation)))
                elif reason in _REASONS:
                    made.append(Made(message, message[0], message[2], message[3], _REASONS[reason]))
                else:
                    unselected += 1
            yield made, unselected

    def seen(self, message: Delivered) -> None:
        """A message that is not to be published, but may be the predecessor of others."""
        self.loop.seed(message[0], message[1].split(b".")[5])

    def operation_of(self, message: Delivered) -> tuple[bytes | None, str]:
        """The `HPUB` operation without a reply subject; or None, and the name of the counter that says why."""
        counters = self.loop.counters
        before = (counters.suppressed, counters.looped, counters.too_large)
        out: list[bytes] = []
        self.loop.run([_as_delivered(message) if self.headers_only else message], out)
        if out:
            return out[0], ""
        after = (counters.suppressed, counters.looped, counters.too_large)
        names = ("suppressed", "looped", "too_large")
        return None, next((name for name, a, b in zip(names, before, after, strict=True) if a != b), "unmatched")


def _as_delivered(message: Delivered) -> Delivered:
    """As a consumer with `headers_only` delivers it: the body's size in a header, and no body."""
    subject, reply, block, payload = message
    return subject, reply, header_block.append(block, [(b"Nats-Msg-Size", b"%d" % len(payload))]), b""
