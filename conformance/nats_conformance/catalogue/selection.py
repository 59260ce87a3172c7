"""Choosing cases: by id and by level."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from nats_conformance.catalogue.case import Case, Level
from nats_conformance.errors import CatalogueError

_ORDER = (Level.MUST, Level.SHOULD, Level.OBSERVED)


def select(
    cases: Sequence[Case], patterns: Sequence[str] = (), level: Level = Level.OBSERVED, skipped: Sequence[str] = ()
) -> tuple[Case, ...]:
    """Return the cases whose id matches a pattern and none of `skipped`, at this level or a more binding one.

    A pattern is an id (`adr28/headers/order/1`), the beginning of some (`adr28/headers`), or contains `*`
    (`*/order/*`). No pattern means every case.

    Raises:
        CatalogueError: a pattern is true of no case.
    """
    ids = [case.id for case in cases]
    wanted = (_meant("--select", patterns, ids) if patterns else set(ids)) - _meant("--skip", skipped, ids)
    levels = _ORDER[: _ORDER.index(level) + 1]
    return tuple(case for case in cases if case.id in wanted and case.level in levels)


def _meant(option: str, patterns: Sequence[str], ids: Sequence[str]) -> set[str]:
    wanted: set[str] = set()
    for pattern in patterns:
        found = {each for each in ids if is_meant(pattern, each)}
        if not found:
            close = get_close_matches(pattern, ids, n=1, cutoff=0.5)
            hint = f"; did you mean '{close[0]}'?" if close else "; `nats-conform list` shows them"
            raise CatalogueError(f"{option} {pattern}: no case has such an id{hint}")
        wanted |= found
    return wanted


def is_meant(pattern: str, case_id: str) -> bool:
    """Return whether a pattern, as `select` describes it, means a case."""
    return fnmatchcase(case_id, pattern) or case_id.startswith(pattern.rstrip("/") + "/")
