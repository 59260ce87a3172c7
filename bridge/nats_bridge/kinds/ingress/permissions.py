"""The permissions of a rule of kind subject_transform."""

from collections.abc import Iterator

from nats_bridge.kinds.ingress.check import compile_ingress
from nats_bridge.kinds.ingress.model import SubjectTransformRule
from nats_bridge.permissions.need import Need, api_subject, listen, stream_events, write
from nats_bridge.permissions.reading import existing
from nats_bridge.rules.context import queue_group
from nats_bridge.settings import Settings
from nats_transforms.dialect import Dialect


def ingress_needs(rule: SubjectTransformRule, settings: Settings, dialect: Dialect) -> Iterator[Need]:
    """Yield the needs of one rule; see `RuleKind.needs`."""
    leased = settings.leadership is not None  # only the holder of the rule's lease listens, without a queue group
    connection, transform = rule.source_connection, rule.subject_transform
    stored = compile_ingress(rule, dialect).covering.decode()
    yield write(connection, stored, f"passes on to stream {rule.stream}", computed=True)
    yield listen(
        connection,
        transform.src if leased else f"{transform.src} {queue_group(rule.name)}",
        "takes from publishers",
    )
    yield from existing(connection, rule.stream)
    yield write(connection, api_subject("STREAM.NAMES"), f"sees whether a stream takes {transform.src} already")
    yield from stream_events(connection, without="that is seen up to two seconds later")
