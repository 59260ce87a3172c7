"""A run in the form that services read which draw badges."""

from __future__ import annotations

from collections.abc import Mapping

from nats_bridge.conformance.outcome import Outcome

__all__ = ["badge"]


def badge(counts: Mapping[str, int], *, is_passed: bool) -> dict[str, object]:
    """How many cases of those played are good; ``counts`` are by the outcomes' names."""
    played = [each for each in Outcome if each not in (Outcome.SKIPPED, Outcome.INAPPLICABLE)]
    good = sum(counts[each.value] for each in played if each.is_good)
    bad = sum(counts[each.value] for each in played if not each.is_good)
    colour = "brightgreen" if is_passed else "red" if bad else "lightgrey"
    return {"schemaVersion": 1, "label": "NATS conformance", "message": f"{good} of {good + bad}", "color": colour}
