"""One task's work: a range of a stream, read once, as record batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from bridge.connection import Link
from bridge.errors import ApiError
from bridge.replay import Replay
from bridge.republish_loop import AckReply
from bridge.wire import Delivered
from pipeline.connections import connected
from pipeline.errors import DataLostError, UnreachableError, marking
from pipeline.source.loop_thread import LoopThread
from pipeline.source.pulling import Pull
from pipeline.source.read_options import ReadOptions
from pipeline.source.record_batches import record_batch
from pipeline.source.schema import ReadSchema
from pipeline.source.sequence_range import SequenceRange
from pipeline.source.stream_state import StreamState, state_of

__all__ = ["read_range"]

_ROWS: Final = 10_000
"""In a record batch, about; more are no faster."""
_BYTES: Final = 8 * 1024 * 1024
"""In a record batch, and under way to a task, about."""
_PATIENCE: Final = 30.0
"""Seconds that a task waits for a server without getting one message more."""


def read_range(options: ReadOptions, schema: ReadSchema, part: SequenceRange) -> Iterator[pa.RecordBatch]:
    """Read a range, each message once, in order.

    Raises:
        DataLostError: what was planned to be read is gone.
        UnreachableError: no server, or it went away for longer than a task waits.
        PipelineError: the server refuses.
    """
    with marking(), LoopThread() as loop:
        parts = _Reading(options, part).portions()
        try:
            while (messages := loop.run(_following(parts))) is not None:
                yield record_batch(messages, options.stream, schema)
        finally:
            loop.run(parts.aclose())


async def _following(parts: AsyncGenerator[list[Delivered], None]) -> list[Delivered] | None:
    return await anext(parts, None)


@dataclass(slots=True)
class _Reading:
    options: ReadOptions
    part: SequenceRange

    async def portions(self) -> AsyncGenerator[list[Delivered], None]:
        """The messages, in lists that make good record batches."""
        async with connected(self.options.connection) as link:
            state = await state_of(link, self.options.stream)
            self._check(state)
            gathered: list[Delivered] = []
            size = 0
            async with contextlib.aclosing(self._messages(link, state)) as batches:
                async for batch in batches:
                    gathered += batch
                    size += sum([len(message[3]) for message in batch])
                    if len(gathered) >= _ROWS or size >= _BYTES:
                        yield gathered
                        gathered, size = [], 0
            if gathered:
                yield gathered

    async def _messages(self, link: Link, state: StreamState) -> AsyncGenerator[list[Delivered], None]:
        """What still exists of the range, with new consumers behind what is here as often as it takes."""
        at, last = self.part.first, self.part.last
        portion = max(1, min(_ROWS, _BYTES // state.average))
        reading: Pull | Replay
        if state.limits:
            reading = Pull(link, state.name, self.part.subjects, portion)
        else:
            reading = Replay(link.api, state.name, self.part.subjects, direct=True)
        loop = asyncio.get_running_loop()
        patience = loop.time() + _PATIENCE
        while at <= last:
            begun = at
            try:
                async with contextlib.aclosing(reading.between(at, last)) as batches:
                    async for batch in batches:
                        at = AckReply.parse(batch[-1][1]).stream_sequence + 1
                        yield batch
            except ApiError as error:
                if not error.retriable:
                    raise
                if at > begun:
                    patience = loop.time() + _PATIENCE
                await _await_server(link, patience, error)
                continue
            if at == begun:
                return

    def _check(self, state: StreamState) -> None:
        part, stream = self.part, self.options.stream
        if state.created != part.created:
            raise DataLostError(
                f"stream '{stream}': was created anew at {state.created}; the read was planned for the one of"
                f" {part.created}: read it anew"
            )
        if self.options.fail_on_data_loss and state.limits and state.first > part.first:
            raise DataLostError(
                f"stream '{stream}': messages {part.first} to {min(state.first - 1, part.last)} are gone, it now begins"
                f" at {state.first}: read it anew, or say failOnDataLoss=false to go on without them"
            )


async def _await_server(link: Link, until: float, error: ApiError) -> None:
    """Wait until the connection is up, for a while.

    Raises:
        UnreachableError: the time is up.
    """
    try:
        async with asyncio.timeout_at(until):
            await asyncio.sleep(0.1)
            await link.connected()
    except TimeoutError:
        raise UnreachableError(
            f"no server answers at {', '.join(link.servers)} for {_PATIENCE:g} s ({error});"
            " run the job again when one does"
        ) from None
