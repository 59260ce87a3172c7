"""Messages in columns, whose bytes Arrow joins all at once."""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.writing.in_flight import LEAST

_TOGETHER: Final = 4 << 20  # bytes of large rows in a piece, about


@dataclass(frozen=True, slots=True)
class RowBundle:
    """Messages, a `nats_bridge.kinds.copying.writing.in_flight.Bundle`.

    Attributes:
        names: ascending numbers that identify the rows: in a partition from 1, or a history's sequences.
        blocks: the header blocks, in the same form; empty for none.
    """

    names: Sequence[int]
    subjects: pa.Array
    blocks: pa.Array
    payloads: pa.Array

    def __len__(self) -> int:
        return len(self.names)

    @property
    def size(self) -> int:
        """Bytes of the messages, without the first lines' sizes and reply subjects."""
        parts = (self.subjects, self.blocks, self.payloads)
        return sum(pc.sum(pc.binary_length(part)).as_py() or 0 for part in parts)

    @property
    def totals(self) -> pa.Array:
        """Bytes of each message's header block and payload."""
        return pc.add(pc.binary_length(self.blocks), pc.binary_length(self.payloads))

    def first_above(self, limit: int) -> tuple[int, int] | None:
        """Return the place and the total of the first message with a larger one; None without one."""
        at = pc.index(pc.greater(self.totals, limit), True).as_py()
        return None if at < 0 else (at, self.totals[at].as_py())

    def written(self, replies: bytes | list[bytes]) -> bytes:
        """Return the protocol's operations, in order.

        Args:
            replies: the reply subject of all messages, or one for each; empty for none.
        """
        messages = self._joined(replies)
        _, offsets, values = messages.buffers()
        (end,) = struct.unpack_from("=i", offsets, 4 * len(messages))
        return bytes(memoryview(values)[:end])

    def operations(self, start: int, stop: int) -> list[Operation]:
        """Return the operations of a slice, one by one, without reply subjects."""
        part = self.between(start, stop)
        written: list[bytes] = part._joined(b"").to_pylist()
        return [(b"%d" % name, data) for name, data in zip(part.names, written, strict=True)]

    def kept(self, rows: list[int]) -> "RowBundle":
        """Some of the rows, by their places here."""
        if len(rows) == len(self.names):
            return self
        at = pa.array(rows, pa.int64())
        names = [self.names[row] for row in rows]
        return RowBundle(names, self.subjects.take(at), self.blocks.take(at), self.payloads.take(at))

    def behind(self, name: int) -> "RowBundle":
        """Return the rows that follow a name."""
        return self.between(bisect_right(self.names, name), len(self))

    def spread(self, names: range, other: tuple[bytes, bytes, bytes]) -> "RowBundle":
        """Return the rows among others, which are all alike, so that there is one for each name.

        Args:
            names: all names, including those of the rows.
            other: the subject, the header block and the payload of each of the others.
        """
        places = np.full(len(names), len(self))
        places[np.asarray(self.names, np.int64) - names.start] = np.arange(len(self))
        taken = [
            pa.concat_arrays([own, pa.array([part], pa.binary())]).take(pa.array(places))
            for own, part in zip((self.subjects, self.blocks, self.payloads), other, strict=True)
        ]
        return RowBundle(names, *taken)

    def between(self, start: int, stop: int) -> "RowBundle":
        """Return the rows at these places, without the last one."""
        parts = (part.slice(start, stop - start) for part in (self.subjects, self.blocks, self.payloads))
        return RowBundle(self.names[start:stop], *parts)

    def _joined(self, replies: bytes | list[bytes]) -> pa.Array:
        sizes, totals = pc.binary_length(self.blocks), self.totals
        if isinstance(replies, bytes):
            between = [constant(b" %b " % replies if replies else b" ")]
        else:
            asked = [reply + b" " if reply else b"" for reply in replies]
            between = [constant(b" "), pa.array(asked, pa.binary())]
        operation: pa.Array | pa.Scalar = constant(b"HPUB ")
        block_size = joined(as_text(sizes), constant(b" "))
        if not pc.min(sizes).as_py():
            has_block = pc.greater(sizes, 0)
            operation = pc.if_else(has_block, operation, constant(b"PUB "))
            block_size = pc.if_else(has_block, block_size, constant(b""))
        parts = [operation, self.subjects, *between, block_size, as_text(totals)]
        parts += [constant(b"\r\n"), self.blocks, self.payloads, constant(b"\r\n")]
        return joined(*parts)


def constant(text: bytes) -> pa.Scalar:
    """Return the same text for every row."""
    return pa.scalar(text, pa.binary())


def joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Return the bytes of each row, one part after the other."""
    return pc.binary_join_element_wise(*parts, constant(b""))


def first_with(value: bytes, column: pa.Array) -> int:
    """Return the place of the first row with a value, which must exist."""
    found: int = pc.index(column, constant(value)).as_py()
    return found


def pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows, so few at once that the window of unconfirmed messages is never filled by them."""
    each = max(rows.nbytes // max(rows.num_rows, 1), 1)
    step = max(min(LEAST // 8, _TOGETHER // each), 1)
    return (rows.slice(start, step) for start in range(0, rows.num_rows, step))


def as_text(numbers: pa.Array) -> pa.Array:
    """Numbers in decimal, as bytes."""
    return numbers.cast(pa.string()).cast(pa.binary())
