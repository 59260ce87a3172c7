"""The permissions of a republish rule."""

from collections.abc import Iterator

from nats_bridge.client.audit_advisories import AUDIT_SUBJECT
from nats_bridge.consuming.consumer_plan import durable_name
from nats_bridge.kinds.republish.compiled import compile_rule
from nats_bridge.kinds.republish.model import RepublishRule
from nats_bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS
from nats_bridge.permissions.need import Need, api_subject, listen, write
from nats_bridge.permissions.reading import durable_consumer, existing, passing_consumers, replays
from nats_bridge.permissions.stream_facts import KnownStreams
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect


def republish_needs(rule: RepublishRule, settings: Settings, dialect: Dialect, known: KnownStreams) -> Iterator[Need]:
    """Yield the needs of one rule; see `RuleKind.needs`."""
    stream, source, target = rule.stream, rule.source_connection, rule.target_connection
    yield write(target, compile_rule(rule, dialect).transform.covering.decode(), "publishes", computed=True)
    yield from existing(source, stream)
    yield write(source, api_subject("STREAM.MSG.GET", stream), "finds predecessors on a subject")
    if rule.durable:
        yield from replays(source, stream)
        consumer, acknowledges = durable_name(settings.name, rule.name), rule.delivery == "at_least_once"
        yield from durable_consumer(source, stream, consumer, acknowledges=acknowledges)
    else:
        yield from passing_consumers(source, stream)
    yield listen(
        source,
        AUDIT_SUBJECT,
        "receives advisories about deletes and purges",
        without="Nats-Last-Sequence may name messages that were deleted",
    )
    yield from _watching(rule, known)
    if target != source:
        yield write(
            target,
            api_subject("STREAM.INFO", stream),
            "sees whether the target's account is the stream's own",
            without="that is found out by a message between the two connections",
        )


def _watching(rule: RepublishRule, known: KnownStreams) -> Iterator[Need]:
    """Yield the permissions for work-queue and interest streams: to see other consumers."""
    source, stream = rule.source_connection, rule.stream
    facts = known.get((source, stream))
    if facts is None:
        without = "such a stream is not followed (one with limits retention does not need it)"
    elif facts.retention in CONSUMER_RETENTIONS:
        without = ""
    else:
        return
    yield write(
        source,
        api_subject("CONSUMER.LIST", stream),
        f"sees whether others consume {stream}, if it is a work-queue or interest stream",
        without=without,
    )
    if not rule.durable:
        yield listen(
            source,
            f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{stream}.*",
            f"learns that a consumer of {stream} was deleted, if it is a work-queue or interest stream",
            without="side effects of watching such a stream that begin later are not noticed",
        )
