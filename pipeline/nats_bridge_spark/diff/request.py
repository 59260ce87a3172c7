"""The request for a comparison: its two sides, and how they are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nats_bridge.settings import Connection
from nats_bridge_spark.diff.comparing import By
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing
from nats_transforms.subject import matches

_STREAM: Final = "stream:"


@dataclass(frozen=True, slots=True)
class SideLocation:
    """The place of a side's messages.

    Attributes:
        name: the stream, or the path of the capture.
        connection: the connection of the stream; None for a capture.
        first: the lowest sequence wanted; None for no bound.
        last: the highest one.
        subjects: patterns of the subjects wanted; empty for all.
    """

    name: str
    connection: Connection | None = None
    first: int | None = None
    last: int | None = None
    subjects: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The name of the side in messages."""
        return f"stream {self.name}" if self.connection is not None else f"capture {self.name}"

    def selects(self, subject: bytes) -> bool:
        """Return whether messages of a subject are wanted."""
        return not self.subjects or any(matches(subject, pattern.encode()) for pattern in self.subjects)

    @staticmethod
    def is_stream(text: str) -> bool:
        """Return whether a word of the command line is a stream: `stream:NAME`, or a name that is not a path."""
        return text.startswith(_STREAM) or ("/" not in text and "\\" not in text and not Path(text).exists())

    @staticmethod
    def bare(text: str) -> str:
        """Return the name or path in a word of the command line."""
        return text.removeprefix(_STREAM)


@dataclass(frozen=True, slots=True)
class DiffRequest:
    """The request of a user.

    Attributes:
        by: the identity of messages; `auto` to determine it.
        ignored_headers: names of headers that are not compared.
        allowed: kinds of findings that are reported but do not count as differences.
        source: the left stream's name in the right one's records; empty for its own name.
        rule: the rule or transform that makes copies of the left side's messages.
    """

    by: By | Literal["auto"] = "auto"
    ignored_headers: tuple[bytes, ...] = ()
    allowed: frozenset[str] = frozenset()
    source: str = ""
    rule: Sourcing | Republish | None = None
