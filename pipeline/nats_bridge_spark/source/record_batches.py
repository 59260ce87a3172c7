"""Messages that arrived, column by column, and record batches of their wanted columns. Nothing is made per message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge_spark.errors import SchemaError
from nats_transforms import header_block

_PLAIN: Final = 8
"""Dots in a reply subject without a domain; see `AckReply`."""
_SIZE_HEADER: Final = rb"Nats-Msg-Size: [0-9]+\r\n\r\n\z"
_EMPTY: Final = header_block.START + b"\r\n"


@dataclass(frozen=True, slots=True)
class Arrived:
    """Consecutive deliveries of one consumer.

    Attributes:
        replies: the reply subjects, which carry the numbers.
        blocks: raw header blocks, empty for none.
    """

    subjects: pa.BinaryArray
    replies: pa.BinaryArray
    blocks: pa.BinaryArray
    payloads: pa.BinaryArray

    @classmethod
    def of(cls, messages: Sequence[Delivered]) -> Self:
        """Convert single messages; at least one."""
        return cls(*(pa.array(column, pa.binary()) for column in zip(*messages, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Join parts in order; at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(pa.concat_arrays, zip(*[part._columns for part in parts], strict=True)))

    @property
    def _columns(self) -> tuple[pa.BinaryArray, ...]:
        return self.subjects, self.replies, self.blocks, self.payloads

    def __len__(self) -> int:
        return len(self.replies)

    @property
    def size(self) -> int:
        """Bytes that the messages carry, payloads and headers."""
        return int(self.payloads.nbytes + self.blocks.nbytes)

    @property
    def last_reply(self) -> bytes:
        """The reply subject of the last message."""
        reply: bytes = self.replies[-1].as_py()
        return reply

    @property
    def last(self) -> int:
        """The sequence of the last message."""
        return AckReply.parse(self.last_reply).stream_sequence

    def first(self, count: int) -> Self:
        """Return the first `count` messages."""
        return type(self)(*(part[:count] for part in self._columns))

    def without_size_headers(self) -> Self:
        """Return the messages without the header that servers append to each if they leave out payloads.

        A block without a header counts as none, because servers then send the same for both.
        """
        blocks = pc.replace_substring_regex(self.blocks, _SIZE_HEADER, b"\r\n")
        return replace(self, blocks=pc.if_else(pc.equal(blocks, _EMPTY), pa.scalar(b"", pa.binary()), blocks))

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequences in the stream, and the times of storing in nanoseconds since 1970; see `AckReply`.

        Raises:
            ValueError: a reply subject does not belong to a delivery.
        """
        # Subjects of the same length have their numbers at the same places, as long as no number gets longer.
        lengths = pc.binary_length(self.replies).to_numpy()
        starts = np.flatnonzero(np.diff(lengths, prepend=-1))
        parts = [_numbers(self.replies[first:last]) for first, last in pairwise([*starts.tolist(), len(self)])]
        sequences, times = zip(*parts, strict=True)
        return np.concatenate(sequences), np.concatenate(times)


def _numbers(replies: pa.BinaryArray) -> tuple[np.ndarray, np.ndarray]:
    """Read the numbers of reply subjects that all have one length."""
    first: bytes = replies[0].as_py()
    # With a domain and an account hash before the stream, there is also one more token at the end.
    behind = 0 if first.count(b".") == _PLAIN else 1
    tokens = first.split(b".")
    ends = np.cumsum([len(token) + 1 for token in tokens]) - 1
    _, offsets, values = replies.buffers()
    begin, end = np.frombuffer(offsets, np.int32)[[replies.offset, replies.offset + len(replies)]]
    columns = np.frombuffer(values, np.uint8)[begin:end].reshape(len(replies), len(first))
    at = (len(tokens) - 4 - behind, len(tokens) - 2 - behind)
    found = [columns[:, ends[one] - len(tokens[one]) - 1 : ends[one] + 1] for one in at]
    digits = [column[:, 1:-1] - np.uint8(ord("0")) for column in found]
    if all((column[:, [0, -1]] == ord(".")).all() for column in found) and all((each < 10).all() for each in digits):
        sequences, times = (each @ 10 ** np.arange(each.shape[1] - 1, -1, -1) for each in digits)
        return sequences, times
    if len(replies) == 1:
        alone = AckReply.parse(first)  # which raises the error
        return np.array([alone.stream_sequence]), np.array([alone.time_ns])
    middle = len(replies) // 2
    halves = [_numbers(part) for part in (replies[:middle], replies[middle:])]
    return np.concatenate([half[0] for half in halves]), np.concatenate([half[1] for half in halves])


def record_batch(messages: Arrived, stream: str, schema: pa.Schema) -> pa.RecordBatch:
    """Messages of one stream as one batch, in their order.

    Raises:
        SchemaError: a subject or header is not UTF-8, and is read as a string.
    """
    sequences, times = messages.numbers()
    making: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "stream": lambda kind: pa.repeat(pa.scalar(stream, kind), len(messages)),
        "subject": lambda kind: _subjects(messages.subjects, sequences, kind, stream),
        "sequence": lambda _: pa.array(sequences),
        "time": lambda kind: pa.array(times // 1000).cast(kind),
        "time_ns": lambda _: pa.array(times),
        "headers": lambda kind: _headers(messages.blocks, sequences, kind, stream),
        "header_block": lambda _: messages.blocks,
        "data": lambda _: messages.payloads,
    }
    return pa.RecordBatch.from_arrays([making[field.name](field.type) for field in schema], schema=schema)


def _subjects(subjects: pa.BinaryArray, sequences: np.ndarray, kind: pa.DataType, stream: str) -> pa.Array:
    if pa.types.is_binary(kind):
        return subjects
    try:
        return subjects.cast(kind)
    except pa.ArrowInvalid:
        at = _first_unreadable(subjects)
        raise SchemaError(
            f"stream '{stream}': the subject of message {sequences[at]} is not UTF-8: {subjects[at].as_py()!r};"
            " read it with a schema that says `subject binary`"
        ) from None


def _first_unreadable(column: pa.BinaryArray) -> int:
    values: list[bytes] = column.to_pylist()
    return next(at for at, value in enumerate(values) if value.decode(errors="replace").encode() != value)


def _headers(blocks: pa.BinaryArray, sequences: np.ndarray, kind: pa.DataType, stream: str) -> pa.Array:
    """Return the headers of each block, with order, repetitions and case, but without white space around values.

    The first line of a block is never a header, and a line without a colon is not one either. No block means no
    headers.

    Args:
        kind: Arrow's type of the column: a list of (name, value).
    """
    header = kind.value_type
    if not blocks.nbytes or not pc.any(pc.greater(pc.binary_length(blocks), 0)).as_py():
        none = pa.array([], header)
        return pa.ListArray.from_arrays(pa.array(np.zeros(len(blocks) + 1, np.int32)), none, type=kind)
    try:
        text = blocks.cast(pa.string())
    except pa.ArrowInvalid:
        at = _first_unreadable(blocks)
        raise SchemaError(
            f"stream '{stream}': a header of message {sequences[at]} is not UTF-8;"
            " read header_block, which has the bytes, instead of headers"
        ) from None
    lines = pc.split_pattern(text, "\r\n")
    flat = lines.flatten()
    starts = lines.offsets.to_numpy()
    is_header = pc.match_substring(flat, ":").to_numpy(zero_copy_only=False)
    is_header[starts[:-1] - starts[0]] = False
    counted = np.append(0, np.cumsum(is_header, dtype=np.int32))
    parts = pc.split_pattern(flat.filter(pa.array(is_header)), ":", max_splits=1)
    values = pc.ascii_trim(pc.list_element(parts, 1), " \t") if len(parts) else pa.array([], pa.string())
    names = pc.list_element(parts, 0) if len(parts) else pa.array([], pa.string())
    fields = pa.StructArray.from_arrays([names, values], fields=[header.field(0), header.field(1)])
    return pa.ListArray.from_arrays(pa.array(counted[starts - starts[0]]), fields, type=kind)
