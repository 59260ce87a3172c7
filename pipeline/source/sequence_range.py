"""A part of a stream that one task reads: a range of sequences of a certain stream."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

__all__ = ["SequenceRange"]


@dataclass(frozen=True)
class SequenceRange(InputPartition):
    """Messages with first <= sequence <= last, of the stream that was created at a certain time.

    Attributes:
        created: when the stream was created, as the server tells it.
        first: the first sequence.
        last: the last sequence.
        subjects: the filters; none for all messages.
    """

    created: str
    first: int
    last: int
    subjects: tuple[str, ...] = ()
