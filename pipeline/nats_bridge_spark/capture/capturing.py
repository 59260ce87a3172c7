"""Captures a stream chunk by chunk, and resumes where an earlier run has ended."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import BridgeError
from nats_bridge.settings import Connection
from nats_bridge_spark.capture.chunk_writing import WrittenChunk, end_of_chunk, tasks_for, write_chunk
from nats_bridge_spark.capture.folder import Capture, CaptureFolder
from nats_bridge_spark.capture.place import Place, place_of
from nats_bridge_spark.capture.saved_stream import CaptureExtent, SavedStream, saved_stream
from nats_bridge_spark.connections import connected, options_of_stream
from nats_bridge_spark.errors import DataLostError, JobFailedError, JobStoppedError, OptionError, PipelineError
from nats_bridge_spark.failures import failure
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.stream_state import StreamState, state_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_IN_JSON: Final = {
    "size": "bytes",
    "first": "first_sequence",
    "last": "last_sequence",
    "held": "messages_held",
    "next": "next_sequence",
}

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
        found = {_IN_JSON.get(name, name): value for name, value in asdict(self).items()}
        return found | {"seconds": round(self.seconds, 3)}

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


_PATIENCE: Final = 3
"""Rounds in a row in which a known stream may be missing."""


def capture(spark: SparkSession | None, wanted: CaptureRequest, progress: Progress) -> CaptureResult:
    """Capture the messages in the stream that are not in the directory yet.

    Each chunk appears as a whole. If the run is interrupted, finished chunks are kept, and the next run resumes after
    them.

    Args:
        progress: from `nats_bridge_spark.progress.watched`; a continuous capture ends when its `stopping` is set.

    Raises:
        OptionError: the directory has other contents, or another capture.
        DataLostError: messages were removed that were not captured, or the stream was recreated.
        PipelineError: no such stream, no server, another process writes to the directory.
        Exception: Spark's error for a failed job.
    """
    place = place_of(spark, wanted.directory)
    place.make()
    # A separate event loop in a thread, because notebooks have one in theirs.
    with place.locked(), LoopThread() as loop:
        return _Capturing(spark, wanted, place, progress, loop).run()


class Facts(NamedTuple):
    """A stream at one moment, and the number of messages after a sequence that the filters let pass."""

    state: StreamState
    remaining: int


async def facts_of(connection: Connection, stream: str, subjects: tuple[str, ...], after: int) -> Facts:
    """Ask for the facts about a stream, and the messages after a sequence.

    Raises:
        OptionError: the stream has another retention than limits.
        PipelineError: the stream does not exist.
    """
    async with connected(connection) as opened:
        state = await state_of(opened, stream, listing=True)
        state.require_limits("captured")
        return Facts(state, await Replay(opened.api, stream, subjects).after(after))


class _Capturing:
    def __init__(
        self, spark: SparkSession | None, wanted: CaptureRequest, place: Place, progress: Progress, loop: LoopThread
    ) -> None:
        self._loop = loop
        self._spark = spark
        self._most = 1 if spark is None else spark.sparkContext.defaultParallelism  # tasks
        self._wanted = wanted
        self._place = place
        self._progress = progress
        self._folder = CaptureFolder(place)
        self._result = CaptureResult(wanted.stream, str(place))
        if self._folder.capture is not None:
            self._require_asked(self._folder.capture)

    def run(self) -> CaptureResult:
        """Run all rounds, and return the result."""
        if self._wanted.interval is None:
            self._round()
        else:
            self._rounds(self._wanted.interval)
        held, result = self._folder.capture, self._result
        if held is not None:  # else it was stopped at once
            result.held, result.next = held.messages, held.next
            result.gaps = held.extent.gaps
        result.seconds = time.monotonic() - self._progress.started
        return result

    def _rounds(self, interval: float) -> None:
        failed = 0
        while not self._progress.stopping.is_set():
            try:
                self._round()
                failed = 0
            except JobStoppedError:
                raise
            except Exception as error:
                short = failure(self._progress.job, error)
                failed += 1
                if self._folder.capture is None or not _may_pass(short, failed):
                    raise
                self._progress.say(f"{short}; trying again in {interval:g} s")
            self._progress.enter("waiting for new messages")
            self._progress.stopping.wait(interval)

    @property
    def _may_begin_move(self) -> bool:
        held = self._folder.known
        return not isinstance(self._wanted.begin, int) and not held.chunks and not held.extent.gaps

    def _round(self) -> None:
        """Capture the stream's present messages and its configuration."""
        if self._folder.capture is None:
            self._begin(self._facts(0))
        before = None if self._may_begin_move or self._wanted.subjects else self._folder.known.missing
        self._messages()
        if before is not None:
            self._result.removed += self._folder.known.missing - before
        self._folder.save(self._saved(), self._folder.known.extent)

    def _messages(self) -> None:
        """Capture the messages."""
        wanted, progress = self._wanted, self._progress
        progress.enter("reading the stream's state")
        facts = self._facts(self._folder.known.last)
        self._require_same(facts.state)
        last = self._last(facts.state)
        self._report_kept()
        if self._folder.known.next > last:
            return
        is_whole = last == facts.state.last
        progress.total = progress.messages + facts.remaining if is_whole else None
        progress.enter("reading")
        while self._folder.known.next <= last and (wanted.interval is None or not progress.stopping.is_set()):
            first = self._behind_gap(min(facts.state.first, last + 1), drops=facts.state.removes)
            if first > last:
                return
            remaining = facts.remaining if is_whole else None
            average = facts.state.average
            end = end_of_chunk(first, last, remaining=remaining, average=average, chunk=wanted.chunk)
            rows = min(end - first + 1, end - first + 1 if remaining is None else remaining)
            tasks = tasks_for(rows, average=average, most=self._most)
            facts = self._chunk(first, end, tasks, facts)

    def _chunk(self, first: int, end: int, tasks: int, before: Facts) -> Facts:
        """Capture one range and publish the chunk. Return the stream's state afterwards."""
        folder = self._folder
        path = folder.staging(end)
        # Count messages that the stream removes automatically anywhere, because buckets always remove replaced ones.
        counts = before.state.removes and not self._may_begin_move
        may_miss = counts or self._may_begin_move or self._wanted.allow_gaps
        written = WrittenChunk()
        self._progress.count = lambda: written.messages
        if before.state.first <= end:
            wanted = self._wanted
            options = options_of_stream(wanted.connection, wanted.stream, first, end, wanted.subjects)
            options |= {"partitions": str(tasks), "failOnDataLoss": str(not may_miss).lower()}
            write_chunk(self._spark, options, self._place.uri(path), written)
        after = self._facts(end)
        self._require_same(after.state)
        if may_miss and not counts:
            # Messages that the stream has lost at its start since the last look.
            first = self._behind_gap(min(after.state.first, end + 1 if written.first is None else written.first))
            if first > end:
                return after
        if not counts:
            self._require_whole(first, end, written, before.state, after.state)
        sizes = folder.staged(path) if written.messages else []
        folder.publish(path, end, written.messages, after.state.known.messages)
        self._progress.add(written.messages)
        result = self._result
        result.messages += written.messages
        result.size += sum(sizes)
        result.files += len(sizes)
        result.first = written.first if result.first is None else result.first
        result.last = written.last if written.last is not None else result.last
        self._report_kept()
        return after

    def _saved(self) -> SavedStream:
        return self._loop.run(saved_stream(self._wanted.connection, self._wanted.stream))

    def _facts(self, after: int) -> Facts:
        wanted = self._wanted
        return self._loop.run(facts_of(wanted.connection, wanted.stream, wanted.subjects, after))

    def _begin(self, facts: Facts) -> None:
        """Record the extent of the capture."""
        wanted, state = self._wanted, facts.state
        begin = max(1, state.first)  # a stream that has never had a message reports 0
        if isinstance(wanted.begin, str):
            begin = max(begin, 1 + self._before(wanted.begin))
        elif wanted.begin is not None:
            begin = wanted.begin
        extent = CaptureExtent(state.created, wanted.subjects, begin, state.known.messages, begin, begin)
        self._folder.save(self._saved(), extent)

    def _before(self, moment: str) -> int:
        """Return the sequence just before the first message that was stored at or after a time (RFC 3339)."""

        async def before() -> int:
            async with connected(self._wanted.connection) as opened:
                return await Replay(opened.api, self._wanted.stream).before(moment)

        return self._loop.run(before())

    def _last(self, state: StreamState) -> int:
        """Return the last sequence that this round is about."""
        end = self._wanted.end
        if isinstance(end, str):
            end = self._before(end)
        return state.last if end is None else min(state.last, end)

    def _require_asked(self, held: Capture) -> None:
        """Check that the directory has a capture of the requested messages."""
        wanted, place = self._wanted, self._place
        if held.stream != wanted.stream:
            raise OptionError(f"{place}: holds a capture of stream '{held.stream}', not of '{wanted.stream}'")
        if held.extent.subjects != wanted.subjects:
            has = ",".join(held.extent.subjects) or "all subjects"
            raise OptionError(f"--subjects: {place} holds a capture of {has}; give the same, or another directory")
        if isinstance(wanted.begin, int) and wanted.begin != held.extent.begin:
            raise OptionError(
                f"--from {wanted.begin}: {place} holds a capture from {held.extent.begin} on, which resumes"
                f" at {held.next}; leave it out, or take another directory"
            )

    def _require_same(self, state: StreamState) -> None:
        """Check that the stream is the one that was captured before."""
        held = self._folder.known
        if state.is_another_than(held.extent.known):
            raise DataLostError(
                f"stream '{held.stream}': was recreated at {state.created}; {self._place} holds the one of"
                f" {held.extent.created}: capture the new one into another directory"
            )

    def _behind_gap(self, begins: int, *, drops: bool = False) -> int:
        """Return where to resume if the stream now begins after the next wanted message.

        The gap is recorded, or raises an error. If the stream may have caused it automatically, it is only counted.
        """
        first = self._folder.known.next
        if begins <= first:
            return first
        if self._may_begin_move:
            self._folder.save(self._folder.known.saved, self._folder.known.extent.beginning(begins))
            return begins
        if drops:
            return first
        if not self._wanted.allow_gaps:
            raise DataLostError(
                f"stream '{self._wanted.stream}': messages {first} to {begins - 1} were removed and not captured:"
                " use --allow-gaps to continue without them"
            )
        self._folder.skip(first, begins - 1)
        self._progress.say(f"{self._progress.job}: messages {first} to {begins - 1} were removed: noted as a gap")
        return begins

    def _require_whole(
        self, first: int, end: int, written: WrittenChunk, before: StreamState, after: StreamState
    ) -> None:
        """Check that messages which the stream lost at its start were read before."""
        if after.first <= first:
            return
        if self._wanted.subjects or before.deleted is None:
            self._progress.say(
                f"{self._progress.job}: the stream's beginning went to {after.first} while messages from {first} on"
                " were read: whether some went unread cannot be known"
            )
            return
        expected = end - first + 1 - sum(first <= sequence <= end for sequence in before.deleted)
        if written.messages < expected and not self._wanted.allow_gaps:
            raise DataLostError(
                f"stream '{self._wanted.stream}': {expected - written.messages} messages between {first} and"
                f" {min(end, after.first - 1)} went while they were read: run it again"
            )

    def _report_kept(self) -> None:
        held = self._folder.known
        what = f"{held.messages:,} messages up to sequence {held.last}" if held.messages else "no message yet"
        self._progress.kept = f"{what} in {self._place}; run the same command to continue"


def _may_pass(error: BridgeError, failed: int) -> bool:
    # A server that just started may not know its streams.
    if isinstance(error, JobFailedError):
        return False
    return error.passing or (type(error) is PipelineError and failed <= _PATIENCE)
