"""The rows of a task, each kept until it is stored, so that they can be sent again when a connection breaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence

import pyarrow as pa

from nats_bridge.pipeline.backfill.rows import Batches, Piece, pieces_of

__all__ = ["KeptRows"]


class KeptRows:
    """Rows in ascending sequence.

    Args:
        batches: the rows; what comes from Spark is read in a thread, so that the connections are served meanwhile.

    Attributes:
        read: how many were read.
        last: the last one's sequence; 0 before there is one.
        forgotten: the last one's that is not kept any more; 0 before there is one.
    """

    def __init__(self, batches: Batches) -> None:
        self.read = 0
        self.last = 0
        self.forgotten = 0
        self._batches = batches
        self._kept: deque[Piece] = deque()
        self._coming: asyncio.Future[list[Piece] | None] | None = None
        self._ended = False

    async def behind(self, handled: int) -> AsyncIterator[Piece]:
        """The rows behind a sequence: those that are kept, then new ones. Nothing before is kept on."""
        self.stored(handled)
        pieces: Sequence[Piece] | None = tuple(self._kept)
        while pieces is not None:
            for piece in pieces:
                if (wanted := piece.behind(handled)) is not None:
                    yield wanted
            pieces = await self._next()

    def stored(self, sequence: int) -> None:
        """Everything up to a sequence is stored, and will not be asked for again."""
        kept = self._kept
        while kept and kept[0].last <= sequence:
            self.forgotten = kept.popleft().last

    async def _next(self) -> list[Piece] | None:
        """New pieces, kept from now on; the batch behind them is being read meanwhile. None at the end."""
        if self._ended:
            return None
        if self._coming is None:
            self._coming = self._read()
        # Shielded: the waiting caller may be cancelled, and the batch is wanted nevertheless.
        pieces = await asyncio.shield(self._coming)
        if pieces is None:
            self._ended = True
            return None
        if pieces:
            self.last = pieces[-1].last
            self.read += sum(map(len, pieces))
            self._kept.extend(pieces)
        self._coming = self._read()
        return pieces

    def _read(self) -> asyncio.Future[list[Piece] | None]:
        if isinstance(self._batches, AsyncIterator):
            return asyncio.ensure_future(self._arriving(self._batches))
        return asyncio.get_running_loop().run_in_executor(None, self._given, self._batches)

    def _given(self, batches: Iterator[pa.RecordBatch]) -> list[Piece] | None:
        return self._pieces(next(batches, None))

    async def _arriving(self, batches: AsyncIterator[pa.RecordBatch]) -> list[Piece] | None:
        return self._pieces(await anext(batches, None))

    def _pieces(self, batch: pa.RecordBatch | None) -> list[Piece] | None:
        return None if batch is None else pieces_of(batch, self.last)
