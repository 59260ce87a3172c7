"""Messages that arrived, column by column, as Arrow arrays of bytes: nothing is made for each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_transforms import header_block

_PLAIN: Final = 8
"""Dots in a reply subject without a domain; see `AckReply`."""
_SIZE_HEADER: Final = rb"Nats-Msg-Size: [0-9]+\r\n\r\n\z"
_EMPTY: Final = header_block.START + b"\r\n"


@dataclass(frozen=True, slots=True)
class Arrived:
    """Consecutive deliveries of one consumer.

    Attributes:
        subjects: as they were stored.
        replies: the reply subjects, which carry the numbers.
        blocks: raw header blocks, empty for none.
        payloads: the payloads of the messages.
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
        return cls(
            pa.concat_arrays([part.subjects for part in parts]),
            pa.concat_arrays([part.replies for part in parts]),
            pa.concat_arrays([part.blocks for part in parts]),
            pa.concat_arrays([part.payloads for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.replies)

    @property
    def size(self) -> int:
        """Bytes that the messages carry, payloads and headers."""
        return int(self.payloads.nbytes + self.blocks.nbytes)

    @property
    def last(self) -> AckReply:
        """The numbers of the last message."""
        return AckReply.parse(self.replies[-1].as_py())

    def first(self, count: int) -> Self:
        """Return the first `count` messages."""
        return type(self)(self.subjects[:count], self.replies[:count], self.blocks[:count], self.payloads[:count])

    def kept(self, kept: np.ndarray) -> Self:
        """Return the messages for which the mask is true."""
        mask = pa.array(kept)
        return type(self)(*(part.filter(mask) for part in (self.subjects, self.replies, self.blocks, self.payloads)))

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
    columns = _bytes(replies).reshape(len(replies), len(first))
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


def _bytes(texts: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    _, offsets, values = texts.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return np.frombuffer(values, np.uint8)[first:last]
