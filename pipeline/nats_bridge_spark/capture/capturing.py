"""Captures a stream chunk by chunk, and resumes where an earlier run has ended."""

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from pyspark.sql import SparkSession

from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge.settings import Connection
from nats_bridge_spark.capture.folder import STAGING, Capture, CaptureExtent, CaptureFolder, SavedConsumer, SavedStream
from nats_bridge_spark.capture.parquet_files import WrittenChunk, end_of_chunk, tasks_for, write_chunk
from nats_bridge_spark.capture.place import Place, place_of
from nats_bridge_spark.connections import connected, options_of_stream
from nats_bridge_spark.errors import DataLostError, JobFailedError, JobStoppedError, OptionError, PipelineError
from nats_bridge_spark.failures import failure
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.reports import counted, more
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_bridge_spark.source.stream_state import StreamState, state_of, stream_info


@dataclass(frozen=True, slots=True)
class CaptureRequest:
    """A stream or a part of it, and the directory for its capture.

    Attributes:
        begin: the first sequence, or a time (RFC 3339) before which no message was stored; None for the stream's first,
            or the sequence at which the capture resumes.
        end: the last sequence, or a time at or after which no message was stored; None for the stream's present last
            one.
        interval: seconds between two looks for new messages, until the capture is stopped; None for one look.
    """

    connection: Connection = field(repr=False)
    stream: str
    directory: str
    subjects: tuple[str, ...] = ()
    begin: int | str | None = None
    end: int | str | None = None
    allow_gaps: bool = False
    interval: float | None = None


@dataclass(slots=True)
class CaptureResult:
    """The result of one run.

    Attributes:
        bytes: the size of the files that it wrote.
        messages_held: the number of messages in the capture.
        removed: sequences after the earlier runs that the stream no longer had, because a limit or a client had removed
            their messages; 0 with `subjects`, because it is unknown then.
    """

    stream: str
    directory: str
    messages: int = 0
    bytes: int = 0
    files: int = 0
    first_sequence: int | None = None
    last_sequence: int | None = None
    messages_held: int = 0
    next_sequence: int = 1
    gaps: tuple[tuple[int, int], ...] = ()
    removed: int = 0
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """Return the result as lines of text."""
        span = "" if self.first_sequence is None else f" ({self.first_sequence} to {self.last_sequence})"
        files = f" in {counted(self.files, 'file')}" if self.files else ""
        removed = more((self.removed, "had been removed from the stream before"))
        gaps = f", {counted(len(self.gaps), 'gap')}" if self.gaps else ""
        return [
            f"{self.directory}: {counted(self.messages, 'message')}{span} captured{files}{removed}; it holds"
            f" {self.messages_held:,}{gaps}, the next is {self.next_sequence}"
        ]


_PATIENCE: Final = 3  # rounds in a row in which a known stream may be missing


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
    place = place_of(wanted.directory)
    place.make()
    # A separate event loop in a thread, because notebooks have one in theirs.
    with place.locked(), LoopThread() as loop:
        return _Capturing(spark, wanted, place, progress, loop, CaptureFolder(place)).run()


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


@dataclass(slots=True)
class _Capturing:
    spark: SparkSession | None
    wanted: CaptureRequest
    place: Place
    progress: Progress
    loop: LoopThread
    folder: CaptureFolder
    result: CaptureResult = field(init=False)

    def run(self) -> CaptureResult:
        result = self.result = CaptureResult(self.wanted.stream, str(self.place))
        if self.folder.capture is not None:
            self._require_asked(self.folder.capture)
        if self.wanted.interval is None:
            self._round()
        else:
            self._rounds(self.wanted.interval)
        held = self.folder.capture
        if held is not None:  # else it was stopped at once
            result.messages_held, result.next_sequence, result.gaps = held.messages, held.next, held.extent.gaps
        result.seconds = time.monotonic() - self.progress.started
        return result

    def _rounds(self, interval: float) -> None:
        failed = 0
        while not self.progress.stopping.is_set():
            try:
                self._round()
                failed = 0
            except Exception as error:
                short = failure(self.progress.job, error)
                failed += 1
                # A server that just started may not know its streams.
                may_pass = short.passing or (type(short) is PipelineError and failed <= _PATIENCE)
                is_final = isinstance(short, JobFailedError | JobStoppedError) or not may_pass
                if self.folder.capture is None or is_final:
                    raise
                self.progress.say(f"{short}; trying again in {interval:g} s")
            self.progress.enter("waiting for new messages")
            self.progress.stopping.wait(interval)

    @property
    def _may_begin_move(self) -> bool:
        held = self.folder.known
        return not isinstance(self.wanted.begin, int) and not held.chunks and not held.extent.gaps

    def _round(self) -> None:
        """Capture the stream's present messages and its configuration."""
        if self.folder.capture is None:
            self._begin(self._facts(0).state)
        before = None if self._may_begin_move or self.wanted.subjects else self.folder.known.missing
        self._messages()
        if before is not None:
            self.result.removed += self.folder.known.missing - before
        self.folder.save(self.folder.known.extent, self._saved())

    def _messages(self) -> None:
        progress, folder = self.progress, self.folder
        progress.enter("reading the stream's state")
        facts = self._facts(folder.known.last)
        end = self._sequence(self.wanted.end)
        last = facts.state.last if end is None else min(facts.state.last, end)
        self._report_kept()
        if folder.known.next > last:
            return
        is_whole = last == facts.state.last
        progress.total = progress.messages + facts.remaining if is_whole else None
        progress.enter("reading")
        most = 1 if self.spark is None else self.spark.sparkContext.defaultParallelism
        while folder.known.next <= last and (self.wanted.interval is None or not progress.stopping.is_set()):
            first = self._behind_gap(min(facts.state.first, last + 1), drops=facts.state.removes)
            if first > last:
                return
            span, average = last - first + 1, facts.state.average
            remaining = min(facts.remaining, span) if is_whole else span
            end = end_of_chunk(first, last, remaining=remaining, average=average)
            tasks = tasks_for(min(end - first + 1, remaining), average=average, most=most)
            facts = self._chunk(first, end, tasks, facts.state)

    def _chunk(self, first: int, end: int, tasks: int, before: StreamState) -> Facts:
        """Capture one range and publish the chunk. Return the stream's state afterwards."""
        wanted, path = self.wanted, f"{STAGING}/{end}"
        self.place.remove(path)
        # Count messages that the stream removes automatically anywhere, because buckets always remove replaced ones.
        counts = before.removes and not self._may_begin_move
        may_miss = counts or self._may_begin_move or wanted.allow_gaps
        written = WrittenChunk()
        self.progress.count = lambda: written.messages
        if before.first <= end:
            options = options_of_stream(wanted.connection, wanted.stream, first, end, wanted.subjects)
            options |= {"partitions": str(tasks), "failOnDataLoss": str(not may_miss).lower()}
            write_chunk(self.spark, self.loop, options, self.place, path, written)
        after = self._facts(end)
        if may_miss and not counts:
            # Messages that the stream has lost at its start since the last look.
            first = self._behind_gap(min(after.state.first, end + 1 if written.first is None else written.first))
            if first > end:
                return after
        if not counts:
            self._require_whole(first, end, written, before, after.state)
        sizes = self.folder.publish(path, end, written.messages, after.state.known.messages)
        self.progress.add(written.messages)
        result = self.result
        result.messages += written.messages
        result.bytes += sum(sizes)
        result.files += len(sizes)
        result.first_sequence = written.first if result.first_sequence is None else result.first_sequence
        result.last_sequence = written.last if written.last is not None else result.last_sequence
        self._report_kept()
        return after

    def _saved(self) -> SavedStream:
        return self.loop.run(saved_stream(self.wanted.connection, self.wanted.stream))

    def _facts(self, after: int) -> Facts:
        """Return the facts about the stream, which must be the one that was captured before."""
        wanted, held = self.wanted, self.folder.capture
        facts = self.loop.run(facts_of(wanted.connection, wanted.stream, wanted.subjects, after))
        if held is not None and facts.state.is_another_than(held.extent.known):
            raise DataLostError(
                f"stream '{held.stream}': was recreated at {facts.state.created}; {self.place} holds the one of"
                f" {held.extent.created}: capture the new one into another directory"
            )
        return facts

    def _begin(self, state: StreamState) -> None:
        wanted = self._sequence(self.wanted.begin, after=1)
        begin = max(1, state.first)  # a stream that has never had a message reports 0
        if wanted is not None:
            begin = wanted if isinstance(self.wanted.begin, int) else max(begin, wanted)
        extent = CaptureExtent(state.created, self.wanted.subjects, begin, state.known.messages, begin, begin)
        self.folder.save(extent, self._saved())

    def _sequence(self, given: int | str | None, after: int = 0) -> int | None:
        """Return a sequence; for a time (RFC 3339), `after` more than that of the last message stored before it."""
        if not isinstance(given, str):
            return given
        with self.loop.within(connected(self.wanted.connection)) as opened:
            return self.loop.run(Replay(opened.api, self.wanted.stream).before(given)) + after

    def _require_asked(self, held: Capture) -> None:
        """Check that the directory has a capture of the requested messages."""
        wanted, place = self.wanted, self.place
        if held.stream != wanted.stream:
            raise OptionError(
                f"{place}: holds a capture of stream '{held.stream}', not of '{wanted.stream}': name another directory"
            )
        if held.extent.subjects != wanted.subjects:
            has = ",".join(held.extent.subjects) or "all subjects"
            raise OptionError(f"--subjects: {place} holds a capture of {has}; give the same, or another directory")
        if isinstance(wanted.begin, int) and wanted.begin != held.extent.begin:
            raise OptionError(
                f"--from {wanted.begin}: {place} holds a capture from {held.extent.begin} on, which resumes"
                f" at {held.next}; leave it out, or take another directory"
            )

    def _behind_gap(self, begins: int, *, drops: bool = False) -> int:
        """Return where to resume if the stream now begins after the next wanted message.

        The gap is recorded, or raises an error. If the stream may have caused it automatically, it is only counted.
        """
        first, extent = self.folder.known.next, self.folder.known.extent
        if begins <= first:
            return first
        if self._may_begin_move:
            self.folder.save(replace(extent, begin=begins, covered=begins, next=begins))
            return begins
        if drops:
            return first
        if not self.wanted.allow_gaps:
            raise DataLostError(
                f"stream '{self.wanted.stream}': messages {first} to {begins - 1} were removed and not captured:"
                " use --allow-gaps to continue without them"
            )
        gaps = (*extent.gaps, (first, begins - 1))
        self.folder.save(replace(extent, covered=begins, next=begins, gaps=gaps))
        self.progress.say(f"{self.progress.job}: messages {first} to {begins - 1} were removed: noted as a gap")
        return begins

    def _require_whole(
        self, first: int, end: int, written: WrittenChunk, before: StreamState, after: StreamState
    ) -> None:
        """Check that messages which the stream lost at its start were read before."""
        if after.first <= first:
            return
        if self.wanted.subjects or before.deleted is None:
            self.progress.say(
                f"{self.progress.job}: the stream's beginning went to {after.first} while messages from {first} on"
                " were read: some may be missing, but it cannot be known"
            )
            return
        expected = end - first + 1 - sum(first <= sequence <= end for sequence in before.deleted)
        if written.messages < expected and not self.wanted.allow_gaps:
            raise DataLostError(
                f"stream '{self.wanted.stream}': {expected - written.messages} messages between {first} and"
                f" {min(end, after.first - 1)} were removed while they were read: run it again"
            )

    def _report_kept(self) -> None:
        held = self.folder.known
        what = f"{held.messages:,} messages up to sequence {held.last}" if held.messages else "no message yet"
        self.progress.kept = f"{what} in {self.place}; run the same command to continue"


async def saved_stream(connection: Connection, stream: str) -> SavedStream:
    """Ask for a stream's configuration, and for its durable consumers. Raises the errors of `stream_info`."""
    consumers: tuple[SavedConsumer, ...] | None
    async with connected(connection) as opened:
        while True:
            info = await stream_info(opened, stream)
            try:
                listed = await opened.api.consumers(stream)
                consumers = tuple(SavedConsumer.of(each) for each in listed if each["config"].get("durable_name"))
            except NotPermittedError:
                consumers = None
            except ApiError as error:
                if error.err_code != STREAM_NOT_FOUND:
                    raise
                continue  # it was deleted between the two requests, so the first one fails now, or names its successor
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            return SavedStream(info["config"], consumers, opened.server_version, now)
