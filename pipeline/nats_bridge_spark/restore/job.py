"""Runs a restore: checks everything first, then restores stream after stream."""

import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.entry_subjects import destinations
from nats_bridge.settings import Connection as ConnectionSettings
from nats_bridge_spark.backfill.history import captured_history
from nats_bridge_spark.capture.folder import SAVED, Capture, SavedStream, capture_in
from nats_bridge_spark.capture.parquet_files import first_since
from nats_bridge_spark.capture.place import Place, place_of
from nats_bridge_spark.connections import connected
from nats_bridge_spark.diff.rules import transform_of
from nats_bridge_spark.errors import OptionError, PipelineError, StreamExistsError
from nats_bridge_spark.progress import watched
from nats_bridge_spark.reports import counted, more
from nats_bridge_spark.restore.configuration import (
    RestoreMark,
    commands,
    consumer_config,
    restored_config,
    restoring_config,
    unsupported,
)
from nats_bridge_spark.restore.object_store import purge_orphans
from nats_bridge_spark.restore.task import StreamRestore
from nats_bridge_spark.session import run_here
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_transforms.dialect import server_dialect
from nats_transforms.sourcing import Sourcing
from nats_transforms.timestamp import nanoseconds_of


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """The request, as the command line gives it.

    Attributes:
        directory: a capture, or a directory of captures; a path, or an address in S3.
        consumers: how durable consumers are restored: after their acknowledged messages, as they were configured, or
            not at all.
        transform: source and destination of the transform that selects messages and changes their subjects.
        end: the last sequence, or a time (RFC 3339) at or after which no message was stored; None for all.
    """

    connection: ConnectionSettings = field(repr=False)
    directory: str
    streams: tuple[str, ...] = ()
    name: str | None = None
    end: int | str | None = None
    transform: tuple[str, str] | None = None
    without: tuple[str, ...] = ()
    consumers: Literal["resume", "as-saved", "none"] = "resume"
    hold: bool = False


@dataclass(slots=True)
class Summary:
    """The result for one stream.

    Attributes:
        changed: messages whose headers could not be given back as they were.
        orphans: chunks of an object store that no longer belonged to an object; they were removed again.
        state: `restored`, `held` (not open yet), `there` (by an earlier run), or `exists` (another stream of this name,
            which stays as it is).
    """

    captured: str
    stream: str
    messages: int = 0
    first: int = 1
    last: int = 0
    unselected: int = 0
    changed: int = 0
    orphans: int = 0
    consumers: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    state: Literal["restored", "held", "there", "exists"] = "restored"
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        name = self.captured if self.captured == self.stream else f"{self.captured} → {self.stream}"
        if self.state == "there":
            return [f"{name}: restored by an earlier run, up to {self.last}"]
        if self.state == "exists":
            return [f"{name}: exists, and stays as it is"]
        span = f" ({self.first} to {self.last})" if self.messages else ""
        rest = more(
            (self.unselected, "not selected"),
            (self.changed, "with fewer or renamed headers"),
            (self.orphans, "chunks of replaced or deleted objects removed again"),
        )
        made = f"; consumers: {', '.join(self.consumers)}" if self.consumers else ""
        held = "; held: run it again without --hold to open it" if self.state == "held" else ""
        lines = [f"{name}: {counted(self.messages, 'message')}{span} restored{rest}{made}{held}; {self.seconds:.1f} s"]
        if self.left_out:
            lines.append(f"  not restored: {', '.join(self.left_out)}")
        return lines


_KEPT: Final = "what was restored stays: run the same command again"


class _Saved(NamedTuple):
    """A captured stream: its directory, its configuration, and its messages (None if they were not captured)."""

    place: Place
    stream: SavedStream
    capture: Capture | None


def restore(request: RestoreRequest) -> list[Summary]:
    """Restore the streams of a directory.

    Of several captures that the request does not name, those whose stream exists are left out.

    Returns:
        One summary per stream.

    Raises:
        PipelineError, BridgeError: the restore cannot continue. Restored messages stay; the same command continues
            after them.
    """
    saved = _found(request)
    with LoopThread() as loop, loop.within(connected(request.connection)) as connection:
        if not server_dialect(connection.server_version).stream_fields_of_2_10:  # as the transform that closes a stream
            raise OptionError(
                f"the server is {connection.server_version}: restoring needs 2.10 or newer, where a stream can be kept"
                " closed until it is restored"
            )
        plans: list[_Job | Summary] = []
        existing: StreamExistsError | None = None
        for each in saved:
            try:
                plans.append(loop.run(_planned(request, loop, connection, each)))
            except StreamExistsError as error:
                if request.streams:
                    raise
                existing = existing or error
                plans.append(Summary(each.stream.name, each.stream.name, state="exists"))
        if existing is not None and not any(isinstance(plan, _Job) for plan in plans):
            raise existing
        return [plan.restored() if isinstance(plan, _Job) else plan for plan in plans]


def _found(request: RestoreRequest) -> list[_Saved]:
    """Return the captures that are wanted, by name."""
    place = place_of(request.directory)
    found = [
        _Saved(each, SavedStream.of_json(text, f"{each}/{SAVED}"), capture_in(each))
        for each in ([place] if place.size(SAVED) is not None else map(place.below, place.names()))
        if (text := each.read(SAVED)) is not None
    ]
    if not found:
        raise OptionError(f"{place}: holds no capture: there is no {SAVED}; nats-bridge capture writes it")
    names = [each.stream.name for each in found]
    for wanted in request.streams:
        if wanted not in names:
            raise OptionError(f"--stream {wanted}: {place} has no such stream; it has {', '.join(names)}")
    chosen = [each for each in found if not request.streams or each.stream.name in request.streams]
    for option, given in (
        ("--as", request.name),
        ("--to", request.end if isinstance(request.end, int) else None),
        ("--transform", request.transform),
    ):
        if given is not None and len(chosen) > 1:
            raise OptionError(f"{option}: is for one stream, and {place} has {', '.join(names)}: use --stream NAME")
    return chosen


@dataclass(frozen=True, slots=True)
class _Job:
    """One stream of a restore.

    Attributes:
        config: the final configuration, without its mark.
    """

    request: RestoreRequest
    loop: LoopThread
    connection: Connection
    saved: _Saved
    sourcing: Sourcing | None
    config: Json
    mark: RestoreMark
    there: Json | None

    @property
    def opened(self) -> int | None:
        """The sequence up to which an earlier run restored the stream and opened it; None if it is not open."""
        return RestoreMark.of(self.there["config"])[1] if self.there is not None else None

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def begin(self) -> int:
        return self.saved.capture.extent.begin if self.saved.capture else 1

    def restored(self) -> Summary:
        """Create the stream, publish its messages, open it, and create its consumers. Skip finished steps."""
        saved, request, began = self.saved, self.request, time.monotonic()
        copying = tuple(member for member in ("mirror", "sources") if saved.stream.config.get(member))
        summary = Summary(saved.stream.name, self.name, left_out=copying + request.without)
        if self.opened is not None:
            summary.state, summary.last = "there", self.opened
        else:
            self._publish(summary)
            if request.hold:
                summary.state = "held"
            else:
                summary.orphans = self.loop.run(purge_orphans(self.connection.api, self.name, self.config["subjects"]))
                metadata = {**self.config.get("metadata", {}), **self.mark.metadata(summary.last)}
                self.loop.run(self._configured("STREAM.UPDATE", {**self.config, "metadata": metadata}))
        if summary.state != "held":
            self.loop.run(self._with_consumers(summary))
        summary.seconds = time.monotonic() - began
        return summary

    def _publish(self, summary: Summary) -> None:
        capture, last = self.saved.capture, self.last
        there = self.there or self.loop.run(self._created())
        reached = int(there["state"]["last_seq"])
        if reached > last:
            raise OptionError(
                f"stream '{self.name}': is restored up to sequence {reached} already, and {last} is wanted: delete"
                " it to restore less"
            )
        summary.first, summary.last = max(reached + 1, self.begin), last
        if capture is None:
            return
        history, known = captured_history(self.saved.place, capture, last), KnownStream.of(there)
        with watched(None, f"restore {self.name}", total=last - reached) as progress:
            progress.kept = _KEPT
            name = f"nats-bridge-restore {self.name}"
            with self.loop.within(connected(self.request.connection, client_name=name)) as connection:
                work = StreamRestore(connection, self.config, self.mark, self.sourcing, history, known, reached=reached)
                progress.enter("publishing", count=lambda: work.reached - reached)
                run_here(self.loop, work.run())
            progress.add(work.counts["restored"])
        summary.messages, summary.unselected = work.counts["restored"], work.counts["unselected"]
        summary.changed = work.counts["changed"]

    @property
    def last(self) -> int:
        """The last sequence that is wanted; 0 if no message was captured."""
        capture, end = self.saved.capture, self.request.end
        if capture is None:
            return 0
        if isinstance(end, str):
            first = first_since(self.saved.place, capture, nanoseconds_of(end))
            return capture.last if first is None else first - 1
        return capture.last if end is None else max(min(end, capture.last), capture.extent.begin - 1)

    async def _created(self) -> Json:
        config = restoring_config(self.config, self.mark)
        if self.begin > 1:
            config["first_seq"] = self.begin
        return await self._configured("STREAM.CREATE", config)

    async def _configured(self, request: str, config: Json) -> Json:
        remedy = f"use --without MEMBER to leave something out, and run it again: {_KEPT}"
        configuring = self.connection.api.request(f"{request}.{self.name}", config)
        return await self._accepted(configuring, "the server refuses its configuration", remedy)

    async def _accepted(self, request: Awaitable[Json], refused: str, remedy: str) -> Json:
        try:
            return await request
        except ApiError as error:
            if error.retriable:
                raise
            why = f"stream '{self.name}': {refused}: {error.description} ({error.err_code}); {remedy}"
            raise PipelineError(why) from None

    async def _with_consumers(self, summary: Summary) -> None:
        request, api = self.request, self.connection.api
        consumers = self.saved.stream.consumers
        if consumers is None:
            summary.left_out += ("consumers, which could not be listed",)
            return
        if request.consumers == "none" or self.sourcing is not None:
            summary.left_out += tuple(f"consumer {each.name}" for each in consumers)
            return
        for each in consumers:
            if commands(each.config):
                summary.left_out += (f"consumer {each.name}, whose messages would be commands to the server",)
                continue
            if await api.consumer_info(self.name, each.name) is not None:
                continue
            # Consumers of work queues receive everything, and without messages there is no position to resume at.
            resumes = request.consumers == "resume" and self.saved.capture is not None
            position = each.acknowledged if resumes else 0
            creating = api.create_durable(self.name, consumer_config(each.config, position, summary.last))
            refused = f"is restored; the server refuses consumer '{each.name}'"
            await self._accepted(creating, refused, "--consumers none leaves all out")
            summary.consumers += (each.name,)


async def _planned(request: RestoreRequest, loop: LoopThread, connection: Connection, saved: _Saved) -> _Job:
    """Check one stream.

    Raises:
        StreamExistsError: it exists, and no earlier run of this restore made it. Then nothing else about it matters.
        OptionError: the server, or another stream, does not allow it.
    """
    name, capture = request.name or saved.stream.name, saved.capture
    sourcing, subjects = None, list[str]()
    if request.transform:
        sourcing = transform_of(*request.transform, saved.stream.name)
        stored = [pattern.decode() for pattern in destinations(sourcing)]
        subjects = [] if ">" in stored else list(dict.fromkeys(stored))
    created = capture.extent.created if capture else ""
    mark = RestoreMark(saved.stream.name, created, " ".join(request.transform or ()))
    there: Json | None = None
    try:
        there = await connection.api.stream_info(name)
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
    if there is not None and RestoreMark.of(there["config"])[0] != mark:
        raise StreamExistsError(
            f"stream '{name}': exists, with {counted(int(there['state']['messages']), 'message')}: restore it under"
            " another name with --as NAME, or delete the stream first if you no longer need it"
        )
    config = restored_config(saved.stream.config, name, subjects, request.without)
    if config.get("allow_msg_counter"):
        raise OptionError(
            f"stream '{name}': adds up counters (allow_msg_counter), which would add what is restored a second time:"
            " leave it out with --stream, and copy it by a rule"
        )
    unknown, refusal = unsupported(config, connection.server_version)
    place = f"stream '{name}' (saved from {saved.stream.server}): the server is {connection.server_version}, and"
    if refusal:
        raise OptionError(f"{place} refuses its configuration: {refusal}; use --without MEMBER to leave something out")
    if unknown:
        options = " ".join(f"--without {member}" for member in unknown)
        raise OptionError(f"{place} does not know {', '.join(unknown)}: say {options} to restore it without")
    for subject in config["subjects"] if there is None else ():
        # The stream could not be opened in the end.
        if others := [other for other in await connection.api.stream_names(subject=subject) if other != name]:
            raise OptionError(
                f"stream '{name}': its subject '{subject}' is stored by stream '{others[0]}' already: delete that one,"
                " or give this one other subjects with --transform SRC DEST"
            )
    job = _Job(request, loop, connection, saved, sourcing, config, mark, there)
    if job.opened is not None and job.opened < job.last:
        raise OptionError(
            f"stream '{name}': was restored up to sequence {job.opened} and opened, and {job.last} is wanted: restore"
            " it under another name with --as NAME, or delete the stream first if you no longer need it"
        )
    return job
