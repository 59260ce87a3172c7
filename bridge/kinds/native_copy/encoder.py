"""The hot loop: a consumer's deliveries in, the same as a leaf sends them out, with transformed subjects.

The server that copies takes sequence, time stamp and position from the reply subject, which passes as it is, and the
subject from what follows it behind an `@` (nats-server 2.9.10 to 2.15.1). It takes a gap in the consumer's sequences
for a loss, so where messages are left out, those after them are renumbered.
"""

from __future__ import annotations

from collections.abc import Sequence

from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.consuming.ack_reply import fields_behind
from nats_bridge.bridge.kinds.native_copy.counters import NativeCopyCounters
from nats_bridge.bridge.rules.known_subjects import KnownSubjects
from nats_bridge.transforms import header_block
from nats_bridge.transforms.sourcing import Sourcing

_UNSENDABLE = frozenset(b" \t\r\n")


class UndeliverableError(Exception):
    """A message cannot be delivered over a leaf connection; the text says why."""


class NativeEncoder:
    """Turns a consumer's deliveries into those of a leaf.

    Args:
        sourcing: the compiled filters and transforms.
        removed: names of headers to take out.
        counters: where to count.

    Attributes:
        takes_at: whether the server that copies takes subjects with an `@` (from 2.11 on).
    """

    def __init__(self, sourcing: Sourcing, removed: Sequence[bytes], counters: NativeCopyCounters) -> None:
        self.takes_at = True
        self._sourcing = sourcing
        self._removed = tuple(removed)
        self._counters = counters
        is_random = any(part.is_random for part in sourcing.transforms)
        self._known: KnownSubjects[bytes | None] = KnownSubjects(self._behind, kept=not is_random)

    def run(self, batch: list[Delivered], head: bytes, left_out: int, out: list[bytes]) -> int:
        """Handle a batch.

        Args:
            batch: what the consumer delivered.
            head: the subject to deliver to, and a space.
            left_out: how many of the consumer's messages were left out so far.
            out: gets the operations.

        Returns:
            How many were left out, with those of this batch.

        Raises:
            UndeliverableError: a message has a subject that no leaf connection carries; `out` has what was before it.
        """
        known, removed = self._known.young, self._removed
        before, written, first = left_out, 0, len(out)
        try:
            for subject, reply, block, payload in batch:
                try:
                    behind = known[subject]
                except KeyError:
                    behind = self._known.enter(subject)
                if behind is None:
                    left_out += 1
                    continue
                if left_out:
                    reply = renumbered(reply, left_out)
                if block and removed:
                    block = self._without(block)
                if block:
                    size = len(block) + len(payload)
                    out.append(
                        b"HMSG %b%b%b %d %d\r\n%b%b\r\n" % (head, reply, behind, len(block), size, block, payload)
                    )
                    written += size
                else:
                    out.append(b"LMSG %b%b%b %d\r\n%b\r\n" % (head, reply, behind, len(payload), payload))
                    written += len(payload)
        finally:
            counters = self._counters
            counters.received += len(batch)
            counters.delivered += len(out) - first
            counters.bytes_out += written
            counters.unselected += left_out - before
        return left_out

    def _behind(self, subject: bytes) -> bytes | None:
        """The bytes after the reply subject; None for a message that is not selected."""
        becomes = self._sourcing.destination(subject)
        if becomes is None:
            return None
        if not _UNSENDABLE.isdisjoint(becomes):
            raise UndeliverableError(f"subject {becomes!r} holds white space, which the protocol has no place for")
        if b"@" in becomes and not self.takes_at:
            raise UndeliverableError(
                f"subject '{becomes.decode('utf-8', 'replace')}' holds an '@', at which servers up to 2.10 cut it"
                " apart: they would store nothing; upgrade the server that copies to 2.11 or newer"
            )
        return b"@" + becomes

    def _without(self, block: bytes) -> bytes:
        bare = block
        for name in self._removed:
            if name in bare:  # as servers look for them: case counts
                bare = header_block.remove(bare, name)
        if bare is not block and len(bare) < len(block):
            self._counters.headers_removed += 1
        return b"" if len(bare) <= len(header_block.START) + 2 else bare


def renumbered(reply: bytes, left_out: int) -> bytes:
    """A delivery's reply subject with the consumer's sequence lowered by the number of messages left out."""
    before, sequence, *after = reply.rsplit(b".", fields_behind(reply) - 1)
    return b"%b.%d.%b" % (before, int(sequence) - left_out, b".".join(after))
