"""Known divergences: removes from both sides the differences that an outside process cannot avoid.

Theory of operation. A table contains normalisers by the id under which `docs/known-divergences.md` explains them. Each
gets the expectation and the observation, and returns both without its divergence. A verdict names the smallest set that
leaves no difference. A case may itself name a divergence that no normaliser can express; an id with a normaliser
explains no more than the normaliser removes.
"""

from nats_conformance.divergences.reconciling import NORMALISERS, reconciled

__all__ = ["NORMALISERS", "reconciled"]
