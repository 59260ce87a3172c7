"""The two sides of a comparison for one process: streams, or captures of them, read once into a file each."""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nats_bridge.cli.asking import ask
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.capture.reading import bytes_in, capture_at, chunk_files, file_batches, is_capture
from nats_bridge_spark.connections import connected
from nats_bridge_spark.diff.request import SideLocation
from nats_bridge_spark.diff.result import Extent
from nats_bridge_spark.diff.sides import COMPARED, live_options, require_columns
from nats_bridge_spark.engine import Size, run_here
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.planning import planned
from nats_bridge_spark.source.range_reader import arriving
from nats_bridge_spark.source.read_options import ReadOptions
from nats_bridge_spark.source.stream_state import state_of
from nats_bridge_spark.spool import Spool, portions
from nats_transforms.subject import matches

ROWS: Final = pa.schema([("sequence", pa.int64()), *((name, pa.binary()) for name in ("subject", "block", "data"))])
"""The columns of a side's rows."""

_LIVE: Final = pa.schema(
    [("sequence", pa.int64()), ("subject", pa.binary()), ("header_block", pa.binary()), ("data", pa.binary())]
)
_KINDS: Final = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.int16(): "smallint",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


@dataclass(frozen=True, slots=True)
class SpooledSide(Extent):
    """A side that one process can read.

    Attributes:
        rows: its messages in the order of their sequences, with the columns `ROWS`.
        sequences: of each.
        sizes: the bytes of each, about.
    """

    rows: Spool = field(repr=False)
    sequences: NDArray[np.int64] = field(repr=False)
    sizes: NDArray[np.int64] = field(repr=False)

    def blocks(self, most: int) -> list[bytes]:
        """The header blocks of the first messages."""
        found: list[bytes] = self.rows.taken(np.arange(min(most, self.messages))).column("block").to_pylist()
        return found

    def payloads(self, start: int, most: int) -> dict[int, object]:
        """The first sequences from one on, each with its payload."""
        at = int(np.searchsorted(self.sequences, start))
        return dict(self._payloads(np.arange(at, min(at + most, self.messages))))

    def payloads_of(self, sequences: Sequence[int]) -> Iterator[tuple[int, object]]:
        """Do `payloads` for the given sequences that are there."""
        return self._payloads(np.flatnonzero(np.isin(self.sequences, sequences)))

    def _payloads(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, object]]:
        taken = self.rows.taken(rows)
        return zip(taken.column("sequence").to_pylist(), taken.column("data").to_pylist(), strict=True)


def spooled_side(place: SideLocation, file: Path, read: Callable[[int], None]) -> SpooledSide:
    """Read a side.

    Args:
        place: where it is.
        file: where to keep it.
        read: called with the number of messages that have come, again and again.

    Raises:
        SchemaError: the files of a capture lack a column, or have it in another type.
        PipelineError: there is no such capture or stream, or nothing in it.
    """
    spooling = _Spooling(place, file, read)
    if place.connection is not None:
        with LoopThread() as loop:
            run_here(loop, _live(place, spooling))
    else:
        for batch in _captured(place):
            spooling.add(batch)
    return spooling.side()


class _Spooling:
    """Takes batches with the columns of a capture; a side in the end."""

    def __init__(self, place: SideLocation, file: Path, read: Callable[[int], None]) -> None:
        self._place = place
        self._file = file
        self._read = read
        self._rows = Spool(file, ROWS)
        self._sequences: list[NDArray[np.int64]] = []
        self._sizes: list[NDArray[np.int64]] = []
        self._streams = {place.name} if place.connection is not None else set[str]()
        self._came = 0
        self._numbered = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._came += batch.num_rows
        if "stream" in batch.schema.names:
            self._streams.update(name or "" for name in pc.unique(batch.column("stream")).to_pylist())
        batch = batch.filter(pc.is_valid(batch.column("sequence")))
        sequences = batch.column("sequence").cast(pa.int64())
        self._numbered += len(sequences)
        texts = [_bytes(batch.column(name)) for name in ("subject", "header_block", "data")]
        self._rows.add(pa.RecordBatch.from_arrays([sequences, *texts], schema=ROWS))
        self._sequences.append(sequences.to_numpy())
        self._sizes.append(sum(pc.binary_length(text).to_numpy().astype(np.int64) for text in texts))
        self._read(self._came)

    def side(self) -> SpooledSide:
        self._rows.complete()
        sequences, sizes = _joined(self._sequences), _joined(self._sizes)
        rows = self._rows
        if np.any(sequences[1:] < sequences[:-1]):
            order = np.argsort(sequences, kind="stable")
            sequences, sizes = sequences[order], sizes[order]
            rows = Spool(self._file.with_suffix(".sorted"), ROWS)
            for some in portions(sizes):
                rows.add(self._rows.taken(order[some]))
            rows.complete()
        streams = sorted(self._streams)
        first, last = (int(sequences[0]), int(sequences[-1])) if len(sequences) else (0, 0)
        side = SpooledSide(self._place, streams[0] if streams else "", self._came, first, last, rows, sequences, sizes)
        side.require_one_stream(self._numbered, streams[-1] if streams else "")
        return side


def _joined(arrays: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _bytes(column: pa.Array) -> pa.Array:
    """A column as bytes; what is not there is taken for empty, which in a stream is the same."""
    return pc.fill_null(column.cast(pa.binary()), b"")


async def _live(place: SideLocation, spooling: _Spooling) -> None:
    options = ReadOptions.of(live_options(place) | {"partitions": "1"})
    for part in await planned(options):
        async with contextlib.aclosing(arriving(options, _LIVE, part)) as batches:
            async for batch in batches:
                spooling.add(batch)


def parquet_files(place: SideLocation) -> list[str]:
    """The files of a capture, in the order of their sequences; or all that are in a directory of Parquet.

    Raises:
        PipelineError: there is no such directory, or its manifest cannot be read.
    """
    root = place_of(None, place.name)
    if is_capture(None, place.name):
        return chunk_files(place.name, capture_at(None, place.name), place.first, place.last)
    # Spark's addresses may be patterns.
    found = sorted(glob.glob(str(root)))  # noqa: PTH207  # of an absolute pattern
    if not found:
        raise PipelineError(f"{place.shown}: cannot be read as Parquet: there is no such file or directory")
    files = [one for one in found if Path(one).is_file()]
    for one in map(Path, found):
        inside = (file for file in sorted(one.rglob("*")) if file.is_file())
        files += [str(file) for file in inside if not any(part[0] in "._" for part in file.relative_to(one).parts)]
    return files


def size_of(places: Sequence[SideLocation]) -> Size:
    """What there is to read of both sides together, about: all that the streams hold, or the files.

    Raises:
        UnreachableError, PipelineError: as for `spooled_side`.
    """
    sizes = [ask(_live_size(place)) if place.connection else _captured_size(place) for place in places]
    return sum(messages for messages, _ in sizes), sum(size for _, size in sizes)


async def _live_size(place: SideLocation) -> Size:
    assert place.connection is not None
    async with connected(place.connection) as connection:
        state = await state_of(connection, place.name)
        return state.messages, state.size


def _captured_size(place: SideLocation) -> Size:
    messages = size = 0
    for file in parquet_files(place):
        try:
            metadata = pq.read_metadata(file)
        except pa.ArrowException as error:
            raise _unreadable(place, error) from None
        messages += metadata.num_rows
        size += bytes_in(metadata)
    return messages, size


def _unreadable(place: SideLocation, error: Exception) -> PipelineError:
    return PipelineError(f"{place.shown}: cannot be read as Parquet: {error}")


def _captured(place: SideLocation) -> Iterator[pa.RecordBatch]:
    for file in parquet_files(place):
        try:
            schema = pq.read_schema(file)
        except pa.ArrowException as error:
            raise _unreadable(place, error) from None
        require_columns(place, {one.name: _KINDS.get(one.type, str(one.type)) for one in schema})
        for batch in file_batches(file, COMPARED):
            yield _wanted(place, batch)


def _wanted(place: SideLocation, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch that lie within the bounds, and have one of the subjects."""
    if place.first is not None:
        batch = batch.filter(pc.greater_equal(batch.column("sequence"), place.first))
    if place.last is not None:
        batch = batch.filter(pc.less_equal(batch.column("sequence"), place.last))
    if place.subjects:
        patterns = [pattern.encode() for pattern in place.subjects]
        encoded = _bytes(batch.column("subject")).dictionary_encode()
        wanted = [any(matches(subject, each) for each in patterns) for subject in encoded.dictionary.to_pylist()]
        batch = batch.filter(pa.array(wanted, pa.bool_()).take(encoded.indices))
    return batch
