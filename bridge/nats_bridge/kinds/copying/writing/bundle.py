"""Messages whose bytes are made together, once it is known which of them request a PubAck.

A pipeline on Spark has columns instead of messages, and making a Python object for each message costs more than
everything else. So messages in flight may be a bundle instead of a list of operations, and operations are made from it
only after a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from nats_bridge.kinds.copying.writing.encoder import Operation


class Bundle(Protocol):
    """Messages to publish, in order. An empty bundle is not sent."""

    @property
    def names(self) -> Sequence[int]:
        """The messages' names, as numbers that increase."""

    @property
    def size(self) -> int:
        """The approximate number of bytes; bytes common to all messages may be left out."""

    def __len__(self) -> int:
        """Return the number of messages."""

    def written(self, replies: bytes | list[bytes]) -> bytes:
        """Return the bytes to write.

        Args:
            replies: the reply subject of all messages, or one for each; empty for none.
        """

    def operations(self, start: int, stop: int) -> list[Operation]:
        """Return the operations of a slice, one by one, without reply subjects."""


@dataclass(frozen=True, slots=True)
class BundleSlice:
    """A slice of a bundle's messages."""

    bundle: Bundle
    start: int
    stop: int


Messages: TypeAlias = list[Operation] | BundleSlice


def operations_of(messages: Messages | Bundle) -> list[Operation]:
    """Return the messages one by one."""
    if isinstance(messages, list):
        return messages
    if isinstance(messages, BundleSlice):
        return messages.bundle.operations(messages.start, messages.stop)
    return messages.operations(0, len(messages))


def size_of(messages: list[Operation] | Bundle) -> int:
    """Return the approximate number of bytes."""
    return sum([len(data) for _, data in messages]) if isinstance(messages, list) else messages.size
