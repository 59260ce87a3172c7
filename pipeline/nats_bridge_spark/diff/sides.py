"""The two sides of a comparison: streams, or captures of them."""

from __future__ import annotations

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
from nats_bridge_spark.errors import PipelineError, SchemaError
from nats_bridge_spark.subject_column import answer_function
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing
from nats_transforms.subject import matches

_COMPARED: Final = ("stream", "subject", "sequence", "header_block", "data")
_LIVE: Final = ddl(_COMPARED).replace("subject string", "subject binary")  # what is no UTF-8 is compared, too


@dataclass(frozen=True, slots=True)
class OpenSide:
    """A side that can be read.

    Attributes:
        frame: columns `stream`, `subject`, `sequence`, `header_block`, `data`; always the same messages.
        stream: the name of the stream that they are of; empty where that is unknown.
        messages: how many there are.
        first: the lowest sequence.
        last: the highest one.
    """

    place: SideLocation
    frame: DataFrame = field(repr=False)
    stream: str
    messages: int
    first: int
    last: int

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
        if not messages:
            raise PipelineError(f"{place.shown}: there are no messages{_of_what(place)}")
        if numbered != messages:
            raise SchemaError(f"{place.shown}: {messages - numbered} rows have no sequence")
        if lowest != highest:
            raise PipelineError(
                f"{place.shown}: holds messages of several streams, such as {lowest} and {highest}; a side is one"
            )
        return cls(place, frame, lowest or "", messages, first, last)


def open_side(spark: SparkSession, place: SideLocation) -> OpenSide:
    """Make a side ready to be read, more than once.

    A stream is read from its server once, and kept on the disks of the executors, so that what is compared
    does not change.

    Raises:
        SchemaError: the files of a capture lack a column, or have it in another type.
        PipelineError: there is no such capture or stream, or nothing in it.
    """
    return OpenSide.of(place, _live(spark, place) if place.connection is not None else _captured(spark, place))


def _live(spark: SparkSession, place: SideLocation) -> DataFrame:
    assert place.connection is not None
    options = options_of(place.connection) | {"stream": place.name}
    if place.first is not None:
        options["startSequence"] = str(place.first)
    if place.last is not None:
        options["endSequence"] = str(place.last)
    if place.subjects:
        options["subjects"] = ",".join(place.subjects)
    frame = spark.read.format("jetstream").options(**options).schema(_LIVE).load()
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
    lacking = [name for name in _COMPARED if name not in frame.columns]
    if lacking:
        raise SchemaError(
            f"{place.shown}: has no column {', '.join(lacking)}; a capture has {', '.join(CAPTURED)} "
            f"(nats-bridge capture makes one)"
        )
    kinds = dict(frame.dtypes)
    for name, kind in (("sequence", "bigint"), ("header_block", "binary"), ("data", "binary")):
        if kinds[name] != kind and not (kind == "bigint" and kinds[name] in ("int", "smallint")):
            raise SchemaError(f"{place.shown}: column {name} is {kinds[name]}; it must be {kind}")
    frame = frame.select(*_COMPARED)
    if place.first is not None:
        frame = frame.where(F.col("sequence") >= place.first)
    if place.last is not None:
        frame = frame.where(F.col("sequence") <= place.last)
    if place.subjects:
        wanted = tuple(pattern.encode() for pattern in place.subjects)
        is_wanted = answer_function(lambda subject: any(matches(subject, each) for each in wanted), "boolean")
        frame = frame.where(is_wanted(F.col("subject").cast("binary")))
    return frame


def _of_what(place: SideLocation) -> str:
    bounds = []
    if place.first is not None or place.last is not None:
        bounds.append(f"with sequences {place.first or 1} to {place.last or 'the end'}")
    if place.subjects:
        bounds.append(f"with subjects {', '.join(place.subjects)}")
    return " " + " ".join(bounds) if bounds else ""
