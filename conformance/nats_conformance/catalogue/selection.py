"""Choosing cases: by id and by level."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from nats_conformance.catalogue.case import Case, Level
from nats_conformance.errors import CatalogueError

_ORDER = (Level.MUST, Level.SHOULD, Level.OBSERVED)


def select(cases: Sequence[Case], patterns: Sequence[str] = (), level: Level = Level.OBSERVED) -> tuple[Case, ...]:
    """Return the cases whose id matches a pattern, at this level or a more binding one.

    A pattern is an id (`adr28/headers/order/1`), the beginning of some (`adr28/headers`), or contains `*`
    (`*/order/*`). No pattern means every case.

    Raises:
        CatalogueError: a pattern is true of no case.
    """
    wanted: set[str] = set()
    for pattern in patterns:
        found = {case.id for case in cases if is_meant(pattern, case.id)}
        if not found:
            close = get_close_matches(pattern, [case.id for case in cases], n=1, cutoff=0.5)
            hint = f"; did you mean '{close[0]}'?" if close else "; `nats-conform list` shows them"
            raise CatalogueError(f"--select {pattern}: no case has such an id{hint}")
        wanted |= found
    levels = _ORDER[: _ORDER.index(level) + 1]
    return tuple(case for case in cases if (not patterns or case.id in wanted) and case.level in levels)


def is_meant(pattern: str, case_id: str) -> bool:
    """Return whether a pattern, as `select` describes it, means a case."""
    return fnmatchcase(case_id, pattern) or case_id.startswith(pattern.rstrip("/") + "/")
