"""What a rule of kind native_copy needs."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.permissions.need import Need, api_subject, flow_control, listen, write
from nats_bridge.bridge.permissions.reading import existing
from nats_bridge.bridge.permissions.stream_facts import KnownStreams
from nats_bridge.bridge.settings import NativeCopyRule, Settings
from nats_bridge.transforms.dialect import Dialect

__all__ = ["native_copy_needs"]


def native_copy_needs(
    rule: NativeCopyRule, settings: Settings, dialect: Dialect, known: KnownStreams
) -> Iterator[Need]:
    """The needs of one rule; see `RuleKind.needs`."""
    name, source, leaf, prefix = rule.name, rule.source_connection, rule.leaf_connection, rule.prefix
    yield from existing(source, rule.stream, rule=name)
    for request in ("CONSUMER.CREATE", "CONSUMER.DELETE"):
        for subject in (api_subject(request, rule.stream), api_subject(request, rule.stream, ">")):
            if request == "CONSUMER.CREATE" or subject.endswith(">"):
                yield write(source, subject, "forwards the server's requests", rule=name)
    yield write(source, flow_control(rule.stream), "says that deliveries have arrived", rule=name)
    yield write(leaf, f"{prefix}.deliver.>", f"delivers messages of {rule.stream}", rule=name)
    yield write(leaf, "$JSC.R.>", "answers the server's requests", rule=name)
    yield listen(leaf, f"{prefix}.API.>", "receives the server's requests", rule=name)
    yield listen(leaf, f"{prefix}.fc.>", "receives that deliveries have arrived", rule=name)
