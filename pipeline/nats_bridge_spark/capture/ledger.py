"""A capture's directory for its writer: its contents, and how a chunk is added atomically.

    DIR/_capture.json                        the manifest
    DIR/_stream.json                         how the stream is configured, with its consumers
    DIR/_capture.lock                        while something writes
    DIR/messages/first_sequence=…/part-….parquet   what readers read, and nothing else
    DIR/.staging/                            what is not finished

A chunk is written below `.staging`; the manifest says that it is about to appear (`pending`); its directory is moved to
`messages` in one step; the manifest says that it is there. Whatever ends the writer, and wherever: the next one looks
for the pending chunk, takes what is complete, removes what is not, and resumes after what it took.
"""

from __future__ import annotations

from typing import Final

from nats_bridge.client.stream_identity import MessageStamp
from nats_bridge_spark.capture.lock import LOCK
from nats_bridge_spark.capture.manifest import MANIFEST, Capture, Chunk, Gap
from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.capture.saved_stream import SAVED
from nats_bridge_spark.errors import OptionError, PipelineError

MESSAGES: Final = "messages"
STAGING: Final = ".staging"


def folder_of(first: int) -> str:
    """Where the chunk that begins at a sequence is; sorted by name they are sorted by sequence."""
    return f"{MESSAGES}/first_sequence={first:012}"


class Ledger:
    """The manifest on disk, and everything that must agree with it.

    Args:
        place: the directory; the caller holds its lock.

    Raises:
        OptionError: the directory holds something else.
        PipelineError: the manifest cannot be read, or the files do not agree with it.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._capture: Capture | None = None
        text = place.read(MANIFEST)
        if text is None:
            require_free(place)
        else:
            self._capture = Capture.of_json(text, place.uri(MANIFEST))
            self._recover()
        place.remove(STAGING)

    @property
    def capture(self) -> Capture | None:
        """The directory's capture; None where it is empty."""
        return self._capture

    @property
    def known(self) -> Capture:
        """The same once it has begun."""
        assert self._capture is not None, "a capture begins before it resumes"
        return self._capture

    def begin(self, capture: Capture) -> None:
        """Write the first manifest, or another one while there are no chunks."""
        self._write(capture)

    def skip(self, gap: Gap) -> None:
        """Note that messages are missing at the end."""
        self._write(self.known.without(gap))

    def staging(self, first: int) -> str:
        """A path for the files of the chunk that begins at a sequence; there is nothing at it."""
        path = f"{STAGING}/{first}"
        self._place.remove(path)
        return path

    def staged(self, path: str) -> tuple[tuple[str, int], ...]:
        """The Parquet files that are at a path, with their sizes; whatever else Spark has left there is removed."""
        found = []
        for name in self._place.names(path):
            if name.endswith(".parquet") and not name.startswith((".", "_")):
                found.append((name, self._place.size(f"{path}/{name}") or 0))
            else:
                self._place.remove(f"{path}/{name}")
        return tuple(found)

    def publish(self, path: str, chunk: Chunk, seen: tuple[MessageStamp, ...] = ()) -> None:
        """Publish the chunk whose files are at a path; one without messages is only noted."""
        self._write(self.known.expecting(chunk, seen))
        if chunk.folder:
            self._place.make(MESSAGES)
            if not self._place.move(path, chunk.folder):
                raise PipelineError(f"{self._place.uri(path)}: cannot be moved to {chunk.folder}")
        self._write(self.known.settled(appeared=True))
        self._place.remove(STAGING)

    def _write(self, capture: Capture) -> None:
        self._place.replace(MANIFEST, capture.to_json())
        self._capture = capture

    def _recover(self) -> None:
        chunk = self.known.pending
        if chunk is not None:
            appeared = self._is_complete(chunk)
            if not appeared and chunk.folder:
                self._place.remove(chunk.folder)
            self._write(self.known.settled(appeared=appeared))
        listed = {chunk.folder for chunk in self.known.chunks if chunk.folder}
        there = {f"{MESSAGES}/{name}" for name in self._place.names(MESSAGES)}
        if there != listed:
            odd = min(there ^ listed)
            what = "is not in the manifest" if odd in there else "is missing"
            raise PipelineError(f"{self._place}: {odd} {what}: the capture was changed by something else")

    def _is_complete(self, chunk: Chunk) -> bool:
        if not chunk.folder:
            return True
        return all(self._place.size(f"{chunk.folder}/{name}") == size for name, size in chunk.files)


def require_free(place: Place) -> None:
    """Refuse a directory that holds anything but the remains of a capture that had just begun.

    Raises:
        OptionError: the directory holds something else.
    """
    for name in place.names():
        is_ours = name in (LOCK, STAGING, SAVED) or name.startswith((f"{LOCK}.", f".{MANIFEST}", f".{SAVED}"))
        if not is_ours:
            raise OptionError(f"{place}: holds {name}, and is no capture: take an empty directory, or a new one")
