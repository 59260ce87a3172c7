"""Known divergences: removes from both sides what an outside process cannot know or do.

Theory of operation: a table of normalisers, by the id under which ``docs/known-divergences.md`` explains what they take
out. Each gets what is expected and what was seen, and gives both back without it. A verdict names the fewest that leave
nothing to explain. What no normaliser can express, a case may name itself; an id that has one explains no more than it.
"""

from __future__ import annotations

from nats_conformance.divergences.reconciling import NORMALISERS, reconciled

__all__ = ["NORMALISERS", "reconciled"]
