"""The history to copy, as a consumer would deliver it: from the live stream, or from a capture of it.

The reply subject of a delivery contains the consumer's data: `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream
sequence>.<consumer sequence>.<time ns>.<pending>`. For a captured message, only sequence and time are real.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.wire import Delivered
from nats_bridge.settings import Connection
from nats_bridge_spark.capture.folder import Capture
from nats_bridge_spark.capture.parquet_files import captured_rows
from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.columns import ARROW
from nats_bridge_spark.columns import COLUMNS as TYPES
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions

COLUMNS: Final = ("subject", "sequence", "time_ns", "header_block", "data")
"""The columns of a captured message that `deliveries` needs."""

_SCHEMA: Final = pa.schema([(name, ARROW[TYPES[name]]) for name in COLUMNS])


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """A range of messages, in a stream or in a capture.

    Attributes:
        rows: returns the rows from a sequence on, with `COLUMNS`; raises `PipelineError` if they cannot be read.
    """

    last: int
    rows: Callable[[int], AsyncGenerator[pa.RecordBatch, None]]


def live_history(connection: Connection, stream: str, last: int, subjects: tuple[str, ...]) -> MessageHistory:
    """Return the messages of a stream up to a sequence; of all subjects if none are given."""
    # Messages that the stream drops before they are read cannot be copied; a sidecar does not fail in that case either.
    read = ReadOptions(connection, stream, subjects=subjects, end_sequence=last, partitions=1, fail_on_data_loss=False)
    return MessageHistory(last, lambda first: arriving(replace(read, start_sequence=first), _SCHEMA))


def captured_history(place: Place, capture: Capture, last: int) -> MessageHistory:
    """Return the messages of a capture up to a sequence."""

    async def rows(first: int) -> AsyncGenerator[pa.RecordBatch, None]:
        found = captured_rows(place, capture, COLUMNS, first=first, last=last)
        while (batch := await asyncio.to_thread(next, found, None)) is not None:  # connections stay alive
            if batch.num_rows:
                yield batch

    return MessageHistory(last, rows)


def deliveries(rows: pa.RecordBatch) -> list[Delivered]:
    """Rows with `COLUMNS`, as if delivered."""
    subject, sequence, time_ns, block, data = rows.columns
    replies = pc.binary_join_element_wise(
        "$JS.ACK.o.c.1.", sequence.cast(pa.string()), ".0.", time_ns.cast(pa.string()), ".0", ""
    )
    columns: list[list[bytes]] = [
        column.cast(pa.binary()).fill_null(b"").to_numpy(zero_copy_only=False).tolist()
        for column in (subject, replies, block, data)
    ]
    return list(zip(*columns, strict=True))
