"""The two sides of a comparison: streams, or captures of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge_spark.capture.reading import is_capture, read_capture
from nats_bridge_spark.columns import CAPTURED, ddl
from nats_bridge_spark.connections import options_of
from nats_bridge_spark.diff.request import SideLocation
from nats_bridge_spark.diff.result import Extent
from nats_bridge_spark.errors import PipelineError, SchemaError
from nats_bridge_spark.subject_column import answer_function
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing
from nats_transforms.subject import matches

COMPARED: Final = ("stream", "subject", "sequence", "header_block", "data")
_LIVE: Final = ddl(COMPARED).replace("subject string", "subject binary")  # what is no UTF-8 is compared, too


@dataclass(frozen=True, slots=True)
class OpenSide(Extent):
    """A side that Spark can read.

    Attributes:
        frame: columns `stream`, `subject`, `sequence`, `header_block`, `data`; always the same messages.
    """

    frame: DataFrame = field(repr=False)

    def blocks(self, most: int) -> list[bytes]:
        """The header blocks of some messages."""
        return [bytes(row[0] or b"") for row in self.frame.select("header_block").limit(most).collect()]

    def payloads(self, start: int, most: int) -> dict[int, object]:
        """Some sequences from one on, each with what stands for its payload."""
        return dict(map(tuple, self._payloads().where(F.col("sequence") >= start).limit(most).collect()))

    def payloads_of(self, sequences: Sequence[int]) -> Iterator[tuple[int, object]]:
        """Do `payloads` for the given sequences that are there."""
        return map(tuple, self._payloads().where(F.col("sequence").isin(list(sequences))).collect())

    def _payloads(self) -> DataFrame:
        return self.frame.select("sequence", F.xxhash64(F.coalesce("data", F.lit(b""))))

    def close(self) -> None:
        """Release what holds the messages."""
        self.frame.unpersist()

    def newest(self, rule: Sourcing | Republish | None = None) -> Self:
        """The same of the messages behind which there is none with the same subject.

        Args:
            rule: by which the subjects of copies count, and what is not copied does not; None for the messages' own.
        """
        subject = F.col("subject").cast("binary")
        if rule is not None:
            subject = answer_function(rule.destination, "binary")(subject)
        named = self.frame.select(subject.alias("of"), "sequence").where("of is not null")
        newest = named.groupBy("of").agg(F.max("sequence").alias("sequence"))
        return replace(self, frame=self.frame.join(newest.select("sequence"), "sequence", "left_semi"))

    @classmethod
    def of(cls, place: SideLocation, frame: DataFrame) -> Self:
        """Summarize the messages of a side.

        Raises:
            PipelineError: there are none, or they are of several streams.
        """
        row = frame.agg(
            F.count("*"), F.min("sequence"), F.max("sequence"), F.min("stream"), F.max("stream"), F.count("sequence")
        ).collect()[0]
        messages, first, last, lowest, highest, numbered = row
        side = cls(place, lowest or "", messages, first, last, frame)
        side.require_one_stream(numbered, highest or "")
        return side


def open_side(spark: SparkSession, place: SideLocation) -> OpenSide:
    """Make a side ready to be read, more than once.

    A stream is read from its server once, and kept on the disks of the executors, so that what is compared
    does not change.

    Raises:
        SchemaError: the files of a capture lack a column, or have it in another type.
        PipelineError: there is no such capture or stream, or nothing in it.
    """
    return OpenSide.of(place, _live(spark, place) if place.connection is not None else _captured(spark, place))


def live_options(place: SideLocation) -> dict[str, str]:
    """The options by which the data source reads a side that is a stream."""
    assert place.connection is not None
    options = options_of(place.connection) | {"stream": place.name}
    if place.first is not None:
        options["startSequence"] = str(place.first)
    if place.last is not None:
        options["endSequence"] = str(place.last)
    if place.subjects:
        options["subjects"] = ",".join(place.subjects)
    return options


def require_columns(place: SideLocation, kinds: Mapping[str, str]) -> None:
    """Check the columns of a side that is Parquet.

    Args:
        place: the side.
        kinds: the type of each column, as Spark calls it.

    Raises:
        SchemaError: one is missing, or of another type.
    """
    lacking = [name for name in COMPARED if name not in kinds]
    if lacking:
        raise SchemaError(
            f"{place.shown}: has no column {', '.join(lacking)}; a capture has {', '.join(CAPTURED)} "
            f"(nats-bridge capture makes one)"
        )
    for name, kind in (("sequence", "bigint"), ("header_block", "binary"), ("data", "binary")):
        if kinds[name] != kind and not (kind == "bigint" and kinds[name] in ("int", "smallint")):
            raise SchemaError(f"{place.shown}: column {name} is {kinds[name]}; it must be {kind}")


def _live(spark: SparkSession, place: SideLocation) -> DataFrame:
    frame = spark.read.format("jetstream").options(**live_options(place)).schema(_LIVE).load()
    return frame.persist(StorageLevel.DISK_ONLY)


def _captured(spark: SparkSession, place: SideLocation) -> DataFrame:
    try:
        frame = (
            read_capture(spark, place.name, first=place.first, last=place.last)
            if is_capture(spark, place.name)
            else spark.read.parquet(place.name)
        )
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise PipelineError(f"{place.shown}: cannot be read as Parquet: {first}") from None
    require_columns(place, dict(frame.dtypes))
    frame = frame.select(*COMPARED)
    if place.first is not None:
        frame = frame.where(F.col("sequence") >= place.first)
    if place.last is not None:
        frame = frame.where(F.col("sequence") <= place.last)
    if place.subjects:
        wanted = tuple(pattern.encode() for pattern in place.subjects)
        is_wanted = answer_function(lambda subject: any(matches(subject, each) for each in wanted), "boolean")
        frame = frame.where(is_wanted(F.col("subject").cast("binary")))
    return frame
