"""The manifest of a capture, its file `_capture.json`.

The manifest is written before and after each chunk appears, always as a whole. `pending` is the chunk that is about to
appear: a writer that finds it there checks whether it did.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final

from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge_spark.capture.envelope import enclosed, opened
from nats_bridge_spark.columns import CAPTURED, COLUMNS

MANIFEST: Final = "_capture.json"
FORMAT: Final = "nats-bridge capture"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of the stream that was captured at once.

    Attributes:
        folder: where its files are, from the capture's directory; empty where the range held no messages.
        first: the first sequence of the range.
        last: the last one; the next chunk begins after it, or after a gap.
        messages: how many messages the range held.
        size: bytes of its files.
        files: their names and sizes in bytes, in the order of their sequences.
    """

    folder: str
    first: int
    last: int
    messages: int
    size: int = 0
    files: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages that were removed before they were captured, and that the user allows to be missing.

    Attributes:
        first: the first sequence of which nothing is known.
        last: the last.
    """

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Capture:
    """A stream's history, or a part of it, in a directory.

    Attributes:
        stream: the stream's name.
        created: when that stream was created, as its server reported it first.
        server: the version of the server that was asked first.
        cluster: the name of its cluster; empty for a server of its own.
        subjects: the filters of the capture; none for all messages.
        begin: the first sequence that it is about.
        next: the sequence at which it resumes: everything from `begin` to here is in it, or in a gap.
        chunks: in the order of their sequences.
        gaps: what is missing.
        pending: the chunk that was about to appear when this was written.
        seen: messages by which the stream is recognised if its creation time changes.
    """

    stream: str
    created: str
    server: str
    cluster: str
    subjects: tuple[str, ...]
    begin: int
    next: int
    chunks: tuple[Chunk, ...] = ()
    gaps: tuple[Gap, ...] = ()
    pending: Chunk | None = None
    seen: tuple[MessageStamp, ...] = ()

    @property
    def known(self) -> KnownStream:
        """By what the stream is recognised."""
        return KnownStream(self.created, self.seen)

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(chunk.messages for chunk in self.chunks)

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(chunk.size for chunk in self.chunks)

    @property
    def missing(self) -> int:
        """The sequences that it is about, and of which it has neither a message nor a gap."""
        return self.next - self.begin - self.messages - sum(gap.last - gap.first + 1 for gap in self.gaps)

    @property
    def last(self) -> int:
        """The last sequence that it is about; `begin - 1` while it is about nothing."""
        return self.next - 1

    def expecting(self, chunk: Chunk, seen: tuple[MessageStamp, ...] = ()) -> Capture:
        """With a chunk that is about to appear, and messages that the stream holds now."""
        return replace(self, pending=chunk, seen=seen or self.seen)

    def settled(self, *, appeared: bool) -> Capture:
        """After the pending chunk has appeared, or will not."""
        chunk = self.pending
        if chunk is None or not appeared:
            return replace(self, pending=None)
        return replace(self, chunks=(*self.chunks, chunk), next=chunk.last + 1, pending=None)

    def without(self, gap: Gap) -> Capture:
        """With a gap at its end."""
        return replace(self, gaps=(*self.gaps, gap), next=gap.last + 1)

    def to_json(self) -> str:
        """The manifest's text."""
        return enclosed(FORMAT, {**asdict(self), "columns": {name: COLUMNS[name] for name in CAPTURED}})

    @classmethod
    def of_json(cls, text: str, place: str) -> Capture:
        """Read a manifest.

        Args:
            text: of the file.
            place: the file, for messages.

        Raises:
            PipelineError: it is none, or of a newer version.
        """
        return opened(text, cls, place, FORMAT, "the manifest of a capture")
