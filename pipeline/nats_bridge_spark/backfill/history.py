"""The history to copy, as a consumer would deliver it: from the live stream, or from a capture of it.

What a consumer reports with a message is in a delivery's reply subject: `$JS.ACK.<stream>.<consumer>.<deliveries>.
<stream sequence>.<consumer sequence>.<time ns>.<pending>`. Of a captured message only sequence and time are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.replay import Replay
from nats_bridge_spark.capture.folder import Capture
from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.capture.reading import captured_rows

COLUMNS: Final = ("subject", "sequence", "time_ns", "header_block", "data")
"""What is needed of a captured message, as `deliveries` takes it."""

Batches: TypeAlias = AsyncGenerator[list[Delivered], None]


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """A range of what a stream holds.

    Attributes:
        api: of the connection that holds the stream.
        stream: its name.
        last: the last sequence wanted.
        subjects: what to ask the server for; none for everything.
    """

    api: JetStreamApi
    stream: str
    last: int
    subjects: tuple[str, ...] = ()

    def after(self, sequence: int) -> Batches:
        """The messages behind a sequence, in order.

        What the stream drops before it is read cannot be copied; a sidecar does not fail of it, either.

        Raises:
            ApiError: the connection broke; what was given is valid.
        """
        return Replay(self.api, self.stream, self.subjects).between(sequence + 1, self.last)


@dataclass(frozen=True, slots=True)
class CapturedHistory:
    """A range of what a capture holds.

    Attributes:
        place: its directory.
        capture: what it holds.
        last: the last sequence wanted.
    """

    place: Place
    capture: Capture
    last: int

    async def after(self, sequence: int) -> Batches:
        """The messages behind a sequence, in order.

        Raises:
            PipelineError: a file cannot be read.
        """
        async for rows in self.rows(sequence + 1):
            yield deliveries(rows)

    async def rows(self, first: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """The rows from a sequence on, with `COLUMNS`; read in a thread, so that connections stay served."""
        rows = captured_rows(self.place, self.capture, COLUMNS, first=first, last=self.last)
        while (batch := await asyncio.to_thread(next, rows, None)) is not None:
            if batch.num_rows:
                yield batch


History: TypeAlias = LiveHistory | CapturedHistory


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
