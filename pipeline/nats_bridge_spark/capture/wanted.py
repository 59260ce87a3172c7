"""The request for a capture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from nats_bridge.settings import Connection
from nats_bridge_spark.errors import OptionError

CHUNK: Final = 4_000_000
"""Default number of messages in a chunk."""


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """A stream or a part of it, and the directory for its capture.

    Attributes:
        begin: the first sequence, or a time (RFC 3339) before which no message was stored; None for the stream's first,
            or the sequence at which the capture resumes.
        end: the last sequence, or a time at or after which no message was stored; None for the stream's present last
            one.
        interval: seconds between two looks for new messages, until the capture is stopped; None for one look.

    Raises:
        OptionError: two of them exclude each other.
    """

    connection: Connection = field(repr=False)
    stream: str
    directory: str
    subjects: tuple[str, ...] = ()
    begin: int | str | None = None
    end: int | str | None = None
    chunk: int = CHUNK
    allow_gaps: bool = False
    interval: float | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and self.end is not None:
            raise OptionError("--continuous: has no end; leave out --to")


@dataclass(slots=True)
class CaptureResult:
    """The result of one run.

    Attributes:
        size: bytes of the files that it wrote.
        held: the number of messages in the capture.
        removed: sequences after the earlier runs that the stream no longer had, because a limit or a client had removed
            their messages; 0 with `subjects`, because it is unknown then.
    """

    stream: str
    directory: str
    messages: int = 0
    size: int = 0
    files: int = 0
    first: int | None = None
    last: int | None = None
    held: int = 0
    next: int = 1
    gaps: tuple[tuple[int, int], ...] = ()
    removed: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "stream": self.stream,
            "directory": self.directory,
            "messages": self.messages,
            "bytes": self.size,
            "files": self.files,
            "first_sequence": self.first,
            "last_sequence": self.last,
            "messages_held": self.held,
            "next_sequence": self.next,
            "gaps": [list(gap) for gap in self.gaps],
            "removed": self.removed,
            "seconds": round(self.seconds, 3),
        }

    def line(self) -> str:
        """Return the result as a line of text."""
        new = f"{self.messages:,} message{'' if self.messages == 1 else 's'}"
        if self.first is not None:
            new += f" ({self.first} to {self.last})"
        files = f" in {self.files} file{'' if self.files == 1 else 's'}" if self.files else ""
        if self.removed:
            files += f", {self.removed:,} had been removed before"
        gaps = f", {len(self.gaps)} gap{'' if len(self.gaps) == 1 else 's'}" if self.gaps else ""
        return f"{self.directory}: {new} captured{files}; it holds {self.held:,}{gaps}, the next is {self.next}"
