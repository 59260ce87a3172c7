"""The permissions of copying rules: sources, mirror, kv_sources."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.kinds.copying.acknowledging import durables
from nats_bridge.kinds.copying.entry_subjects import compiled_entry, destinations
from nats_bridge.kinds.copying.model import CopyingRule, KvSourcesRule, MirrorRule
from nats_bridge.kinds.copying.target import OTHERS_UNSEEN
from nats_bridge.permissions.need import Need, api_subject, flow_control, listen, stream_events, write
from nats_bridge.permissions.reading import durable_consumer, existing, passing_consumers, replays
from nats_bridge.permissions.stream_facts import KnownStreams
from nats_bridge.settings import Settings, Source
from nats_transforms.dialect import Dialect


def copying_needs(rule: CopyingRule, settings: Settings, dialect: Dialect, known: KnownStreams) -> Iterator[Need]:
    """Yield the needs of one rule; see `RuleKind.needs`."""
    stream, target = rule.target_stream, rule.target_connection
    stored: list[str] = []
    consumers = iter(durables(rule, settings.name))
    for source in rule.entries:
        compiled = compiled_entry(source, dialect, mirrors=isinstance(rule, MirrorRule))
        for pattern in destinations(compiled):
            stored.append(pattern.decode())
            yield write(target, stored[-1], f"stores copies in {stream}", computed=True)
        yield from existing(source.connection, source.name)
        yield write(
            source.connection,
            api_subject("STREAM.MSG.GET", source.name),
            f"checks whether {source.name} is still the same stream",
        )
        if source.acknowledge:
            yield from _acknowledging(source, next(consumers).name, known)
        else:
            yield from passing_consumers(source.connection, source.name)
    yield from existing(target, stream)
    if not (isinstance(rule, MirrorRule) and rule.keep_sequence):  # there the last number is the position
        yield from replays(target, stream)
    yield write(target, api_subject("STREAM.MSG.GET", stream), f"reads its position in {stream}")
    yield from stream_events(target, without="that is seen up to two seconds later")
    yield from _others(rule, stored, known)
    if isinstance(rule, MirrorRule) and rule.filler_subject is not None:
        yield write(target, rule.filler_subject, "fills numbers that the source lacks")
        yield write(target, api_subject("STREAM.PURGE", stream), "removes fillers")
    if rule.on_rejected.skip is not None:
        yield write(target, rule.on_rejected.skip, "publishes rejected messages")
        yield write(target, api_subject("STREAM.NAMES"), "checks whether a stream accepts rejected messages")


def _acknowledging(source: Source, consumer: str, known: KnownStreams) -> Iterator[Need]:
    """Yield the needs of reading through the entry's durable consumer."""
    connection, stream = source.connection, source.name
    facts = known.get((connection, stream))
    moved = facts is None or facts.retention != "workqueue"
    yield from durable_consumer(connection, stream, consumer, acknowledges=True, moved=moved)
    yield write(connection, flow_control(stream), "confirms deliveries (flow control)")
    yield write(
        connection,
        api_subject("CONSUMER.LIST", stream),
        "looks for consumers of entries that were edited",
        without="these consumers stay, and an edited entry does not begin where they are",
    )


def _others(rule: CopyingRule, stored: list[str], known: KnownStreams) -> Iterator[Need]:
    """Yield the needs of seeing messages that other clients write to the target."""
    if len(rule.entries) > 1 or rule.entries[0].acknowledge:
        return
    facts = known.get((rule.target_connection, rule.target_stream))
    if facts is not None and not facts.counts_copies:
        return
    if facts is not None:
        subjects, hint = list(facts.subjects), ""
    elif isinstance(rule, KvSourcesRule):
        subjects, hint = [f"$KV.{rule.bucket}.>"], ""
    else:
        subjects, hint = stored, f" (by the rule's subjects; --server reads those of {rule.target_stream})"
    for subject in subjects:
        yield listen(
            rule.target_connection,
            subject,
            f"checks whether others write to {rule.target_stream}{hint}",
            without=OTHERS_UNSEEN,
        )
