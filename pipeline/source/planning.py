"""Cutting what is to be read into ranges that hold about as much, by what the stream really holds."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from typing import Final

from bridge.connection import Link
from bridge.replay import Replay
from pipeline.source.read_options import ReadOptions
from pipeline.source.sequence_range import SequenceRange
from pipeline.source.stream_state import StreamState, state_of

__all__ = ["plan"]

CORES: Final = "NATS_BRIDGE_SPARK_CORES"
"""The environment variable in which `pyspark_jetstream.register` tells planners of Spark's default parallelism."""


async def plan(link: Link, options: ReadOptions) -> list[SequenceRange]:
    """The ranges of a batch read; none where there is nothing.

    Raises:
        PipelineError: no such stream.
        ApiError: the server refuses, or does not answer.
    """
    state = await state_of(link, options.stream, listing=True)
    first, last = await _bounds(link, options, state)
    if first > last or not state.messages:
        return []
    deleted = state.deleted or ()
    total = last - first + 1 - (bisect_right(deleted, last) - bisect_left(deleted, first))
    if options.rows_per_partition:
        count = -(-total // options.rows_per_partition)
    else:
        count = options.partitions or int(os.environ.get(CORES, 0)) or os.cpu_count() or 1
    count = max(1, min(count, total))
    step, more = divmod(last - first + 1, count)
    ranges, at = [], first
    for number in range(count):
        end = at + step - 1 + (number < more)
        ranges.append(SequenceRange(state.created, at, end, options.subjects))
        at = end + 1
    return ranges


async def _bounds(link: Link, options: ReadOptions, state: StreamState) -> tuple[int, int]:
    first = max(state.first, options.start_sequence or 0)
    last = min(state.last, options.end_sequence if options.end_sequence is not None else state.last)
    replay = Replay(link.api, options.stream)
    if options.start_time:
        first = max(first, await replay.before(options.start_time) + 1)
    if options.end_time:
        last = min(last, await replay.before(options.end_time))
    return first, last
