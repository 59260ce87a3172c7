"""What a probe looks at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a probe looks at.

    Attributes:
        name: what is looked at.
        reason: why it is not good; None when it is.
        note: what else there is to say of it.
    """

    name: str
    reason: str | None = None
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it is as it should be."""
        return self.reason is None
