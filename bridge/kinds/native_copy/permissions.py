"""The permissions of a rule of kind native_copy."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.client.permission_violations import refused_publication, refused_subscription
from nats_bridge.bridge.permissions.need import Need, api_subject, flow_control, listen, write
from nats_bridge.bridge.permissions.reading import existing
from nats_bridge.bridge.permissions.stream_facts import KnownStreams
from nats_bridge.bridge.settings import NativeCopyRule, Settings
from nats_bridge.transforms.dialect import Dialect

_INBOXES = "$JSC.R."  # of servers that ask


def native_copy_needs(
    rule: NativeCopyRule, settings: Settings, dialect: Dialect, known: KnownStreams
) -> Iterator[Need]:
    """The needs of one rule; see `RuleKind.needs`."""
    source, leaf, prefix = rule.source_connection, rule.leaf_connection, rule.prefix
    yield from existing(source, rule.stream)
    for request, *below in (("CONSUMER.CREATE",), ("CONSUMER.CREATE", ">"), ("CONSUMER.DELETE", ">")):
        yield write(source, api_subject(request, rule.stream, *below), "forwards the server's requests")
    yield write(source, flow_control(rule.stream), "says that deliveries have arrived")
    yield write(leaf, f"{prefix}.deliver.>", f"delivers messages of {rule.stream}")
    yield write(leaf, f"{_INBOXES}>", "answers the server's requests")
    yield listen(leaf, f"{prefix}.API.>", "receives the server's requests")
    yield listen(leaf, f"{prefix}.fc.>", "receives that deliveries have arrived")


def concerns_leaf(text: str, prefix: str) -> bool:
    """Whether a permissions violation is of what a rule needs on its leaf connection.

    A client that asks through the prefix has an inbox of its own: that it gets no answer is no failure of the rule.

    Args:
        text: the server's words.
        prefix: the rule's.
    """
    refused = refused_publication(text) or refused_subscription(text)
    needed = (f"{prefix}.deliver.", f"{prefix}.API.", f"{prefix}.fc.", _INBOXES)
    return refused.startswith(tuple(each.lower().encode() for each in needed))
