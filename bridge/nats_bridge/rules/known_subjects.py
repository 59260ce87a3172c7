"""Caches what an encoder knows about subjects, in two generations that are bounded by memory.

When the young generation is full, it becomes the old one, and what was in that and was not seen again is forgotten. So
nothing is ever cleared whole, and a subject that is seen often costs one look into a dict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

_MOST_BYTES = 20 << 20
_ENTRY_BYTES = 160
"""An entry with its share of the dict; its subject and what is known of it come on top."""

_Known = TypeVar("_Known")


class KnownSubjects(Generic[_Known]):
    """The known subjects.

    Args:
        find: finds it for a subject that is seen for the first time, or again after a long time.
        kept: whether it is the same each time, and need not be found again.
        most: how many bytes the entries of a generation may take.

    Attributes:
        young: the young generation; always the same dict, so that a loop looks there itself.
    """

    def __init__(self, find: Callable[[bytes], _Known], *, kept: bool = True, most: int = _MOST_BYTES) -> None:
        self.young: dict[bytes, _Known] = {}
        self._find = find
        self._kept = kept
        self._old: dict[bytes, _Known] = {}
        self._most = self._room = most

    def enter(self, subject: bytes) -> _Known:
        """Return the entry of a subject outside the young generation; move it there, where it is kept."""
        if not self._kept:
            return self._find(subject)
        old = self._old
        found = old.pop(subject) if subject in old else self._find(subject)
        self._room -= _ENTRY_BYTES + 2 * len(subject)
        if self._room <= 0:
            self._old, self._room = self.young.copy(), self._most
            self.young.clear()
        self.young[subject] = found
        return found
