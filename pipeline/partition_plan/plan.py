"""The plan: keys and messages per partition before and after, and what moves, counted by Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pipeline.errors import OptionError, SchemaError
from pipeline.partition_plan.change import Change

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HOTTEST", "HotKey", "Load", "Plan", "plan_of", "subjects_in"]

HOTTEST: Final = 10
"""How many of the keys with most messages a plan names."""

_KEY, _MESSAGES, _BEFORE, _AFTER = "key", "messages", "before", "after"


@dataclass(frozen=True, slots=True)
class Load:
    """What one partition has.

    Attributes:
        partition: its number, from 0.
        moved_keys: of the keys, those that are in another partition after (or were in another one before).
        moved_messages: the same for messages.
    """

    partition: int
    keys: int = 0
    messages: int = 0
    moved_keys: int = 0
    moved_messages: int = 0


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key with many messages; its tokens are joined by dots."""

    key: str
    messages: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change moves.

    Attributes:
        unmatched: messages whose subjects the source does not match; they are counted nowhere else.
        before: one per partition, empty ones included.
        after: the same, with the other number of partitions.
        hottest: the keys with most messages, the hottest first.
    """

    change: Change
    unmatched: int
    before: tuple[Load, ...]
    after: tuple[Load, ...]
    hottest: tuple[HotKey, ...]

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return sum(load.keys for load in self.before)

    @property
    def messages(self) -> int:
        """How many messages have one."""
        return sum(load.messages for load in self.before)

    @property
    def moved_keys(self) -> int:
        """How many keys change their partition."""
        return sum(load.moved_keys for load in self.before)

    @property
    def moved_messages(self) -> int:
        """How many messages those keys have."""
        return sum(load.moved_messages for load in self.before)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        change = self.change
        return {
            "source": _shown(change.source),
            "destination": _shown(change.destination),
            "new_destination": _shown(change.new_destination),
            "partitions": {"before": change.before, "after": change.after},
            "keys": self.keys,
            "messages": self.messages,
            "unmatched_messages": self.unmatched,
            "moved": {
                "keys": self.moved_keys,
                "keys_percent": percent(self.moved_keys, self.keys),
                "messages": self.moved_messages,
                "messages_percent": percent(self.moved_messages, self.messages),
                "percent_of_very_many_keys": round(100 * change.expected, 2),
            },
            "skew": {"before": round(skew(self.before), 4), "after": round(skew(self.after), 4)},
            "before": [asdict(load) for load in self.before],
            "after": [asdict(load) for load in self.after],
            "hottest": [asdict(key) for key in self.hottest],
        }


def skew(loads: Iterable[Load]) -> float:
    """The messages of the fullest partition, divided by their mean over all partitions, empty ones included."""
    counts = [load.messages for load in loads]
    return max(counts) * len(counts) / sum(counts) if any(counts) else 0.0


def percent(part: int, whole: int) -> float:
    """In hundredths; 0 of 0 is 0."""
    return round(100 * part / whole, 2) if whole else 0.0


def subjects_in(spark: SparkSession, place: str) -> DataFrame:
    """The subjects of a capture, or of whatever else is Parquet with a column `subject`.

    Args:
        place: a directory, file or address, as Spark reads them.

    Raises:
        OptionError: there is nothing, or nothing that is Parquet.
        SchemaError: there is no such column, or it holds no subjects.
        PipelineError: a capture's manifest cannot be read.
    """
    from pyspark.errors import AnalysisException

    from pipeline.capture.reading import is_capture, read_capture

    if is_capture(spark, place):
        return read_capture(spark, place).select("subject")
    try:
        frame = spark.read.parquet(place)
    except AnalysisException as error:
        raise OptionError(f"{place}: {_unreadable(error.getCondition() or '', str(error))}") from None
    kinds = dict(frame.dtypes)
    if "subject" not in kinds:
        raise SchemaError(f"{place}: has no column subject; it has {', '.join(kinds)}")
    if kinds["subject"] not in ("string", "binary"):
        raise SchemaError(f"{place}: column subject is {kinds['subject']}; subjects are string or binary")
    return frame.select("subject")


def plan_of(subjects: DataFrame, change: Change, *, hottest: int = HOTTEST) -> Plan:
    """Count, with two passes over the subjects: for the partitions, and for the hottest keys.

    Args:
        subjects: a column `subject`, one row per message.
        change: what is asked.
        hottest: how many keys to name.

    Raises:
        OptionError: there are no messages, or the source matches none of them.
    """
    from pyspark.sql import functions

    # Null is the key of what the source does not match: the same pass counts that, too.
    keys = (
        subjects.groupBy(change.key(functions.col("subject")).alias(_KEY))
        .agg(functions.count("*").alias(_MESSAGES))
        .withColumn(_BEFORE, change.partition(functions.col(_KEY), change.before))
        .withColumn(_AFTER, change.partition(functions.col(_KEY), change.after))
    )
    before, after, unmatched = _loads(keys, change)
    # Another pass: keys kept for it (`persist`) would be spread over 200 partitions, be they ever so few.
    named = _hottest(keys.where(functions.col(_KEY).isNotNull()), hottest) if hottest else ()
    plan = Plan(change=change, unmatched=unmatched, before=before, after=after, hottest=named)
    if not plan.messages:
        raise OptionError(_nothing(subjects, plan))
    return plan


def _nothing(subjects: DataFrame, plan: Plan) -> str:
    if not plan.unmatched:
        return "there are no messages to plan with"
    some = subjects.where("subject IS NOT NULL").selectExpr("CAST(subject AS BINARY)").take(1)
    such = f", such as '{_shown(bytes(some[0][0]))}'" if some else ""
    return f"--src '{_shown(plan.change.source)}' matches none of {plan.unmatched} messages' subjects{such}"


def _loads(keys: DataFrame, change: Change) -> tuple[tuple[Load, ...], tuple[Load, ...], int]:
    """What the partitions have before and after, and how many messages have no key."""
    from pyspark.sql import functions

    moves = functions.col(_BEFORE) != functions.col(_AFTER)
    messages = functions.col(_MESSAGES)
    rows = (
        # Each key once for the partition that it has before, once for the one after.
        keys.select("*", functions.posexplode(functions.array(_BEFORE, _AFTER)).alias("side", "partition"))
        .groupBy("side", "partition")
        .agg(
            functions.count("*"),
            functions.sum(messages),
            functions.count_if(moves),
            functions.sum(functions.when(moves, messages).otherwise(0)),
        )
        .collect()
    )
    found = {(row[0], row[1]): Load(*row[1:]) for row in rows if row[1] is not None}
    before, after = (
        tuple(found.get((side, number), Load(number)) for number in range(count))
        for side, count in enumerate((change.before, change.after))
    )
    return before, after, sum(row[3] for row in rows if row[1] is None and row[0] == 0)


def _hottest(keys: DataFrame, count: int) -> tuple[HotKey, ...]:
    from pyspark.sql import functions

    ordered = keys.orderBy(functions.desc(_MESSAGES), functions.asc(_KEY)).limit(count)
    rows = ordered.select(functions.col(_KEY).cast("binary"), _MESSAGES, _BEFORE, _AFTER).collect()
    return tuple(HotKey(_shown(bytes(row[0])), *row[1:]) for row in rows)


def _unreadable(condition: str, text: str) -> str:
    if condition.startswith("PATH_NOT_FOUND"):
        return "there is no such directory or file"
    if condition.startswith("UNABLE_TO_INFER_SCHEMA"):
        return "there is no Parquet in it"
    return " ".join(text.splitlines()[:1])


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
