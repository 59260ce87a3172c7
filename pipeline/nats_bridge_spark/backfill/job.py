"""Plans and runs the backfill of a copying rule: one history after the other.

The plan makes the same checks as a start of the sidecar, with the same code, and finds each entry's resume point in the
target.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import close_connections, open_connections
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.entry import EntryPlan
from nats_bridge.kinds.copying.model import CopyingRule, KvSourcesRule
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams, last_sequence_after_sent
from nats_bridge.kinds.copying.position.resuming import Resuming
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.kinds.copying.target import Target
from nats_bridge.rule_kinds import kind_of
from nats_bridge.rules.context import RuleContext
from nats_bridge.settings import Settings
from nats_bridge_spark.backfill.fence import fenced, refuse_running
from nats_bridge_spark.backfill.history import captured_history, live_history
from nats_bridge_spark.backfill.history_copy import HistoryCopy
from nats_bridge_spark.capture.folder import Capture
from nats_bridge_spark.capture.parquet_files import required_capture
from nats_bridge_spark.capture.place import place_of
from nats_bridge_spark.connections import connected
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.progress import watched
from nats_bridge_spark.reports import more
from nats_bridge_spark.session import run_here
from nats_bridge_spark.source.loop_thread import LoopThread
from nats_transforms.subject import REST, is_subset


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """The request, as the command line gives it.

    Attributes:
        sources: names of streams (buckets, for `kv_sources`) of the rule to copy from; none for all.
        first: the first sequence wanted; None for the rule's own start.
        last: the last sequence wanted; None for the end of the stream or capture when the job starts.
    """

    rule: str
    sources: tuple[str, ...] = ()
    capture: str | None = None
    first: int | None = None
    last: int | None = None


@dataclass(slots=True)
class EntrySummary:
    """The result of one source's history.

    Attributes:
        first: the first sequence of the job; earlier messages were copied before, or are not wanted.
        already_there: messages found in the target, where an earlier attempt had stored them.
        skipped: rejected by the target permanently and sent to the dead letters.
        next_sequence: the sequence at which the live rule resumes.
        rate: messages copied per second.
    """

    source: str
    target: str
    first: int
    last: int
    read: int = 0
    copied: int = 0
    already_there: int = 0
    unselected: int = 0
    duplicates: int = 0
    skipped: int = 0
    out_of_order: int = 0
    seconds: float = 0.0
    next_sequence: int = 0
    rate: int = 0

    def lines(self) -> list[str]:
        """Return the summary as lines of text."""
        place = f"{self.source} → {self.target}"
        if self.read == 0:
            return [f"{place}: nothing to copy; the next message is sequence {self.next_sequence}"]
        rest = more(
            (self.already_there, "already there"),
            (self.unselected, "not selected"),
            (self.duplicates, "duplicates by message id"),
            (self.skipped, "skipped to the dead letters"),
            (self.out_of_order, "stored behind later ones"),
        )
        return [
            f"{place}: {self.copied:,} copied of {self.read:,} read ({self.first} to {self.last}){rest};"
            f" {self.seconds:.1f} s, {self.rate:,}/s",
            f"  the live rule resumes at sequence {self.next_sequence}",
        ]


async def _entry_plans(
    rule: CopyingRule, settings: Settings, connections: Mapping[str, Connection], request: BackfillRequest
) -> list[EntryPlan]:
    """Return the selected entries, checked as at a start of the sidecar."""
    dialect = settings.dialect_of(rule)
    run = CopyRun(rule, settings, connections, RuleContext(settings.name, dialect, lambda _: None))
    prefix = "KV_" if isinstance(rule, KvSourcesRule) else ""
    names = [entry.name.removeprefix(prefix) for entry in rule.entries]
    for wanted in request.sources:
        if wanted not in names:
            raise OptionError(f"--source {wanted}: rule '{rule.name}' has no such source; it has {', '.join(names)}")
    await run.check()
    chosen = [plan for plan, name in zip(run.plans, names, strict=True) if name in (request.sources or names)]
    for plan in chosen:
        if plan.source.rename_objects or plan.durable:
            why = "acknowledges nothing" if plan.durable else "does not rename objects in metadata"
            raise RuleRefusedError(f"rule '{rule.name}': a backfill {why}: let the sidecar copy '{plan.source.name}'")
        await refuse_running(connections[plan.source.connection], plan.source.name, plan.owner, rule.name)
    return chosen


async def _entry_copy(
    plan: EntryPlan,
    rule: CopyingRule,
    settings: Settings,
    connections: Mapping[str, Connection],
    request: BackfillRequest,
) -> HistoryCopy:
    """Plan one entry: the history to read, and the first sequence that the target lacks."""
    source_connection, target = connections[plan.source.connection], connections[rule.target_connection]
    source_info = await source_connection.api.stream_info(plan.source.name)
    target_info = await target.api.stream_info(plan.stream)
    subjects = await plan.consumer_filters(source_connection.api, source_info)
    streams = EntryStreams(
        plan.sourcing,
        Replay(source_connection.api, plan.source.name, subjects, headers_only=True),
        source_info,
        target.api,
        target_info,
        Target.of(target_info, target.server_version),
        await last_sequence_after_sent(target, plan.stream, plan.probe),
        plan.rule,
    )
    first = 1 + await _handled(plan, request, streams)
    if request.capture is None:
        last = min(streams.source_last, request.last or streams.source_last)
        history = live_history(settings.connections[plan.source.connection], plan.source.name, last, subjects)
    else:
        place = place_of(request.capture)
        capture = required_capture(place)
        _require_held(capture, source_info, plan, first, f"--capture {request.capture}")
        history = captured_history(place, capture, min(capture.last, request.last or capture.last))
    return HistoryCopy(
        # A later round must not begin elsewhere, even if the target has been written to since.
        plan=replace(_beginning(plan, first), filters=subjects),
        history=history,
        known=KnownStream.of(source_info),
        held=first - 1,
    )


def _require_held(capture: Capture, source: Json, plan: EntryPlan, first: int, place: str) -> None:
    """Refuse a capture of another stream, and one that lacks messages of the live stream."""
    extent = capture.extent
    stream, created, held_from = plan.source.name, source["created"], int(source["state"]["first_seq"])
    if capture.stream != stream:
        raise OptionError(f"{place}: is of stream '{capture.stream}', and the rule reads '{stream}'")
    if extent.known.differs(created, Bounds.of(source)):
        raise OptionError(
            f"{place}: is of the stream '{stream}' that was created {extent.created}; the present one was created"
            f" {created}, and its sequences mean other messages"
        )
    for wanted in plan.sourcing.filters or (REST,):
        if extent.subjects and not any(is_subset(wanted, subject.encode()) for subject in extent.subjects):
            raise OptionError(
                f"{place}: holds only {', '.join(extent.subjects)}, and the rule selects"
                f" '{wanted.decode('utf-8', 'replace')}'"
            )
    if first < extent.begin and held_from < extent.begin:
        raise OptionError(
            f"{place}: begins at sequence {extent.begin}, and {first} to {extent.begin - 1} are wanted, which the"
            f" stream holds from {held_from} on: capture these, leave --capture out, or use --from {extent.begin}"
        )


async def _handled(plan: EntryPlan, request: BackfillRequest, streams: EntryStreams) -> int:
    """Return the source's sequence after which the backfill reads."""
    first = request.first
    handled = (await Resuming(plan if first is None else _beginning(plan, first)).position(streams)).resume_after
    if first is not None and first - 1 > handled and (await streams.newest(1)).copies:
        raise OptionError(
            f"--from {first}: stream '{plan.stream}' holds everything of '{plan.source.name}' up to sequence {handled},"
            f" so {handled + 1} to {first - 1} would be missing: leave --from out"
        )
    return handled


def _beginning(plan: EntryPlan, sequence: int) -> EntryPlan:
    return replace(plan, source=plan.source.model_copy(update={"opt_start_seq": sequence, "opt_start_time": None}))


def backfill(settings: Settings, request: BackfillRequest) -> list[EntrySummary]:
    """Put the history through a rule, and return one summary per source.

    Raises:
        ConfigError, OptionError: no such rule or source, a kind without a history, or a range or capture that does not
            fit the streams.
        PipelineError, BridgeError: the job cannot continue. Messages copied so far stay; the same command resumes after
            them.
    """
    rule = settings.rule_named(request.rule)
    if reason := kind_of(rule).no_history:
        raise OptionError(f"rule '{rule.name}' is of kind {rule.kind}: {reason}")
    assert isinstance(rule, CopyingRule)
    with ExitStack() as open_things:
        loop = open_things.enter_context(LoopThread())
        connections = loop.run(open_connections(settings, set(rule.connections)))
        open_things.callback(lambda: loop.run(close_connections(connections.values())))
        plans = loop.run(_entry_plans(rule, settings, connections, request))
        copies = [loop.run(_entry_copy(plan, rule, settings, connections, request)) for plan in plans]
        sources = [(connections[plan.source.connection], plan.source.name) for plan in plans]
        open_things.enter_context(loop.within(fenced(settings, rule, sources)))  # until everything is closed
        connecting = connected(settings.connections[rule.target_connection], client_name=settings.name, no_echo=True)
        target = open_things.enter_context(loop.within(connecting))
        return [_copied(copy, source, target, loop) for copy, (source, _) in zip(copies, sources, strict=True)]


def _copied(copy: HistoryCopy, source: Connection, target: Connection, loop: LoopThread) -> EntrySummary:
    began = time.monotonic()
    plan, first, last = copy.plan, copy.held + 1, copy.history.last
    summary = EntrySummary(plan.source.name, plan.stream, first, last, next_sequence=max(last + 1, first))
    if first > last:
        return summary
    name = f"backfill {plan.source.name} → {plan.stream}"
    with watched(None, name, total=last - first + 1) as progress:
        progress.kept = "what was copied stays: run the same command again"
        progress.enter("copying", count=lambda: max(copy.handed - first + 1, 0))
        run_here(loop, copy.run(source, target))
        progress.add(copy.read)
    counters = copy.counters
    summary.read, summary.copied, summary.already_there = copy.read, counters.copied, counters.already_there
    summary.unselected, summary.duplicates = counters.unselected, counters.duplicates
    summary.skipped, summary.out_of_order = counters.rejected, counters.out_of_order
    summary.seconds = time.monotonic() - began
    summary.rate = round(summary.copied / summary.seconds)
    return summary
