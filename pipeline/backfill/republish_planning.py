"""Plans a backfill of a republish rule on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nats_bridge.bridge.errors import RuleRefusedError
from nats_bridge.bridge.replication import Connection, Target, last_sequence_behind
from nats_bridge.bridge.replication.rules import (
    RepublishRun,
    Retention,
    RuleContext,
    StreamLimits,
    common_subject,
    consumer_owner,
    durable_name,
)
from nats_bridge.bridge.settings import RepublishRule, Settings
from nats_bridge.pipeline.backfill.fence import refuse_running
from nats_bridge.pipeline.backfill.outcomes import RepublishOutcomes
from nats_bridge.pipeline.backfill.planned import Planned
from nats_bridge.pipeline.backfill.republish_task import RepublishTask, republished_position
from nats_bridge.pipeline.backfill.request import Request
from nats_bridge.pipeline.errors import OptionError
from nats_bridge.transforms.subject import is_subset
from nats_bridge.transforms.timestamp import nanoseconds_of


async def republish_backfill(
    rule: RepublishRule, settings: Settings, connections: Mapping[str, Connection], request: Request
) -> Planned:
    """Plan what to republish, and where it is stored.

    Raises:
        OptionError: no stream would store the results, or the range is the live rule's.
        BridgeError: what must not run, a stream that is not there, a server that cannot be asked.
    """
    source, target = connections[rule.source_connection], connections[rule.target_connection]
    run = RepublishRun(rule, source, target, RuleContext(settings.name, settings.dialect_of(rule), lambda _: None))
    await run.check()
    info = await source.api.stream_info(rule.stream)
    first = request.first or 1
    last = int(info["state"]["last_seq"])
    if request.last is not None:
        last = min(last, request.last)
    created = str(info["created"])
    outcomes = RepublishOutcomes(run.encoder(Retention(StreamLimits())), first, rule.republish.headers_only)
    planned = Planned(
        source=rule.stream,
        target="",
        connection=settings.connections[rule.source_connection],
        created=created,
        held_from=int(info["state"]["first_seq"]),
        first=first,
        last=last,
        outcomes=outcomes,
        task=None,
        record_of=lambda _: None,
        republished=True,
    )
    if request.to_parquet is not None:
        return planned
    await refuse_running(source, rule.stream, consumer_owner(settings.name, rule.name), rule.name)
    await _refuse_what_is_live(source, rule, settings.name, last if request.last is not None else None)
    pattern = run.republish.transform.covering
    captured_by, probe = await _captured_by(target, rule, pattern)
    task = RepublishTask(
        rule=rule.name,
        outcomes=outcomes,
        republish=run.republish,
        stream=rule.stream,
        captured_by=captured_by,
        probe=probe,
        source=settings.connections[rule.source_connection],
        target=settings.connections[rule.target_connection],
        created_ns=nanoseconds_of(created),
        last=last,
        client=settings.name,
        patience=request.patience,
    )
    stream = Target.of(await target.api.stream_info(captured_by), target.server_version)
    end = await last_sequence_behind(target, captured_by, probe)
    found = await republished_position(task, source, target, stream, end)
    return replace(
        planned,
        target=captured_by,
        first=max(first, found.handled + 1),
        task=task,
        record_of=task.record_of,
    )


async def _refuse_what_is_live(source: Connection, rule: RepublishRule, sidecar: str, last: int | None) -> None:
    """A rule that keeps a position resumes there, whatever its history is put through."""
    if not rule.durable:
        return
    info = await source.api.consumer_info(rule.stream, durable_name(sidecar, rule.name))
    if info is None:
        return
    position = int(info["delivered"]["stream_seq"])
    if last is None or last > position:
        raise OptionError(
            f"rule '{rule.name}': has begun already, and resumes after sequence {position} of '{rule.stream}': say"
            " --to-sequence with the last message before it began (or nats-bridge clean, and let it begin again behind"
            " the backfill)"
        )


async def _captured_by(target: Connection, rule: RepublishRule, pattern: bytes) -> tuple[str, bytes]:
    """The stream that stores everything on these subjects, and a subject for asking it."""
    shown = pattern.decode("utf-8", "replace")
    names = await target.api.stream_names(subject=shown)
    place = f"rule '{rule.name}'"
    if not names:
        raise OptionError(
            f"{place}: no stream stores '{shown}', so a history published there would surely be lost: create"
            " a stream with that subject, write files with --to-parquet, or let the sidecar do it: start: first"
        )
    info = await target.api.stream_info(names[0])
    config = info["config"]
    subjects = [subject.encode() for subject in config.get("subjects") or ()]
    if len(names) > 1 or not any(is_subset(pattern, subject) for subject in subjects):
        raise OptionError(
            f"{place}: no single stream stores all of '{shown}': {', '.join(sorted(names))} store parts of it; create"
            " one that does, or write files with --to-parquet"
        )
    for reason, wrong in (
        ("is sealed", bool(config.get("sealed"))),
        ("has no_ack, so it never reports what it has stored", bool(config.get("no_ack"))),
        (
            f"is a {config.get('retention')} stream, whose consumers take the results away",
            config.get("retention") != "limits",
        ),
    ):
        if wrong:
            raise RuleRefusedError(f"{place}: stream '{names[0]}', which stores '{shown}', {reason}")
    probe = common_subject([pattern], subjects)
    assert probe is not None
    return names[0], probe
