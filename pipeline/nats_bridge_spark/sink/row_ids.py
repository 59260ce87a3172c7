"""The `Nats-Msg-Id` of a row without one: names the row and its write, so that it is stored once.

`spark-<write>-<batch>-<partition>-<row>-<check>`: the write (or the streaming query), the micro-batch (0 in a batch
write), the partition, the row's number in it from 0, and a checksum of the message. Another attempt gives the same rows
the same ids, as long as its input is the same and in the same order; the checksum shows when it is not.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_SHAPE = re.compile(rb"spark-([0-9a-f]{12})-([0-9]{1,18})-([0-9]{1,9})-([0-9]{1,18})-([0-9a-f]{8})")
_KEY_BYTES = 6


def write_key(name: str) -> bytes:
    """Return the part of the ids that identifies a write.

    Args:
        name: the write's id, or the streaming query's.
    """
    return hashlib.sha256(name.encode()).hexdigest()[: 2 * _KEY_BYTES].encode()


@dataclass(frozen=True, slots=True)
class RowPlace:
    """The place of a task's rows in the whole write.

    Attributes:
        write: the write's key.
        batch: the micro-batch; 0 in a batch write.
        partition: the task's partition.
    """

    write: bytes
    batch: int
    partition: int

    @property
    def prefix(self) -> bytes:
        """The beginning that the ids of its rows share."""
        return b"spark-%b-%d-%d-" % (self.write, self.batch, self.partition)


@dataclass(frozen=True, slots=True)
class RowId:
    """The contents of a generated id.

    Attributes:
        place: the write, batch and partition.
        row: the row's number in the partition, from 0.
        check: CRC-32 of subject, headers and data.
    """

    place: RowPlace
    row: int
    check: int

    @classmethod
    def parse(cls, value: bytes | None) -> RowId | None:
        """Read a header value. Return None if it is not a generated id."""
        shape = _SHAPE.fullmatch(value) if value else None
        if shape is None:
            return None
        return cls(RowPlace(shape[1], int(shape[2]), int(shape[3])), int(shape[4]), int(shape[5], 16))
