"""What a rule tells of its work beside its counters: sizes, lag, latencies, the last progress and the last errors.

Runs tell it once per batch, never per message.
"""

from __future__ import annotations

__all__ = ["Measures"]


class Measures:
    """The measures of one rule."""
