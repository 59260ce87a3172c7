"""The history to copy, as a consumer would deliver it: from the live stream, or from a capture of it.

The reply subject of a delivery contains the consumer's data: `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream
sequence>.<consumer sequence>.<time ns>.<pending>`. For a captured message, only sequence and time are real.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.wire import Delivered
from nats_bridge.settings import Connection
from nats_bridge_spark.capture.folder import Capture
from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.capture.reading import captured_rows
from nats_bridge_spark.columns import ARROW
from nats_bridge_spark.columns import COLUMNS as TYPES
from nats_bridge_spark.row_bundle import rows_together
from nats_bridge_spark.source.planning import planned
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions

COLUMNS: Final = ("subject", "sequence", "time_ns", "header_block", "data")
"""The columns of a captured message that `deliveries` needs."""

_SCHEMA: Final = pa.schema([(name, ARROW[TYPES[name]]) for name in COLUMNS])
_PIECE: Final = 1024

Batches: TypeAlias = AsyncGenerator[list[Delivered], None]


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """A range of messages in a stream.

    Attributes:
        connection: the connection of the stream.
        stream: its name.
        last: the last sequence wanted.
        subjects: the subjects to request; none for everything.
    """

    connection: Connection = field(repr=False)
    stream: str
    last: int
    subjects: tuple[str, ...] = ()

    async def after(self, sequence: int) -> Batches:
        """Return the messages after a sequence, in order.

        Raises:
            PipelineError: the stream was recreated, or no server answers for long.
        """
        read = ReadOptions(
            self.connection,
            self.stream,
            subjects=self.subjects,
            start_sequence=sequence + 1,
            end_sequence=self.last,
            partitions=1,
            # Messages that the stream drops before they are read cannot be copied; a sidecar does not fail in that case
            # either.
            fail_on_data_loss=False,
        )
        for part in await planned(read):
            async with contextlib.aclosing(arriving(read, _SCHEMA, part)) as batches:
                async for rows in batches:
                    for piece in pieces(rows):
                        yield deliveries(piece)


@dataclass(frozen=True, slots=True)
class CapturedHistory:
    """A range of messages in a capture.

    Attributes:
        place: its directory.
        capture: the contents of the capture.
        last: the last sequence wanted.
    """

    place: Place
    capture: Capture
    last: int

    async def after(self, sequence: int) -> Batches:
        """Return the messages after a sequence, in order.

        Raises:
            PipelineError: a file cannot be read.
        """
        async for rows in self.rows(sequence + 1):
            for piece in pieces(rows):
                yield deliveries(piece)

    async def rows(self, first: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yield the rows from a sequence on, with `COLUMNS`. They are read in a thread, so connections stay alive."""
        rows = captured_rows(self.place, self.capture, COLUMNS, first=first, last=self.last)
        while (batch := await asyncio.to_thread(next, rows, None)) is not None:
            if batch.num_rows:
                yield batch


History: TypeAlias = LiveHistory | CapturedHistory


def pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows, so few at once that the window of unconfirmed messages is never filled by them."""
    step = rows_together(rows, _PIECE) if rows.num_rows else 1
    return (rows.slice(start, step) for start in range(0, rows.num_rows, step))


def deliveries(rows: pa.RecordBatch) -> list[Delivered]:
    """Rows with `COLUMNS`, as if delivered."""
    subject, sequence, time_ns, block, data = rows.columns
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
