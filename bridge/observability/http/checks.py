"""The checks of a probe."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a probe.

    Attributes:
        name: what is checked.
        reason: why it fails; None if it does not.
        note: a remark on it.
    """

    name: str
    reason: str | None = None
    note: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it is as it should be."""
        return self.reason is None
