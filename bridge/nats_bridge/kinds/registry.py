"""The kinds of rules: a new one is a package next to this module and a line here."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from nats_bridge.kinds.kind import RuleKind

if TYPE_CHECKING:
    from nats_bridge.settings import Rule


# The packages as text: a sidecar loads the kinds that its configuration has.
KINDS: Final = MappingProxyType(
    {
        "republish": "republish",
        "sources": "copying",
        "mirror": "copying",
        "kv_sources": "copying",
        "subject_transform": "ingress",
        "advisories": "advisories",
        "watch": "watching",
    }
)
"""By the `kind` of a rule, the package whose module `kind` has its `KIND`."""


def kind_of(rule: Rule) -> RuleKind:
    """A rule's kind."""
    return kind_named(rule.kind)


def kind_named(name: str) -> RuleKind:
    """A kind by the `kind` of its rules.

    Raises:
        KeyError: there is none.
    """
    kind: RuleKind = import_module(f"{__package__}.{KINDS[name]}.kind").KIND
    return kind
