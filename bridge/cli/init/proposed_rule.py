"""A rule that is proposed, and how rules come by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from nats_bridge.bridge.settings.base import MAX_NAME_LENGTH

__all__ = ["ProposedRule", "named"]


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """One rule.

    Attributes:
        data: the rule as a configuration holds it, with its keys in the order in which they are written.
        why: what it is there for, and what should be known; one line each, for the comment above it.
    """

    data: dict[str, Any]
    why: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The rule's name."""
        return str(self.data["name"])

    @property
    def kind(self) -> str:
        """The rule's kind."""
        return str(self.data["kind"])


def named(rule: ProposedRule, taken: Iterable[str]) -> ProposedRule:
    """The same rule, with a name that is none of those taken already, and that can be one at all."""
    used = set(taken)
    plain = re.sub(r"[^a-z0-9]+", "-", rule.name.lower()).strip("-") or rule.kind
    name, number = plain[:MAX_NAME_LENGTH], 1
    while name in used:
        number += 1
        ending = f"-{number}"
        name = plain[: MAX_NAME_LENGTH - len(ending)] + ending
    return replace(rule, data={**rule.data, "name": name})
