"""Rows on Spark, and the sides of a comparison as such rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema

from nats_bridge_spark.capture.folder import SAVED
from nats_bridge_spark.capture.parquet_files import read_capture
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.diff.rows import Aggregate, BatchFunction
from nats_bridge_spark.diff.sides import SCHEMA, TEXTS, DiffEngine, SideLocation, live_options, require_columns
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.progress import Progress

_FEW: Final = 500_000  # rows that can be sent to every task, which spares a shuffle of the others


@dataclass(frozen=True, slots=True)
class _SparkRows:
    """Implements `Rows`.

    Attributes:
        held: the frames kept by `kept`, for all rows of a comparison.
    """

    frame: DataFrame
    held: list[DataFrame]

    def selected(self, *columns: str) -> Self:
        return self._of(self.frame.select(*columns))

    def mapped(self, function: BatchFunction, schema: pa.Schema) -> Self:
        return self._of(self.frame.mapInArrow(function, from_arrow_schema(schema)))

    def digested(self, name: str, columns: Sequence[str]) -> Self:
        others = [column for column in self.frame.columns if column not in columns]
        return self._of(self.frame.select(*others, F.xxhash64(*columns).alias(name)))

    def united(self, other: Self) -> Self:
        return self._of(self.frame.unionByName(other.frame))

    def where(self, column: str) -> Self:
        return self._of(self.frame.where(F.col(column) != 0))

    def having(self, other: Self, columns: Sequence[str]) -> Self:
        wanted = other.frame.select(*columns)
        if wanted.limit(_FEW + 1).count() <= _FEW:
            wanted = F.broadcast(wanted)
        return self._of(self.frame.join(wanted, list(columns), "left_semi").select(*self.frame.columns))

    def first(self, most: int) -> Self:
        return self._of(self.frame.limit(most))

    def grouped(self, keys: Sequence[str], values: Sequence[Aggregate]) -> Self:
        columns = [getattr(F, function)(column).alias(f"{column}_{function}") for column, function in values]
        # Identities are not added up before the shuffle, because usually few rows have the same.
        frame = self.frame.repartition(*keys) if len(keys) > 1 else self.frame
        return self._of(frame.groupBy(*keys).agg(*columns))

    def together(self, keys: Sequence[str], order: Sequence[str]) -> Self:
        return self._of(self.frame.repartition(*keys).sortWithinPartitions(*order))

    def kept(self) -> Self:
        self.held.append(self.frame.persist(StorageLevel.DISK_ONLY))
        return self

    def table(self) -> pa.Table:
        return self.frame.toArrow()

    def write(self, folder: str) -> None:
        self.frame.write.mode("append").parquet(place_of(folder).uri())

    def _of(self, frame: DataFrame) -> Self:
        return type(self)(frame, self.held)


@dataclass(frozen=True, slots=True)
class _SparkEngine:
    """Implements `DiffEngine`. A stream is read from its server once and kept, so rows do not change."""

    spark: SparkSession
    held: list[DataFrame]

    def opened(self, place: SideLocation, _: Progress) -> _SparkRows:
        live = self.spark.read.format("jetstream").schema(from_arrow_schema(SCHEMA))
        frame = live.options(**live_options(place)).load() if place.connection else _captured(self.spark, place)
        texts = {name: F.coalesce(F.col(name).cast("binary"), F.lit(b"")) for name in TEXTS}
        frame = frame.select(*SCHEMA.names).withColumns({**texts, "sequence": F.col("sequence").cast("bigint")})
        return _SparkRows(frame, self.held).kept() if place.connection else _SparkRows(frame, self.held)

    def spread(self, ranges: Sequence[tuple[int, int]], _: Progress) -> _SparkRows:
        parts = self.spark.sparkContext.parallelize(ranges, len(ranges))
        return _SparkRows(self.spark.createDataFrame(parts, "first bigint, last bigint"), self.held)


@contextmanager
def spark_engine(spark: SparkSession) -> Iterator[DiffEngine]:
    """Compare on Spark."""
    engine = _SparkEngine(spark, [])
    try:
        yield engine
    finally:
        for frame in engine.held:
            frame.unpersist()


def _captured(spark: SparkSession, place: SideLocation) -> DataFrame:
    directory = place_of(place.name)
    try:
        if directory.size(SAVED) is None:
            frame = spark.read.parquet(directory.uri())
        else:
            frame = read_capture(spark, directory, first=place.first, last=place.last)
    except AnalysisException as error:
        first_line = str(error).splitlines()[0]
        raise PipelineError(f"{place.shown}: cannot be read as Parquet: {first_line}") from None
    require_columns(place, dict(frame.dtypes))
    return frame
