"""Compares two streams in blocks while it reads them, if their sequences identify the messages.

Theory of operation. To join all messages of both sides costs far more than to read them. If messages with the same
sequence are the same, both streams have the same order. So each task reads one range of sequences of both streams, and
compares the messages as they arrive. A block that differs is halved until it is small, and only its messages are kept,
for the general comparison. A block of equal messages becomes one row.

Example: both streams have messages 1 to 10,000, and 4,321 differs. The first block has all 10,000. Its halves are 1 to
5,000, which differ, and 5,001 to 10,000, which are equal. Halving goes on until 4,297 to 4,335 remain. The rows are six
blocks of equal messages, and 39 messages of each side.

Invariant: each message of a side is counted in one block of equal messages, or is one row.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.deciding import decided
from nats_bridge_spark.diff.local_rows import local_engine
from nats_bridge_spark.diff.rows import Batches
from nats_bridge_spark.diff.sides import COMPARED, SCHEMA, DiffEngine, Side, SideLocation, live_options
from nats_bridge_spark.errors import JobStoppedError, PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.source.planning import SequenceRange, cores, planned
from nats_bridge_spark.source.range_reader import arriving_range, iterated
from nats_bridge_spark.source.read_options import ReadOptions

_SMALL: Final = 64  # messages of a block that is not halved
_SAMPLE: Final = 2_000  # sequences that decide how messages are identified
_RANGE: Final = 500_000  # sequences of a task's range, about
_MOST_RANGES: Final = 64

_EQUAL, _LEFT, _RIGHT = 0, 1, 2
Arriving: TypeAlias = AsyncGenerator[pa.RecordBatch, None]

_BYTES: Final = ["sequence", "subject", "header_block", "data"]
_BLOCKS: Final = pa.schema([("kind", pa.int64()), ("messages", pa.int64()), ("until", pa.int64()), *SCHEMA])
"""`kind` is one of `_EQUAL`, a block from `sequence` to `until`, and `_LEFT` and `_RIGHT`, a message of a side."""


@dataclass(frozen=True, slots=True)
class _Stream:
    options: ReadOptions
    whole: SequenceRange

    @classmethod
    def of(cls, place: SideLocation) -> Self | None:
        """Plan to read all of it. Return None if there is nothing to read."""
        options = ReadOptions.of(live_options(place) | {"partitions": "1"})
        return next((cls(options, whole) for whole in asyncio.run(planned(options))), None)

    def arriving(self, first: int, last: int) -> Arriving:
        part = replace(self.whole, first=max(first, self.whole.first), last=min(last, self.whole.last))
        return arriving_range(self.options, SCHEMA, part)


def read_in_blocks(
    engine: DiffEngine, left: SideLocation, right: SideLocation, wanted: Comparison, progress: Progress
) -> tuple[Side, Side, Comparison, str] | None:
    """Read and compare two streams in blocks, or raise a `PipelineError` if a side cannot be read.

    Returns:
        The left, the right, and the comparison and its reason as from `decided`. None if this is not possible: a side
        is a capture or empty, or messages are not compared unchanged by sequence.
    """
    is_plain = wanted.by in ("auto", "sequence") and not (wanted.rule or wanted.ignored_headers or wanted.source)
    if not is_plain or left.connection is None or right.connection is None:
        return None
    # The right first: then the left has all that a copier has brought until then.
    there, here = _Stream.of(right), _Stream.of(left)
    if here is None or there is None or (found := _decided(here.whole, there.whole, left, right, wanted)) is None:
        return None
    first, last = min(here.whole.first, there.whole.first), max(here.whole.last, there.whole.last)
    progress.enter("reading both sides", total=2 * (last - first + 1))
    blocks = engine.spread(_ranges(first, last), progress).mapped(partial(_read, here, there), _BLOCKS).kept()
    sums = blocks.selected("kind", "messages", "sequence", "until").grouped(
        ["kind"], [("messages", "sum"), ("sequence", "min"), ("until", "max")]
    )
    found_kinds = {row["kind"]: row for row in sums.table().to_pylist()}
    equal = found_kinds.get(_EQUAL, {}).get("messages_sum", 0)

    def side(place: SideLocation, kind: int) -> Side:
        rows = [found_kinds[each] for each in (_EQUAL, kind) if each in found_kinds]
        if not rows:
            raise PipelineError(f"{place.shown}: lost all its messages before they were read")
        messages, begin = sum(row["messages_sum"] for row in rows), min(row["sequence_min"] for row in rows)
        own = blocks.mapped(partial(_of_kind, kind), SCHEMA)
        return Side(place, place.name, messages, begin, max(row["until_max"] for row in rows), own, equal)

    return side(left, _LEFT), side(right, _RIGHT), *found


def _decided(
    here: SequenceRange, there: SequenceRange, left: SideLocation, right: SideLocation, wanted: Comparison
) -> tuple[Comparison, str] | None:
    """Decide from the first sequences that both sides have. Return None if they do not identify messages."""
    if wanted.by == "sequence":
        return wanted, ""
    begin = max(here.first, there.first)
    bounds: dict[str, Any] = {"first": begin, "last": min(begin + _SAMPLE - 1, here.last, there.last)}
    try:
        with local_engine() as engine:
            places = replace(left, **bounds), replace(right, **bounds)
            sides = [Side.of(each, engine.opened(each, Progress(""))) for each in places]
            comparison, reason = decided(sides[0], sides[1], wanted)
    except JobStoppedError:
        raise
    except PipelineError:
        return None  # the general comparison says why
    return (comparison, reason) if comparison.by == "sequence" else None


def _ranges(first: int, last: int) -> list[tuple[int, int]]:
    count = min(max(cores(), min((last - first) // _RANGE, _MOST_RANGES)), last - first + 1)
    starts = [first + (last - first + 1) * number // count for number in range(count + 1)]
    return [(start, following - 1) for start, following in pairwise(starts)]


def _read(left: _Stream, right: _Stream, ranges: Batches) -> Batches:
    for batch in ranges:
        for first, last in zip(*batch.to_pydict().values(), strict=True):
            yield from iterated(_compared(left.arriving(first, last), right.arriving(first, last)))


async def _compared(left: Arriving, right: Arriving) -> Arriving:
    """Compare what arrives of both sides. One event loop reads both, so that no threads contend for the interpreter."""
    async with contextlib.aclosing(left), contextlib.aclosing(right):
        here = there = pa.RecordBatch.from_pylist([], SCHEMA)
        while True:
            here, there = here or await anext(left, here), there or await anext(right, there)
            if not (here and there):
                break
            until = min(here["sequence"][-1].as_py(), there["sequence"][-1].as_py())
            (one, here), (other, there) = _cut(here, until), _cut(there, until)
            for batch in pa.Table.from_batches(_blocks(one, other)).combine_chunks().to_batches():
                yield batch
        for rest, more, kind in ((here, left, _LEFT), (there, right, _RIGHT)):
            while rest:
                yield _messages(rest, kind)
                rest = await anext(more, None)


def _cut(rows: pa.RecordBatch, until: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    at = int(np.searchsorted(rows.column("sequence").to_numpy(), until, "right"))
    return rows.slice(0, at), rows.slice(at)


def _blocks(left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the equal blocks of the same sequences on both sides, and the messages of the others."""
    most = max(left, right, key=len)
    if not len(most):
        return
    if left.select(_BYTES).equals(right.select(_BYTES)):
        first, last = (left["sequence"][at].as_py() for at in (0, -1))
        row = {"kind": _EQUAL, "messages": len(left), "sequence": first, "until": last}
        yield pa.RecordBatch.from_pylist([row], _BLOCKS)
    elif len(most) <= _SMALL:
        yield from (_messages(rows, kind) for rows, kind in ((left, _LEFT), (right, _RIGHT)) if len(rows))
    else:
        middle = most.column("sequence")[len(most) // 2 - 1].as_py()
        for halves in zip(_cut(left, middle), _cut(right, middle), strict=True):
            yield from _blocks(*halves)


def _messages(rows: pa.RecordBatch, kind: int) -> pa.RecordBatch:
    kinds, ones = (pa.repeat(pa.scalar(value, pa.int64()), len(rows)) for value in (kind, 1))
    return pa.RecordBatch.from_arrays([kinds, ones, rows["sequence"], *rows.columns], schema=_BLOCKS)


def _of_kind(kind: int, blocks: Batches) -> Batches:
    for batch in blocks:
        yield batch.filter(pc.equal(batch.column("kind"), kind)).select(list(COMPARED))
