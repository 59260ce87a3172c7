"""Which rule is on which worker. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from bridge.settings import Settings

__all__ = ["share_of", "share_out"]


def share_out(rules: Iterable[str], workers: int, before: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """The worker of every rule, from 1 on.

    A rule that had a worker keeps it; any other goes where the fewest are, the lowest number first. So a worker may
    be left without rules, and nothing moves for that.

    Args:
        rules: their names, in the order of the configuration.
        workers: how many there may be.
        before: the workers that rules have.
    """
    names = list(rules)
    found = {name: before[name] for name in names if name in before}
    load = Counter(found.values())
    for name in names:
        if name not in found:
            found[name] = min(range(1, workers + 1), key=lambda worker: (load[worker], worker))
            load[found[name]] += 1
    return {name: found[name] for name in names}


def share_of(settings: Settings, shares: Mapping[str, int], worker: int) -> Settings:
    """The configuration as one worker gets it: its own rules only, and nothing that listens."""
    return settings.model_copy(
        update={
            "rules": tuple(rule for rule in settings.rules if shares[rule.name] == worker),
            "http": settings.http.model_copy(update={"listen": ""}),
        }
    )
