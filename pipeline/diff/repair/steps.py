"""What each finding asks for: an append, a put, a deletion where the stream allows it, or nothing and why.

Theory of operation: a stream changes no message and takes none in its middle. Where the newest message of each subject
is compared, a newer one repairs; elsewhere what is missing is appended, and what is wrong or too much can only be
deleted. What is still to be copied is left to what copies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from nats_bridge.bridge.replication import CHECKED_COPIES
from nats_bridge.pipeline.diff.comparing import By
from nats_bridge.pipeline.diff.findings import text
from nats_bridge.pipeline.diff.run import Result

Action: TypeAlias = Literal["put", "append", "replace", "delete", "none"]
"""Put: a newer message of the subject. Replace: append the right one, and delete the wrong one."""

_WRONG: Final = (
    "subject",
    "payload",
    *("header-value", "header-removed", "header-added", "header-case", "header-order", "header-spelling"),
)
_LEFT: Final = ("missing", *_WRONG)


@dataclass(frozen=True, slots=True)
class Step:
    """What is done about one message.

    Attributes:
        action: what; `none` where it cannot be done, or is not asked for.
        kind: the finding's.
        identity: which message, as findings name it.
        left: its sequence on the left; 0 where it has none.
        right: its sequence on the right; 0 where it has none.
        subject: of the message on the left, or of the one on the right that is too much.
        block: its header block.
        data: its payload.
        reason: why nothing is done.
    """

    action: Action
    kind: str
    identity: str
    left: int
    right: int
    subject: bytes
    block: bytes
    data: bytes
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the right side allows.

    Attributes:
        by: how messages are identified.
        deletes: whether deletions are asked for.
        denied: why the stream allows no deletions; empty if it does.
        last: its last sequence.
        keeps: how many messages of a subject it keeps; 0 for any number.
        forgets: whether its limits remove messages.
        held: for each source, the lowest and the highest sequence of which it has a copy.
        checked_after: for each source, the sequence behind which a rule's start looks for what is missing.
        stopped: whether nothing copies any more.
    """

    by: By
    deletes: bool
    denied: str
    last: int
    keeps: int
    forgets: bool
    held: Mapping[str, tuple[int, int]]
    checked_after: Mapping[str, int]
    stopped: bool

    def decide(self, kind: str, identity: str, left: int, right: int) -> tuple[Action, str]:
        """What is done about a finding, and why nothing is."""
        if kind in ("order", "unidentified") or (kind == "duplicated" and not right):
            return "none", _NEVER[kind]
        if kind in ("extra", "duplicated"):
            return self._delete()
        if self.by == "subject":
            return "put", ""
        if self.by == "sequence":
            behind = left > self.last
            return "none", _BEHIND if behind else "a stream takes no message in its middle"
        if self.keeps:
            return "none", f"the stream keeps {self.keeps} of each subject: compare with --by subject"
        if kind == "missing":
            reason = self._in_the_way(identity, left)
            return ("none", reason) if reason else ("append", "")
        action, reason = self._delete()
        return ("replace", "") if action == "delete" else ("none", reason)

    def _delete(self) -> tuple[Action, str]:
        if not self.deletes:
            return "none", "needs a deletion: --delete"
        return ("none", self.denied) if self.denied else ("delete", "")

    def _in_the_way(self, identity: str, left: int) -> str:
        """Why a message that is missing is not appended."""
        if self.by == "id":
            return ""
        source, _, number = identity.rpartition(" ")
        low, high = self.held.get(source, (0, 0))
        sequence = int(number) if self.by == "provenance" else left
        if sequence > high and not self.stopped:
            return _BEHIND
        if sequence > self.checked_after.get(source, high) and not self.stopped:
            return _AMONG_NEWEST
        return _BEFORE if self.forgets and sequence < low else ""


_BEHIND: Final = "behind all that was copied: what copies (a mirror, a rule, a backfill) brings it"
_AMONG_NEWEST: Final = (
    f"among the newest {CHECKED_COPIES:,} copies: the rule looks for what is missing there when it starts"
)
_BEFORE: Final = "older than all that the right side holds: its limits may have removed it"
_NEVER: Final = {
    "order": "a stream does not change its order",
    "unidentified": "nothing identifies it",
    "duplicated": "twice on the left, which is not changed",
}


def held_by_source(result: Result, *, looks_back: bool) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """What the right side has copies of, see `Rules.held` and `Rules.checked_after`.

    Args:
        result: the comparison.
        looks_back: whether the copies are a rule's, which looks for what is missing among the newest ones.
    """
    if not result.comparison.by.startswith("provenance"):
        return {}, {}
    source = F.col("source") if "source" in result.identities.columns else F.lit(b"")
    copies = result.identities.where("right is not null and number > 0").select(
        source.alias("source"), "number", "right"
    )
    rows = copies.groupBy("source").agg(F.min("number"), F.max("number")).collect()
    held = {text(bytes(row[0])): (int(row[1]), int(row[2])) for row in rows}
    if not looks_back:
        return held, {}
    newest = copies.withColumn("place", F.row_number().over(Window.partitionBy("source").orderBy(F.desc("right"))))
    rows = newest.where(F.col("place") <= CHECKED_COPIES).groupBy("source").agg(F.min("number")).collect()
    return held, {text(bytes(row[0])): int(row[1]) for row in rows}


def steps(result: Result, rules: Rules) -> Iterator[Step]:
    """What is done, in the order in which it is: what is stored, by the left side's sequences; then what is deleted."""
    yield from _decided(_of_left(result), rules)
    yield from _decided(_of_right(result), rules)


def _decided(rows: DataFrame, rules: Rules) -> Iterator[Step]:
    for row in rows.toLocalIterator():
        found: dict[str, Any] = row.asDict()
        left, right = found["left_sequence"] or 0, found["right_sequence"] or 0
        action, reason = rules.decide(found["kind"], found["identity"], left, right)
        subject, block, data = (bytes(found[name] or b"") for name in ("subject", "header_block", "data"))
        yield Step(action, found["kind"], found["identity"], left, right, subject, block, data, reason)


def _findings(result: Result) -> DataFrame:
    return result.findings.where(~F.col("kind").isin(sorted(result.allowed)))


def _of_left(result: Result) -> DataFrame:
    """Missing and wrong messages; of one that is wrong in several ways, one row."""
    wanted = _findings(result).where(F.col("kind").isin(*_LEFT)).dropDuplicates(["left_sequence", "right_sequence"])
    wanted = wanted.select("kind", "identity", "left_sequence", "right_sequence")
    subject = F.col("subject").cast("binary").alias("subject")  # in a capture it is a string
    messages = result.left.frame.select(F.col("sequence").alias("left_sequence"), subject, "header_block", "data")
    return wanted.join(messages, "left_sequence").orderBy("left_sequence")


def _of_right(result: Result) -> DataFrame:
    """Everything else, by the right side's messages where there are any."""
    others = _findings(result).where(~F.col("kind").isin(*_LEFT))
    others = others.select("kind", "identity", "left_sequence", "right_sequence")
    messages = result.right.frame.select(
        F.col("sequence").alias("right_sequence"), "subject", F.lit(b"").alias("header_block"), F.lit(b"").alias("data")
    )
    return others.join(messages, "right_sequence", "left_outer").orderBy("right_sequence", "left_sequence")
