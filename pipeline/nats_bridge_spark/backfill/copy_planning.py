"""Plans a backfill of a copying rule on the driver: what to read and write, given what the target holds.

It checks as a start of the sidecar does, with the same code: what must not run is refused here, the target shows where
an entry resumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nats_bridge.client.connection import Connection
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.entry_plan import EntryPlan
from nats_bridge.kinds.copying.model import CopyingRule, KvSourcesRule
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams
from nats_bridge.kinds.copying.position.last_sequence_probe import last_sequence_behind
from nats_bridge.kinds.copying.position.resuming import Resuming
from nats_bridge.kinds.copying.reading.filter_choice import consumer_filters
from nats_bridge.kinds.copying.run import CopyRun
from nats_bridge.kinds.copying.target import Target
from nats_bridge.rules.context import RuleContext
from nats_bridge.settings import Settings, Source
from nats_bridge_spark.backfill.copy_task import CopyTask
from nats_bridge_spark.backfill.fence import refuse_running
from nats_bridge_spark.backfill.planned import Planned
from nats_bridge_spark.backfill.request import BackfillRequest
from nats_bridge_spark.errors import OptionError


async def entry_plans(
    rule: CopyingRule, settings: Settings, connections: Mapping[str, Connection], request: BackfillRequest
) -> list[EntryPlan]:
    """The selected entries, checked as at a start of the sidecar.

    Raises:
        OptionError: the rule has no such source.
        BridgeError: what must not run, a stream that is not there, a server that cannot be asked.
    """
    dialect = settings.dialect_of(rule)
    run = CopyRun(rule, settings, connections, RuleContext(settings.name, dialect, lambda _: None))
    names = [name_of(rule, entry) for entry in rule.entries]
    for wanted in request.sources:
        if wanted not in names:
            raise OptionError(f"--source {wanted}: rule '{rule.name}' has no such source; it has {', '.join(names)}")
    await run.check()
    chosen = [plan for plan, name in zip(run.plans, names, strict=True) if name in (request.sources or names)]
    for plan in chosen:
        if plan.source.rename_objects:
            raise RuleRefusedError(
                f"rule '{rule.name}': a backfill does not rename objects in metadata: let the sidecar copy"
                f" '{plan.source.name}'"
            )
        if plan.durable:
            raise RuleRefusedError(
                f"rule '{rule.name}': a backfill acknowledges nothing: let the sidecar copy '{plan.source.name}'"
            )
        source_connection = connections[plan.source.connection]
        await refuse_running(source_connection, plan.source.name, plan.owner, rule.name)
    return chosen


def name_of(rule: CopyingRule, entry: Source) -> str:
    """The name of an entry for `--source`: its stream's or bucket's."""
    return entry.name.removeprefix("KV_") if isinstance(rule, KvSourcesRule) else entry.name


async def entry_backfill(
    plan: EntryPlan,
    rule: CopyingRule,
    settings: Settings,
    connections: Mapping[str, Connection],
    request: BackfillRequest,
) -> Planned:
    """Find out what one entry's target lacks.

    Args:
        plan: the entry.
        rule: its rule.
        settings: the configuration.
        connections: the open connections by name.
        request: what is wanted of it.

    Raises:
        OptionError: the range does not fit to what the target holds.
        BridgeError: a server cannot be asked; the source is a new stream and the rule is to stop then.
    """
    source_connection, target = connections[plan.source.connection], connections[rule.target_connection]
    source_info = await source_connection.api.stream_info(plan.source.name)
    target_info = await target.api.stream_info(plan.stream)
    subjects = await consumer_filters(source_connection.api, source_info, plan.filters)
    streams = EntryStreams(
        plan.sourcing,
        Replay(source_connection.api, plan.source.name, subjects, headers_only=True),
        source_info,
        target.api,
        target_info,
        Target.of(target_info, target.server_version),
        await last_sequence_behind(target, plan.stream, plan.probe),
        plan.rule,
    )
    first = 1 + await _handled(plan, request, streams)
    last = streams.source_last
    if request.last is not None:
        last = min(last, request.last)
    # A retried task must not begin anywhere else, whatever has been written to the target since.
    source = plan.source.model_copy(update={"opt_start_seq": first, "opt_start_time": None})
    task = CopyTask(
        plan=replace(plan, source=source, filters=subjects),
        source_connection=settings.connections[plan.source.connection],
        target=settings.connections[rule.target_connection],
        client=settings.name,
        known=KnownStream.of(source_info),
        first=first,
        patience=request.patience,
    )
    return Planned(
        source=plan.source.name,
        target=plan.stream,
        connection=task.source_connection,
        created=streams.created,
        held_from=int(source_info["state"]["first_seq"]),
        bounds=Bounds.of(source_info),
        first=first,
        last=last,
        task=task,
        record_of=plan.sourcing.own_record,
        subjects=subjects,
        filters=plan.sourcing.filters,
    )


async def _handled(plan: EntryPlan, request: BackfillRequest, streams: EntryStreams) -> int:
    """The source's sequence up to which nothing is to be read."""
    wanted = request.first - 1 if request.first is not None else None
    begun = plan
    if wanted is not None:
        source = plan.source.model_copy(update={"opt_start_seq": wanted + 1, "opt_start_time": None})
        begun = replace(plan, source=source)
    resuming = Resuming(begun)
    position = resuming.keep_sequence_position if plan.keep_sequence else resuming.position
    handled = (await position(streams)).handled
    if wanted is not None and wanted > handled:
        tail = await streams.newest(1)
        if tail.copies:
            raise OptionError(
                f"--from {wanted + 1}: stream '{plan.stream}' holds everything of '{plan.source.name}' up to"
                f" sequence {handled}, so {handled + 1} to {wanted} would be missing: leave --from out"
            )
    return handled
