"""The folder of a capture.

    DIR/_stream.json                                        the stream at the end of the newest run, and the extent
    DIR/messages/chunk=FIRST-LAST-MESSAGES/part-….parquet   what readers read, and nothing else
    DIR/.staging/LAST/                                      what is not finished

Theory of operation. The names of the chunks record the captured messages. A chunk is the range of sequences from FIRST
to LAST, with each message that the stream had there, once. It is written below `.staging` and renamed in one step when
it is complete. So a listing shows the captured ranges, and the next run resumes after the newest chunk. A range without
messages has no chunk; `_stream.json` records how far the capture has read, and the next chunk begins there. So chunks
have no holes between them, except for gaps that the user allows, and a missing chunk is noticed.

An interrupted run leaves either a complete chunk, or files below `.staging` that the next run removes. If files are
moved one by one (object stores), a chunk may be in both places: readers ignore it, and the next run moves the rest. An
operating system lock, which ends with its process, keeps two captures apart. It only works in a directory of this
machine. Elsewhere, a capture ends when it finds a chunk of another one.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from pydantic import TypeAdapter

from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.errors import OptionError, PipelineError

SAVED: Final = "_stream.json"
FORMAT: Final = "nats-bridge stream"
VERSION: Final = 2
MESSAGES: Final = "messages"
STAGING: Final = ".staging"

_NAME: Final = re.compile(r"chunk=(\d{20})-(\d{20})-(\d+)")


@dataclass(frozen=True, slots=True)
class SavedConsumer:
    """A durable consumer.

    Attributes:
        acknowledged: the stream's sequence up to which everything was acknowledged; for a consumer without
            acknowledgements, up to which it was delivered.
    """

    name: str
    config: Json
    acknowledged: int

    @classmethod
    def of(cls, info: Json) -> Self:
        """Read `CONSUMER.INFO`."""
        config = info["config"]
        reached = info["delivered" if config.get("ack_policy") == "none" else "ack_floor"]
        return cls(str(info["name"]), config, int(reached["stream_seq"]))


@dataclass(frozen=True, slots=True)
class CaptureExtent:
    """The part of a stream that a capture covers, in addition to the names of its chunks.

    Attributes:
        created: when the stream was created, as its server reported it first.
        seen: messages that identify the stream if its creation time changes.
        covered: the sequence after the newest chunk or gap when this was written.
        next: the capture resumes at this sequence or later, because the stream has no selected messages from `covered`
            to here.
        gaps: ranges (first, last) of messages that were removed before they were captured, and that the user allows
            to be missing.
    """

    created: str
    subjects: tuple[str, ...]
    begin: int
    seen: tuple[MessageStamp, ...]
    covered: int
    next: int
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def known(self) -> KnownStream:
        """The facts that identify the stream."""
        return KnownStream(self.created, self.seen)


@dataclass(frozen=True, slots=True)
class SavedStream:
    """A stream's configuration, its durable consumers, and the extent of its capture.

    Attributes:
        consumers: the durable ones; None if the user may not list them.
        saved: the time of the requests, RFC 3339.
        extent: the extent of the capture; None if only the configuration was saved.
    """

    config: Json
    consumers: tuple[SavedConsumer, ...] | None
    server: str
    saved: str
    extent: CaptureExtent | None = None

    def __post_init__(self) -> None:
        if not self.config.get("name"):
            raise ValueError("a stream has a name")

    @property
    def name(self) -> str:
        """The stream's name."""
        return str(self.config["name"])

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def of_json(cls, text: str, place: str) -> Self:
        """Read the file.

        Raises:
            PipelineError: it is something else, or of another version.
        """
        try:
            members = json.loads(text)
            is_one, version = members["format"] == FORMAT, members["version"]
            if is_one and version == VERSION:
                return TypeAdapter(cls).validate_python(members)
        except (ValueError, KeyError, TypeError):
            is_one = False
        if is_one:
            raise PipelineError(
                f"{place}: version {version} of the format; this nats-bridge knows version {VERSION}: capture the"
                " stream into another directory"
            )
        raise PipelineError(f"{place}: not the configuration of a captured stream")


@dataclass(frozen=True, slots=True, order=True)
class Chunk:
    """A range of the stream that was captured at once."""

    first: int
    last: int
    messages: int

    @property
    def folder(self) -> str:
        """The folder of its files in the capture's directory. Sorting by name sorts chunks by sequence."""
        return f"{MESSAGES}/chunk={self.first:020}-{self.last:020}-{self.messages}"


@dataclass(frozen=True, slots=True)
class Capture:
    """A stream's history, or a part of it, in a directory."""

    saved: SavedStream
    extent: CaptureExtent
    chunks: tuple[Chunk, ...] = ()

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.saved.name

    @property
    def covered(self) -> int:
        """The sequence after the newest chunk or gap."""
        ends = [*(last for _, last in self.extent.gaps), *(chunk.last for chunk in self.chunks[-1:])]
        return max(ends, default=self.extent.begin - 1) + 1

    @property
    def next(self) -> int:
        """The sequence at which it resumes."""
        return max(self.covered, self.extent.next)

    @property
    def last(self) -> int:
        """The last sequence that it covers; `extent.begin - 1` if it covers none."""
        return self.next - 1

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(chunk.messages for chunk in self.chunks)

    @property
    def missing(self) -> int:
        """The number of covered sequences that have neither a message nor a gap."""
        return self.next - self.extent.begin - self.messages - sum(last - first + 1 for first, last in self.extent.gaps)


def capture_in(place: Place) -> Capture | None:
    """Return the capture in a directory; None without one, or if only a stream's configuration was saved.

    Raises:
        PipelineError: it cannot be read, or something else has changed it.
    """
    text = place.read(SAVED)
    saved = None if text is None else SavedStream.of_json(text, f"{place}/{SAVED}")
    if saved is None or saved.extent is None:
        return None
    # Chunks that are also below .staging are still being moved.
    moving = {int(name) for name in place.names(STAGING) if name.isdecimal()}
    chunks = sorted(chunk for chunk in _chunks(place) if chunk.last not in moving)
    held = Capture(saved, saved.extent, tuple(chunks))
    _require_joined(place, held)
    return held


def _chunks(place: Place) -> Iterable[Chunk]:
    for name in place.names(MESSAGES):
        found = _NAME.fullmatch(name)
        if found is None:
            raise PipelineError(f"{place}: {MESSAGES}/{name} is not a chunk: the capture was changed by something else")
        yield Chunk(*map(int, found.groups()))


def _require_joined(place: Place, held: Capture) -> None:
    """Refuse chunks that overlap, and holes between them."""
    at = held.extent.begin
    for first, last, is_gap in sorted(
        [*((*gap, True) for gap in held.extent.gaps), *((each.first, each.last, False) for each in held.chunks)]
    ):
        if first < at:
            raise PipelineError(
                f"{place}: holds messages from {first} on twice: two captures wrote to it at once; remove it, and"
                " capture the stream again"
            )
        if first > at and not is_gap:
            break
        at = last + 1
    else:
        if at >= held.extent.covered:
            return
        first = held.extent.covered
    raise PipelineError(
        f"{place}: the chunk of {at} to {first - 1} is missing: the capture was changed by something else"
    )


class CaptureFolder:
    """The folder for its writer.

    Attributes:
        capture: the directory's capture; None if it is empty.

    Raises:
        OptionError: the directory has other contents.
        PipelineError: it cannot be read, or something else has changed it.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._finish_moving()
        self.capture = capture_in(place)
        if self.capture is None:
            # The remains of a capture that had just begun may stay.
            for name in place.names():
                if name not in (STAGING, SAVED) and not name.startswith(f".{SAVED}"):
                    raise OptionError(f"{place}: is not a capture, but holds {name}: take an empty or a new directory")
        place.remove(STAGING)

    @property
    def known(self) -> Capture:
        """The directory's capture, once it has begun."""
        assert self.capture is not None, "a capture begins before it resumes"
        return self.capture

    def save(self, extent: CaptureExtent, saved: SavedStream | None = None) -> None:
        """Save the extent of the capture, and the stream's present configuration if it was requested again."""
        saved = replace(saved or self.known.saved, extent=extent)
        self._place.replace(SAVED, saved.to_json())
        self.capture = Capture(saved, extent, self.capture.chunks if self.capture else ())

    def publish(self, path: str, last: int, messages: int, seen: tuple[MessageStamp, ...]) -> list[int]:
        """Let the chunk whose files are at a path appear, without other files of Spark.

        Args:
            messages: the number of messages; for 0, only the range is recorded.
            seen: messages that identify the stream from now on; empty to keep the known ones.

        Returns:
            The sizes of its files.

        Raises:
            PipelineError: another capture has written to the folder.
        """
        held, place, sizes = self.known, self._place, list[int]()
        if messages:
            for file in place.names(path):
                if file.endswith(".parquet") and not file.startswith((".", "_")):
                    sizes.append(place.size(f"{path}/{file}") or 0)
                else:
                    place.remove(f"{path}/{file}")
            chunk = Chunk(held.covered, last, messages)
            alone = PipelineError(f"{place}: another capture has written to it: run one at a time")
            if {*_chunks(place)} != {*held.chunks}:
                raise alone
            place.make(MESSAGES)
            try:
                place.move(path, chunk.folder)
            except FileNotFoundError:
                raise alone from None
            self.capture = held = replace(held, chunks=(*held.chunks, chunk))
        self.save(replace(held.extent, covered=held.covered, next=last + 1, seen=seen or held.extent.seen))
        place.remove(STAGING)
        return sizes

    def _finish_moving(self) -> None:
        """Move files that an interrupted run had not moved yet, where files are moved one by one."""
        place = self._place
        begun = {str(chunk.last): chunk.folder for chunk in _chunks(place)} if place.names(STAGING) else {}
        for name in set(place.names(STAGING)) & set(begun):
            for file in place.names(f"{STAGING}/{name}"):
                if place.size(f"{begun[name]}/{file}") is None:
                    place.files.move(place.at(f"{STAGING}/{name}/{file}"), place.at(f"{begun[name]}/{file}"))
            place.remove(f"{STAGING}/{name}")
