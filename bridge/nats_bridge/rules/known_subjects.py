"""Caches facts about subjects for an encoder, in two generations bounded by memory.

When the young generation is full, it becomes the old one. Entries of the previous old one that were not used again are
forgotten. So the cache is never cleared at once, and a frequent subject costs one dict look-up.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

_MOST_BYTES = 20 << 20
_ENTRY_BYTES = 160
"""Size of an entry with its share of the dict, without its subject and facts."""

_Known = TypeVar("_Known")


class KnownSubjects(Generic[_Known]):
    """The known subjects.

    Args:
        find: returns the facts about a subject that is not cached.
        kept: whether it is the same each time, and need not be found again.
        most: the size limit for the entries of a generation.

    Attributes:
        young: the young generation; always the same dict, so that a loop can use it directly.
    """

    def __init__(self, find: Callable[[bytes], _Known], *, kept: bool = True, most: int = _MOST_BYTES) -> None:
        self.young: dict[bytes, _Known] = {}
        self._find = find
        self._kept = kept
        self._old: dict[bytes, _Known] = {}
        self._most = self._room = most

    def enter(self, subject: bytes) -> _Known:
        """Return the entry of a subject outside the young generation, and move it there if entries are kept."""
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
