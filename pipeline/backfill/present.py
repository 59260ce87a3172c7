"""Which messages of an origin a target holds, told by the records of all of its copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nats_bridge.bridge.client.jetstream_api import JetStreamApi
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.kinds.copying.entry_plan import EntryPlan
from nats_bridge.bridge.kinds.copying.resume_point import of_this_origin
from nats_bridge.bridge.kinds.copying.tail_reader import StoredCopy, own_record
from nats_bridge.pipeline.errors import marking
from nats_bridge.transforms import header_block

__all__ = ["COLUMNS", "SEQUENCES", "Present"]

COLUMNS: Final = ("time_ns", "header_block")
"""What is needed of a target."""

SEQUENCES: Final = "sequence bigint"


@dataclass(frozen=True, slots=True)
class Present:
    """Finds the origin's sequences; called by Spark with the rows of a target.

    Attributes:
        plan: the entry.
        key: what stands for it in message ids.
        created_ns: when the origin was created, nanoseconds since 1970.
    """

    plan: EntryPlan
    key: bytes
    created_ns: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The sequences (see `SEQUENCES`)."""
        with marking():
            for batch in batches:
                times, blocks = (batch.column(batch.schema.get_field_index(name)).to_pylist() for name in COLUMNS)
                found = self._sequences(zip(times, (block or b"" for block in blocks), strict=True))
                yield pa.record_batch({"sequence": pa.array(found, pa.int64())})

    async def since(self, api: JetStreamApi, first: int, last: int) -> npt.NDArray[np.int64]:
        """The sequences of what a target stores in [first, last], ascending.

        Raises:
            ApiError: the server cannot be asked.
        """
        found: list[int] = []
        replay = Replay(api, self.plan.stream, headers_only=True)
        async with contextlib.aclosing(replay.between(first, last)) as batches:
            async for batch in batches:
                found += self._sequences((AckReply.parse(reply).time_ns, block) for _, reply, block, _ in batch)
        return np.sort(np.array(found, np.int64))

    def _sequences(self, stored: Iterable[tuple[int, bytes]]) -> list[int]:
        copies = [
            StoredCopy(b"", time_ns, record, header_block.read(block, b"Nats-Msg-Id"))
            for time_ns, block in stored
            if (record := own_record(self.plan.sourcing.is_own, block)) is not None
        ]
        return [copy.record.sequence for copy in of_this_origin(copies, self.key, self.created_ns)]
