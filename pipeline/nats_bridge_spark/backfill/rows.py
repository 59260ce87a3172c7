"""Rows of a history: pieces in columns, kept until they are stored; and as the sidecar's code takes messages, as if a
consumer had delivered them: as tuples of bytes.

What a consumer reports with the message is in a delivery's reply subject: `$JS.ACK.<stream>.<consumer>.<deliveries>.
<stream sequence>.<consumer sequence>.<time ns>.<pending>`. Of these only sequence and time are real here.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.wire import Delivered
from nats_bridge_spark.errors import DataLostError, SchemaError
from nats_bridge_spark.row_bundle import rows_together

SCHEMA: Final = pa.schema(
    {
        "subject": pa.string(),
        "sequence": pa.int64(),
        "time_ns": pa.int64(),
        "header_block": pa.binary(),
        "data": pa.binary(),
    }
)
"""What is needed of a history."""

COLUMNS: Final = tuple(SCHEMA.names)

_MAY_BE_NULL: Final = ("header_block", "data")

Batches: TypeAlias = Iterator[pa.RecordBatch] | AsyncIterator[pa.RecordBatch]
"""Rows of a history, as Spark gives them to a task, or as the task reads them itself."""

_PIECE: Final = 1024  # messages: few enough that the window of unconfirmed ones is never filled at once


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that follow each other.

    Attributes:
        sequences: of each, ascending; at least one.
        rows: with the columns in `COLUMNS`, in that order.
    """

    sequences: list[int]
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def last(self) -> int:
        """The last one's sequence."""
        return self.sequences[-1]

    def messages(self) -> list[Delivered]:
        """As if delivered."""
        return _deliveries(self.rows.columns)

    def behind(self, sequence: int) -> Piece | None:
        """The rows that follow a sequence; None where there are none."""
        start = bisect_right(self.sequences, sequence)
        if start == len(self.sequences):
            return None
        return Piece(self.sequences[start:], self.rows.slice(start)) if start else self


def pieces_of(batch: pa.RecordBatch, after: int) -> list[Piece]:
    """A batch of rows in ascending sequence, as pieces of some thousand messages at most.

    A row with the sequence of the one before it is left out: captures may hold a message twice.

    Args:
        batch: with at least the columns in `COLUMNS`.
        after: the sequence of the row before the batch; 0 for none.

    Raises:
        SchemaError: a column is missing or of another type, or null where nothing may be.
        DataLostError: the rows are not in the order of their sequences.
    """
    columns = [_column(batch, name) for name in COLUMNS]
    sequences = columns[1].to_numpy()
    steps = np.diff(sequences, prepend=after)
    if len(steps) and int(steps.min()) <= 0:
        if int(steps.min()) < 0:
            at = int(np.argmax(steps < 0))
            raise DataLostError(
                f"the history is not in order: sequence {sequences[at]} follows {sequences[at] - steps[at]}"
            ).marked
        columns = [column.filter(pa.array(steps > 0)) for column in columns]
        sequences = sequences[steps > 0]
    if not len(sequences):
        return []
    rows = pa.record_batch(columns, schema=SCHEMA)
    numbers: list[int] = sequences.tolist()
    step = rows_together(rows, _PIECE)
    return [Piece(numbers[start : start + step], rows.slice(start, step)) for start in range(0, len(numbers), step)]


def _column(batch: pa.RecordBatch, name: str) -> Any:
    at = batch.schema.get_field_index(name)
    wanted = SCHEMA.field(name).type
    if at < 0:
        raise SchemaError(f"column {name}: missing; a history has {', '.join(COLUMNS)}").marked
    column = batch.column(at)
    if column.type != wanted:
        raise SchemaError(f"column {name}: is of type {column.type}; must be {wanted}").marked
    if column.null_count and name not in _MAY_BE_NULL:
        raise SchemaError(f"column {name}: is null in {column.null_count} rows; no message of a stream lacks it").marked
    return column


def _deliveries(columns: list[Any]) -> list[Delivered]:
    subject, sequence, time_ns, block, data = columns
    replies = pc.binary_join_element_wise(
        "$JS.ACK.o.c.1.", sequence.cast(pa.string()), ".0.", time_ns.cast(pa.string()), ".0", ""
    )
    empty = pa.scalar(b"", pa.binary())
    return list(
        zip(
            _bytes(subject.cast(pa.binary())),
            _bytes(replies.cast(pa.binary())),
            _bytes(block.fill_null(empty)),
            _bytes(data.fill_null(empty)),
            strict=True,
        )
    )


def _bytes(column: Any) -> list[bytes]:
    values: list[bytes] = column.to_numpy(zero_copy_only=False).tolist()
    return values


class KeptRows:
    """A task's rows in ascending sequence, each kept until it is stored, to be sent again when a connection breaks.

    Args:
        batches: the rows; what comes from Spark is read in a thread, so that the connections stay served.

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
        """The rows after a sequence: the kept ones, then new ones. Earlier rows are dropped."""
        self.stored(handled)
        pieces: Sequence[Piece] | None = tuple(self._kept)
        while pieces is not None:
            for piece in pieces:
                if (wanted := piece.behind(handled)) is not None:
                    yield wanted
            pieces = await self._next()

    def stored(self, sequence: int) -> None:
        """Forget rows up to a sequence: they are stored."""
        kept = self._kept
        while kept and kept[0].last <= sequence:
            self.forgotten = kept.popleft().last

    async def _next(self) -> list[Piece] | None:
        """New pieces, kept from now on; the batch after them is being read. None at the end."""
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
