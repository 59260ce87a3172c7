"""The outcome of each message of a history, without publishing anything: for files, and for counting."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.pipeline.backfill.rows import deliveries_of
from nats_bridge.pipeline.errors import marking

__all__ = ["COUNTED", "WRITTEN", "Counting", "Made", "Outcomes", "Writing"]

WRITTEN: Final = (
    "stream string, subject string, origin_subject string, sequence bigint, time timestamp, time_ns bigint,"
    " header_block binary, data binary, rejected string"
)
"""A message as it would be published: its subject, header block and data; where it comes from; and why the target
would not take it, null if it would."""

COUNTED: Final = "outcome string, subject string, reason string, messages bigint, bytes bigint, example bigint"
"""Counts of a task: `outcome` is `selected`, `unselected` or `rejected`; `example` is a sequence of the origin."""

_SIZE: Final = re.compile(r"it has \d+ bytes")


@dataclass(frozen=True, slots=True)
class Made:
    """The outcome of one message.

    Attributes:
        origin: as it was delivered.
        subject: of what is published, or would be.
        header_block: raw.
        payload: raw.
        rejected: why the target does not take it; empty if it does.
    """

    origin: Delivered
    subject: bytes
    header_block: bytes
    payload: bytes
    rejected: str = ""


class Outcomes(Protocol):
    """A rule, applied to messages."""

    def made_of(self, batches: Iterator[list[Delivered]]) -> Iterator[tuple[list[Made], int]]:
        """Per batch what is made of it, in its order, and how many messages the rule does not mean."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Gives rows for files; called by Spark with the rows of a partition.

    Attributes:
        outcomes: the rule.
        stream: the origin's name.
    """

    outcomes: Outcomes
    stream: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows (see `WRITTEN`)."""
        with marking():
            for made, _ in self.outcomes.made_of(deliveries_of(batch) for batch in batches):
                if made:
                    yield self._rows(made)

    def _rows(self, made: Sequence[Made]) -> pa.RecordBatch:
        acks = [AckReply.parse(each.origin[1]) for each in made]
        times = pa.array([ack.time_ns for ack in acks], pa.int64())
        return pa.record_batch(
            {
                "stream": pa.array([self.stream] * len(made)),
                "subject": _texts([each.subject for each in made]),
                "origin_subject": _texts([each.origin[0] for each in made]),
                "sequence": pa.array([ack.stream_sequence for ack in acks], pa.int64()),
                "time": pa.array([ack.time_ns // 1000 for ack in acks], pa.timestamp("us", "UTC")),
                "time_ns": times,
                "header_block": pa.array([each.header_block or None for each in made], pa.binary()),
                "data": pa.array([each.payload for each in made], pa.binary()),
                "rejected": pa.array([each.rejected or None for each in made], pa.string()),
            }
        )


@dataclass(frozen=True, slots=True)
class Counting:
    """Counts; called by Spark with the rows of a partition.

    Attributes:
        outcomes: the rule.
    """

    outcomes: Outcomes

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Some rows per batch (see `COUNTED`)."""
        with marking():
            for made, unselected in self.outcomes.made_of(deliveries_of(batch) for batch in batches):
                yield _counted(made, unselected)


def _counted(made: Sequence[Made], unselected: int) -> pa.RecordBatch:
    counts: dict[tuple[str, bytes, str], list[int]] = {}
    for each in made:
        if each.rejected:
            # Sizes differ from message to message, the reason does not.
            key = ("rejected", b"", _SIZE.sub("it has too many bytes", each.rejected))
        else:
            key = ("selected", each.subject, "")
        size = len(each.header_block) + len(each.payload)
        found = counts.get(key)
        if found is None:
            counts[key] = [1, size, AckReply.parse(each.origin[1]).stream_sequence]
        else:
            found[0] += 1
            found[1] += size
    if unselected:
        counts["unselected", b"", ""] = [unselected, 0, 0]
    keys, values = list(counts), list(counts.values())
    return pa.record_batch(
        {
            "outcome": pa.array([outcome for outcome, _, _ in keys], pa.string()),
            "subject": _texts([subject for _, subject, _ in keys]),
            "reason": pa.array([reason for _, _, reason in keys], pa.string()),
            "messages": pa.array([value[0] for value in values], pa.int64()),
            "bytes": pa.array([value[1] for value in values], pa.int64()),
            "example": pa.array([value[2] for value in values], pa.int64()),
        }
    )


def _texts(subjects: list[bytes]) -> pa.Array:
    """Strings with exactly these bytes; a function that cuts may have cut a character in two."""
    return pa.array(subjects, pa.binary()).view(pa.string())
