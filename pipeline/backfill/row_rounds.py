"""A task's rows published in rounds (`pipeline.rounds`): what the tasks share that make messages one by one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Protocol

import structlog

from nats_bridge.bridge.replication import Connection, CopyCounters, Delivered, Operation
from nats_bridge.pipeline.backfill.rows import Batches, KeptRows
from nats_bridge.pipeline.rounds import Place, Rounds, Sender

__all__ = ["Maker", "published"]

_log = structlog.get_logger("pipeline.backfill")


class Maker(Sender[list[Operation]], Protocol):
    """Makes operations of rows."""

    async def made_of(self, batch: list[Delivered]) -> list[Operation]:
        """What is to be published for a batch, in its order, without what the target held when the round began."""


async def published(
    batches: Batches,
    maker: Maker,
    connection: Connection,
    place: Place,
    probe: bytes,
    counters: CopyCounters,
    *,
    patience: float,
    created: str = "",
) -> dict[str, int]:
    """Publish what is made of rows; the counts, with how many rows there were, and the last one's sequence.

    Args:
        batches: the rows.
        maker: what makes operations of them.
        connection: the connection of the stream that stores it all.
        place: that stream.
        probe: a subject that it stores.
        counters: where to count.
        patience: seconds for which it may be away or full.
        created: when it was created, where only that one will do.

    Raises:
        BridgeError: what the maker raises, and what `Rounds` does.
    """

    def interrupted(reason: str) -> None:
        _log.warning("backfill.interrupted", rule=place.rule, reason=reason)

    rows = KeptRows(batches)
    rounds: Rounds[list[Operation]] = Rounds(
        place, connection, maker, counters, patience=patience, created=created, interrupted=interrupted
    )
    try:
        await rounds.open(probe)
        async for piece in rows.behind(0):
            made = await maker.made_of(piece.messages())
            rows.stored(rows.last)  # kept as operations from now on
            await rounds.send(made)
        await rounds.settled()
    finally:
        await rounds.close()
    return {**asdict(counters), "rows": rows.read, "last": rows.last}
