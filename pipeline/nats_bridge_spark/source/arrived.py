"""Messages that arrived, column by column, as Arrow arrays of bytes: nothing is made for each message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply

_PLAIN: Final = 8
"""Dots in a reply subject without a domain; see `AckReply`."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Consecutive deliveries of one consumer.

    Attributes:
        subjects: as they were stored.
        replies: the reply subjects, which carry the numbers.
        blocks: raw header blocks, empty for none.
        payloads: what the messages carry.
    """

    subjects: pa.BinaryArray
    replies: pa.BinaryArray
    blocks: pa.BinaryArray
    payloads: pa.BinaryArray

    @classmethod
    def of(cls, messages: Sequence[Delivered]) -> Self:
        """From messages one by one; at least one."""
        return cls(*(pa.array(column, pa.binary()) for column in zip(*messages, strict=True)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All parts, in order; at least one."""
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
        """The first so many."""
        return type(self)(self.subjects[:count], self.replies[:count], self.blocks[:count], self.payloads[:count])

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """Sequences in the stream, and times of storing in nanoseconds since 1970; see `AckReply`."""
        # With a domain and an account hash in front of the stream there is one token more behind, too.
        behind = 0 if self.replies[0].as_py().count(b".") == _PLAIN else 1
        tokens = pc.split_pattern(self.replies, ".", max_splits=4 + behind, reverse=True)
        return _integers(pc.list_element(tokens, 1)), _integers(pc.list_element(tokens, 3))


def _integers(texts: pa.BinaryArray) -> np.ndarray:
    integers: np.ndarray = texts.cast(pa.string()).cast(pa.int64()).to_numpy()
    return integers
