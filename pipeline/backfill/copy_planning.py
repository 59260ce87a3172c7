"""From a copying rule and what its target holds to what is to be read and written: the driver's part.

It looks as a start of the sidecar does, with the same code: what must not run is refused here, and where an entry goes
on is what the target tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace

from bridge.connection import Link
from bridge.copying.barrier import last_sequence_behind
from bridge.copying.copy_run import CopyRun
from bridge.copying.entry_plan import EntryPlan
from bridge.copying.message_ids import entry_key
from bridge.copying.resuming import Resuming
from bridge.copying.selection import consumer_filters
from bridge.copying.target import Target
from bridge.copying.target_tail import read_tail
from bridge.handoff.running import copying_consumer
from bridge.jetstream_api import Json
from bridge.rule_consumer import TAKEOVER
from bridge.rule_context import RuleContext
from bridge.settings import CopyingRule, KvSourcesRule, MirrorRule, Settings, Source, SourcesRule
from pipeline.backfill.copy_task import CopyTask
from pipeline.backfill.request import Request
from pipeline.errors import OptionError, PipelineError

__all__ = ["EntryBackfill", "entry_backfill", "entry_plans"]

_POLL = 0.1  # seconds between two looks at a consumer


@dataclass(frozen=True, slots=True)
class EntryBackfill:
    """One entry's history, as far as the target lacks it.

    Attributes:
        task: what is done with the rows.
        source: the entry as configured.
        first: the sequence of the origin at which the target lacks something.
        last: the last sequence wanted; the origin's last, if nothing else is.
        subjects: what to ask the origin's server for; none for everything.
        key: what stands for the entry in message ids.
        target: the stream that receives.
    """

    task: CopyTask
    source: Source
    first: int
    last: int
    subjects: tuple[str, ...]
    key: bytes
    target: Target

    @property
    def plan(self) -> EntryPlan:
        """What the entry does."""
        return self.task.plan

    @property
    def messages(self) -> int:
        """How many sequences are to be read."""
        return max(self.last - self.first + 1, 0)


async def entry_plans(
    rule: SourcesRule | MirrorRule | KvSourcesRule, settings: Settings, links: Mapping[str, Link], request: Request
) -> list[EntryPlan]:
    """The entries that are meant, checked as a start of the sidecar checks them.

    Raises:
        OptionError: the rule has no such source.
        BridgeError: what must not run, a stream that is not there, a server that cannot be asked.
    """
    dialect = settings.dialect_of(rule)
    run = CopyRun(rule, links, _never, RuleContext(settings.name, dialect, lambda _: None))
    names = [name_of(rule, entry) for entry in rule.entries]
    for wanted in request.sources:
        if wanted not in names:
            raise OptionError(f"--source {wanted}: rule '{rule.name}' has no such source; it has {', '.join(names)}")
    await run.check()
    chosen = [plan for plan, name in zip(run.plans, names, strict=True) if name in (request.sources or names)]
    for plan in chosen:
        origin = links[plan.source.connection]
        consumer = await copying_consumer(origin, plan.source.name, plan.owner)
        deadline = asyncio.get_running_loop().time() + TAKEOVER
        while consumer is not None and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL)  # of a process that was killed, which the server notices in a moment
            consumer = await copying_consumer(origin, plan.source.name, plan.owner)
        if consumer is not None:
            raise PipelineError(
                f"rule '{rule.name}': it is at work: consumer '{consumer}' of stream '{plan.source.name}' is read at"
                " this moment. Stop the sidecar (or the other backfill), and start it again afterwards"
            )
    return chosen


def name_of(rule: CopyingRule, entry: Source) -> str:
    """What `--source` calls an entry: its stream's name, or its bucket's."""
    return entry.name.removeprefix("KV_") if isinstance(rule, KvSourcesRule) else entry.name


async def entry_backfill(
    plan: EntryPlan, rule: CopyingRule, settings: Settings, links: Mapping[str, Link], request: Request
) -> EntryBackfill:
    """Find out what one entry's target lacks.

    Args:
        plan: the entry.
        rule: its rule.
        settings: the configuration.
        links: the open connections by name.
        request: what is wanted of it.

    Raises:
        OptionError: the range does not fit to what the target holds.
        BridgeError: a server cannot be asked; the origin is a new stream and the rule is to stop then.
    """
    origin, target = links[plan.source.connection], links[rule.target_connection]
    origin_info = await origin.api.stream_info(plan.source.name)
    target_info = await target.api.stream_info(plan.stream)
    created = str(origin_info["created"])
    key = entry_key(plan.sourcing, created)
    stream = Target.of(target_info, target.server_version)
    subjects = await consumer_filters(origin.api, origin_info, plan.filters)
    if request.dry_run:
        target_last = int(target_info["state"]["last_seq"])
    else:
        target_last = await last_sequence_behind(target, plan.stream, plan.probe)
    first = 1 + await _handled(plan, request, (origin, target), (origin_info, target_info), (key, stream), target_last)
    last = int(origin_info["state"]["last_seq"])
    if request.last is not None:
        last = min(last, request.last)
    # A retried task must not begin anywhere else, whatever has been written to the target meanwhile.
    source = plan.source.model_copy(update={"opt_start_seq": first, "opt_start_time": None})
    task = CopyTask(
        plan=replace(plan, source=source, filters=subjects),
        origin=settings.connections[plan.source.connection],
        target=settings.connections[rule.target_connection],
        skip=rule.on_rejected.skip,
        client=settings.name,
        created=created,
        first=first,
        patience=request.patience,
    )
    return EntryBackfill(task, plan.source, first, last, subjects, key, stream)


async def _handled(
    plan: EntryPlan,
    request: Request,
    links: tuple[Link, Link],
    infos: tuple[Json, Json],
    identity: tuple[bytes, Target],
    target_last: int,
) -> int:
    """The origin's sequence up to which nothing is to be read."""
    (origin, target), (origin_info, target_info), (key, stream) = links, infos, identity
    wanted = request.first - 1 if request.first is not None else None
    begun = plan
    if wanted is not None:
        source = plan.source.model_copy(update={"opt_start_seq": wanted + 1, "opt_start_time": None})
        begun = replace(plan, source=source)
    resuming = Resuming(begun, origin.api, target.api)
    if plan.keep_sequence:
        if request.dry_run:  # to ask the other way would purge fillers
            return max(target_last, (begun.source.opt_start_seq or 1) - 1)
        handled = (await resuming.kept_position(key, target_last, origin_info)).handled
    else:
        filters = await consumer_filters(origin.api, origin_info, plan.filters)
        handled = (await resuming.position(key, stream, target_last, target_info, origin_info, filters)).handled
    if wanted is not None and wanted > handled:
        tail = await read_tail(target.api, plan.stream, target_last, plan.sourcing.is_own, 1, rule=plan.rule)
        if tail.copies:
            raise OptionError(
                f"--from-sequence {wanted + 1}: stream '{plan.stream}' holds everything of '{plan.source.name}' up to"
                f" sequence {handled}, so {handled + 1} to {wanted} would be missing: leave --from-sequence out"
            )
    return handled


def _never() -> Awaitable[Link]:
    raise AssertionError("the rule is only looked at")
