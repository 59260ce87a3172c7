"""The permissions of an advisories rule."""

from collections.abc import Iterator

from nats_bridge.consuming.consumer_plan import durable_name
from nats_bridge.kinds.advisories.check import compile_advisories
from nats_bridge.kinds.advisories.model import AdvisoriesRule
from nats_bridge.permissions.need import ANY_STREAM, Need, api_subject, listen, stream_events, write
from nats_bridge.permissions.reading import existing
from nats_bridge.rules.context import queue_group
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect
from nats_transforms.subject import ANY, REST

_UNCONFIRMED = "what a stream takes of it is not confirmed"
_STREAM_TOKEN = 5  # in $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.<stream>.<consumer>


def advisories_needs(rule: AdvisoriesRule, settings: Settings, dialect: Dialect) -> Iterator[Need]:
    """Yield the needs of one rule; see `RuleKind.needs`."""
    leased = settings.leadership is not None  # only the holder of the rule's lease listens, without a queue group
    source, target = rule.source_connection, rule.target_connection
    transform = compile_advisories(rule, dialect).transform
    yield write(target, transform.covering.decode(), "publishes", computed=True)
    source_subject = rule.republish.src if leased else f"{rule.republish.src} {queue_group(rule.name)}"
    if rule.captured_by:
        durable = durable_name(settings.name, rule.name)
        yield from existing(source, rule.captured_by)
        for request, why in (
            ("CONSUMER.DURABLE.CREATE", "keeps its position"),
            ("CONSUMER.INFO", "reads its position"),
            ("CONSUMER.MSG.NEXT", "requests advisories"),
        ):
            yield write(source, api_subject(request, rule.captured_by, durable), why)
        yield write(source, f"$JS.ACK.{rule.captured_by}.{durable}.>", "moves its position")
    else:
        yield listen(source, source_subject, "receives advisories")
    for stream in rule.copies_in:
        yield from existing(source, stream)
        yield write(source, api_subject("STREAM.MSG.GET", stream), "reads copies of messages")
    # The streams that store the rule's messages can change at any time, so none is named.
    yield write(target, api_subject("STREAM.NAMES"), "finds streams that take it", without=_UNCONFIRMED)
    for connection in dict.fromkeys((target, source)):
        yield write(
            connection,
            api_subject("STREAM.INFO", ANY_STREAM),
            "finds streams that take it",
            without=_UNCONFIRMED,
        )
    yield from stream_events(target, without="streams that come later do not confirm what they take")
    if rule.attach_message:
        stream = _advised_stream(rule.republish.src)
        yield write(source, api_subject("STREAM.MSG.GET", stream), "reads the message")
        yield write(
            source,
            api_subject("DIRECT.GET", stream),
            "reads a subject that is not UTF-8",
            without="such a subject is not exact in the headers",
        )


def _advised_stream(pattern: str) -> str:
    """Return the stream that all advisories under a pattern are about, or any."""
    tokens = pattern.split(".")
    wild = {ANY.decode(), REST.decode()}
    if len(tokens) <= _STREAM_TOKEN or tokens[3] != "CONSUMER" or tokens[_STREAM_TOKEN] in wild:
        return ANY_STREAM
    return tokens[_STREAM_TOKEN] if not wild & set(tokens[:_STREAM_TOKEN]) else ANY_STREAM
