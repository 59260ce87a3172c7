"""Rows on Spark, and the sides of a comparison as such rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.capture.reading import is_capture, read_capture
from nats_bridge_spark.columns import ARROW, ddl
from nats_bridge_spark.diff.rows import Aggregate, BatchFunction, SortKey
from nats_bridge_spark.diff.run import OpenSide
from nats_bridge_spark.diff.sides import COMPARED, TEXTS, SideLocation, live_options, require_columns
from nats_bridge_spark.errors import OptionError, PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.subject_column import wanted_function

# subjects that are not UTF-8 are compared as well
_LIVE: Final = ddl(COMPARED).replace("subject string", "subject binary")
_FEW: Final = 500_000  # rows that can be sent to every task, which spares a shuffle of the others
_NAMES: Final = {kind: name for name, kind in ARROW.items()}
_SETTINGS: Final = {
    # With payloads of megabytes, ten thousand rows fit into no task.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # Otherwise Spark would not fit the number of tasks to the size of rows that are kept, and each task costs time.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
"""For the length of a comparison."""


@dataclass(frozen=True, slots=True)
class SparkRows:
    """Implements `Rows`.

    Attributes:
        held: the frames kept by `kept`, for all rows of a comparison.
    """

    frame: DataFrame
    held: list[DataFrame]

    def selected(self, *columns: str) -> Self:
        """In the order given."""
        return self._of(self.frame.select(*columns))

    def mapped(self, function: BatchFunction, schema: pa.Schema) -> Self:
        """Part by part."""
        return self._of(self.frame.mapInArrow(function, _ddl(schema)))

    def digested(self, name: str, columns: Sequence[str]) -> Self:
        """By xxHash."""
        others = [column for column in self.frame.columns if column not in columns]
        return self._of(self.frame.select(*others, F.xxhash64(*columns).alias(name)))

    def united(self, other: Self) -> Self:
        """Return the rows of both as one table."""
        return self._of(self.frame.unionByName(other.frame))

    def where(self, column: str) -> Self:
        """Row by row."""
        return self._of(self.frame.where(F.col(column) != 0))

    def having(self, other: Self, columns: Sequence[str]) -> Self:
        """Few rows go to every task."""
        wanted = other.frame.select(*columns)
        if wanted.limit(_FEW + 1).count() <= _FEW:
            wanted = F.broadcast(wanted)
        return self._of(self.frame.join(wanted, list(columns), "left_semi").select(*self.frame.columns))

    def first(self, most: int) -> Self:
        """Some."""
        return self._of(self.frame.limit(most))

    def grouped(self, keys: Sequence[str], values: Sequence[Aggregate]) -> Self:
        """Identities are not added up before the shuffle, because usually few rows have the same."""
        functions = {"count": F.count, "min": F.min, "max": F.max, "sum": F.sum}
        columns = [functions[function](column).alias(f"{column}_{function}") for column, function in values]
        frame = self.frame.repartition(*keys) if len(keys) > 1 else self.frame
        return self._of(frame.groupBy(*keys).agg(*columns))

    def together(self, keys: Sequence[str], order: Sequence[SortKey]) -> Self:
        """In as many parts as Spark finds good for their size."""
        sort = [F.col(column) if way == "ascending" else F.desc(column) for column, way in order]
        return self._of(self.frame.repartition(*keys).sortWithinPartitions(*sort))

    def kept(self) -> Self:
        """On the disks of the executors."""
        self.held.append(self.frame.persist(StorageLevel.DISK_ONLY))
        return self

    def table(self) -> pa.Table:
        """Return all rows as one table."""
        return self.frame.toArrow()

    def alike(self, table: pa.Table) -> Self:
        """Sent to Spark."""
        return self._of(self.frame.sparkSession.createDataFrame(table, _ddl(table.schema)))

    def write(self, folder: str) -> None:
        """A file for each part."""
        try:
            self.frame.write.parquet(folder)
        except AnalysisException as error:
            raise OptionError(f"--out {folder}: {str(error).splitlines()[0]}") from None

    def _of(self, frame: DataFrame) -> Self:
        return type(self)(frame, self.held)


def _ddl(schema: pa.Schema) -> str:
    return ", ".join(f"`{field.name}` {_NAMES[field.type]}" for field in schema)


@contextmanager
def spark_engine(spark: SparkSession) -> Iterator[OpenSide]:
    """Compare on Spark, with `_SETTINGS`. A stream is read from its server once and kept, so rows do not change."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    held: list[DataFrame] = []

    def opened(place: SideLocation, _: Progress) -> SparkRows:
        if place.connection:
            return SparkRows(_live(spark, place), held).kept()
        return SparkRows(_captured(spark, place), held)

    try:
        yield opened
    finally:
        for frame in held:
            frame.unpersist()
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def _live(spark: SparkSession, place: SideLocation) -> DataFrame:
    return _without_nulls(spark.read.format("jetstream").options(**live_options(place)).schema(_LIVE).load())


def _captured(spark: SparkSession, place: SideLocation) -> DataFrame:
    try:
        frame = (
            read_capture(spark, place.name, first=place.first, last=place.last)
            if is_capture(place_of(spark, place.name))
            else spark.read.parquet(place.name)
        )
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise PipelineError(f"{place.shown}: cannot be read as Parquet: {first}") from None
    require_columns(place, dict(frame.dtypes))
    frame = _without_nulls(frame)
    if place.first is not None:
        frame = frame.where(F.col("sequence") >= place.first)
    if place.last is not None:
        frame = frame.where(F.col("sequence") <= place.last)
    if place.subjects:
        frame = frame.where(wanted_function(place.selects)(F.col("subject")))
    return frame


def _without_nulls(frame: DataFrame) -> DataFrame:
    texts = {name: F.coalesce(F.col(name).cast("binary"), F.lit(b"")) for name in TEXTS}
    return frame.select(*COMPARED).withColumns({**texts, "sequence": F.col("sequence").cast("bigint")})
