"""The two sides of a comparison: streams, or captures of them, on whichever engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import pyarrow as pa

from nats_bridge.settings import Connection
from nats_bridge_spark.capture.parquet_files import within
from nats_bridge_spark.columns import ARROW, CAPTURED, COLUMNS
from nats_bridge_spark.connections import options_of_stream
from nats_bridge_spark.diff.rows import Aggregate, Batches, Rows
from nats_bridge_spark.errors import PipelineError, SchemaError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.subject_batch import by_subject
from nats_transforms.subject import matches


@dataclass(frozen=True, slots=True)
class SideLocation:
    """The place of a side's messages."""

    name: str
    connection: Connection | None = None
    first: int | None = None
    last: int | None = None
    subjects: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The name of the side in messages."""
        return f"stream {self.name}" if self.connection is not None else f"capture {self.name}"

    def selected(self, batches: Batches) -> Batches:
        """Return the rows within the bounds, with the subjects."""
        patterns = [pattern.encode() for pattern in self.subjects]

        def is_wanted(subject: bytes) -> bool:
            return not patterns or any(matches(subject, pattern) for pattern in patterns)

        for batch in batches:
            found = within(batch, self.first, self.last)
            yield found.filter(by_subject(is_wanted, found.column("subject"), pa.bool_()))


COMPARED: Final = ("stream", "subject", "sequence", "header_block", "data")
"""The columns of a side."""
TEXTS: Final = ("subject", "header_block", "data")
"""Columns in which null, in Parquet, counts as empty, because in a stream both are the same."""
SCHEMA: Final = pa.schema([(name, pa.binary() if name in TEXTS else ARROW[COLUMNS[name]]) for name in COMPARED])
"""The schema of a side's rows."""
_BYTES: Final = ("binary", "large_binary")
_KINDS: Final = {
    "sequence": ("bigint", "int", "smallint", "int64", "int32", "int16"),
    "header_block": _BYTES,
    "data": _BYTES,
}
"""The types of columns that can be compared, as Spark's DDL or Arrow writes them."""


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a comparison.

    Attributes:
        rows: the messages, with the columns `COMPARED`; they must not change.
        equal: messages that are known to be equal to those of the other side; `rows` lacks them.
    """

    place: SideLocation
    stream: str
    messages: int
    first: int
    last: int
    rows: Rows = field(repr=False)
    equal: int = 0

    @classmethod
    def of(cls, place: SideLocation, rows: Rows) -> Self:
        """Summarize the rows of a side. Those of a capture are selected first.

        Raises:
            PipelineError: there are none, or they are of several streams.
            SchemaError: some rows have no sequence.
        """
        if place.connection is None and (place.first, place.last, place.subjects) != (None, None, ()):
            rows = rows.mapped(place.selected, SCHEMA)
        numbered: list[Aggregate] = [("data", "count"), ("sequence", "count"), ("sequence", "min"), ("sequence", "max")]
        streams = rows.selected("stream", "sequence", "data").grouped(["stream"], numbered).table()
        found = sorted(streams.to_pylist(), key=lambda row: row["stream"] or "")
        if not found:
            is_bounded = (place.first, place.last) != (None, None)
            bounds = f" with sequences {place.first or 1} to {place.last or 'the end'}" if is_bounded else ""
            bounds += f" with subjects {', '.join(place.subjects)}" if place.subjects else ""
            raise PipelineError(f"{place.shown}: there are no messages{bounds}")
        names = [row["stream"] or "" for row in found]
        if lacking := sum(row["data_count"] - row["sequence_count"] for row in found):
            raise SchemaError(f"{place.shown}: {lacking} rows have no sequence")
        if len(names) > 1:
            raise PipelineError(
                f"{place.shown}: has several streams, such as {names[0]} and {names[-1]}; compare one stream"
            )
        (only,) = found
        return cls(place, names[0], only["data_count"], only["sequence_min"], only["sequence_max"], rows)


class DiffEngine(Protocol):
    """Makes the rows of a comparison."""

    def opened(self, place: SideLocation, progress: Progress) -> Rows:
        """Return the messages of a side with the columns of `SCHEMA`, which must not change.

        Raises:
            SchemaError: the files of a capture lack a column.
            PipelineError: the side cannot be read.
        """

    def spread(self, ranges: Sequence[tuple[int, int]], progress: Progress) -> Rows:
        """Return ranges as rows with the columns `first` and `last`, about one in each part."""


def live_options(place: SideLocation) -> dict[str, str]:
    """Return the options with which the data source reads a side that is a stream."""
    assert place.connection is not None
    return options_of_stream(place.connection, place.name, place.first, place.last, place.subjects)


def require_columns(place: SideLocation, kinds: Mapping[str, str]) -> None:
    """Refuse a side in Parquet that lacks a column, or has one of another type, with a `SchemaError`."""
    if lacking := [name for name in COMPARED if name not in kinds]:
        raise SchemaError(
            f"{place.shown}: has no column {', '.join(lacking)}; a capture has {', '.join(CAPTURED)} "
            f"(nats-bridge capture makes one)"
        )
    for name, fitting in _KINDS.items():
        if kinds[name] not in fitting:
            raise SchemaError(f"{place.shown}: column {name} is {kinds[name]}; it must be {fitting[0]}")
