"""What a copying rule makes of messages: the sidecar's own operations, taken apart again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.copying.encoder import CopyLoop, Operation, message_sequence
from nats_bridge.bridge.kinds.copying.entry_plan import EntryPlan
from nats_bridge.bridge.kinds.copying.target import Target
from nats_bridge.pipeline.backfill.outcomes import Made

__all__ = ["CopyOutcomes", "taken_apart"]


@dataclass(frozen=True, slots=True)
class CopyOutcomes:
    """One entry (see `Outcomes`).

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

    def loop(self, counters: CopyCounters) -> CopyLoop:
        """The sidecar's loop for it."""
        return CopyLoop(
            self.plan.sourcing,
            self.key,
            self.target,
            counters,
            max_payload=self.max_payload,
            records=not self.plan.keep_sequence,
        )

    def made_of(self, batches: Iterator[list[Delivered]]) -> Iterator[tuple[list[Made], int]]:
        """What is made of each batch; see `Outcomes`."""
        loop = self.loop(CopyCounters())
        for batch in batches:
            by_sequence = {message_sequence(message[1]): message for message in batch}
            made: list[Made] = []
            done = 0
            while done < len(batch):
                out: list[Operation] = []
                done, special = loop.run(batch, out, done)
                made += [Made(by_sequence[sequence], *taken_apart(operation)) for sequence, operation in out]
                if special is None:
                    continue
                if special.operation is not None:
                    made.append(Made(special.message, *taken_apart(special.operation[1])))
                else:
                    subject, _, _, payload = special.message
                    copy = self.plan.sourcing.destination(subject) or subject
                    made.append(Made(special.message, copy, special.header_block, payload, special.reason))
            yield made, len(batch) - len(made)


def taken_apart(operation: bytes) -> tuple[bytes, bytes, bytes]:
    """Subject, header block and payload of an `HPUB` operation without a reply subject."""
    line, _, rest = operation.partition(b"\r\n")
    _, subject, size, total = line.split(b" ")
    return subject, rest[: int(size)], rest[int(size) : int(total)]
