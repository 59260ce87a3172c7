"""Sends operations that a pipeline alone would store wrongly.

* A message that the target may refuse is in flight alone, so that no later one is stored before the answer.
* A rejected message becomes a dead letter, or ends the rule (`dead_letters`).
* Copies into a counter stream become additions. Each turn of them is sent when the previous turn is settled
  (`counting.turns`).
* Copies that keep their sequences have fillers before them (`gap_filler`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import message_sequence
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.encoder import CopyEncoder, Operation, Rejected, Special
from nats_bridge.kinds.copying.writing.counting import Counting, turns
from nats_bridge.kinds.copying.writing.gap_filler import GapFiller
from nats_bridge.kinds.copying.writing.publisher import Publisher

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.entry import EntryContext
    from nats_bridge.kinds.copying.round import RoundLife


@dataclass(frozen=True, slots=True)
class CarefulSending:
    """Sends operations of one round that need care.

    Attributes:
        gap_filler: fills the numbers that the source lacks; None if copies do not keep their sequences.
    """

    context: EntryContext
    life: RoundLife
    publisher: Publisher
    encoder: CopyEncoder
    gap_filler: GapFiller | None

    async def send(self, batch: list[Delivered], out: list[Operation], done: int, special: Special) -> None:
        """Send a batch, of which `CopyEncoder.run` has handled the first messages: it returned `done` and `special`.

        Raises:
            RuleRefusedError: the rule stops at a rejected message, or a number is missing.
            ApiError: a server refuses.
        """
        publisher = self.publisher
        send = partial(self._count, batch) if self.encoder.counts else self._send
        while True:
            await send(out)
            if special is None:
                return
            await publisher.settled()
            if not isinstance(special, Rejected):
                await send([special])
                await publisher.settled()
            elif not self.life.stopped_sending:
                publisher.request_each()  # dead letters can be in the target as well, so no answer stands for others
                await self.context.dead_letters.handle(special)
            else:
                return  # it is neither copied nor a dead letter, so no later message may be stored
            out = []
            done, special = self.encoder.run(batch, out, done)

    async def _count(self, batch: list[Delivered], operations: list[Operation]) -> None:
        """Send additions to counters, each turn when the previous one is settled."""
        counting = self.context.counting
        assert counting is not None, "the round of a counter stream begins with it"
        subjects = {message_sequence(reply): subject for subject, reply, _, _ in batch}
        for turn in turns(operations, self.encoder.id_line):
            if self.life.stopped_sending:
                return
            try:
                additions = await counting.additions(turn, subjects, self.encoder.limit)
            except ApiError as error:
                self._interrupt_if_passing("the target's counters cannot be read", error)
                return
            await self._add(counting, additions)

    async def _add(self, counting: Counting, additions: list[Operation]) -> None:
        counters = self.context.counters
        before = counters.duplicates, counters.rejected
        await self._send(additions)
        await self.publisher.settled()
        if self.life.stopped_sending or before != (counters.duplicates, counters.rejected):
            counting.forget()
        else:
            counting.keep()

    async def _send(self, operations: list[Operation]) -> None:
        context, publisher = self.context, self.publisher
        pieces = [(operations, False)] if self.gap_filler is None else self.gap_filler.pieces(operations)
        filled = 0
        for piece, fills in pieces:
            if fills:
                publisher.count_no_copies(piece)
            if waiting := publisher.send(piece):
                await waiting
            if fills:
                filled += len(piece)
        if filled:
            await publisher.settled()
            try:
                await context.resuming.remove_fillers(context.target.api)
            except ApiError as error:
                self._interrupt_if_passing("the fillers are not removed yet", error)  # the next round begins with that
            context.counters.fillers += filled

    def _interrupt_if_passing(self, reason: str, error: ApiError) -> None:
        if not error.passing:
            raise error
        self.life.interrupt(f"{reason} ({error})")
