"""Which versions are newer than a table of versions, and with which one each is compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nats_conformance.native_servers import InvalidVersionError
from nats_conformance.native_servers.versions import canonical, numbers


@dataclass(frozen=True, slots=True)
class Step:
    """A newer version, and the previous patch of its line; for a new minor line, the newest version before it."""

    previous: str
    version: str


def table_until(table: Iterable[str], start: str) -> list[str]:
    """A table that ends at a version: what of ``table`` is older, and the version."""
    return [*(each for each in table if _order(each) < _order(start)), start]


def releases(listed: Iterable[str]) -> list[str]:
    """The releases of a list; pre-releases and texts that are no versions are left out."""
    found = []
    for text in listed:
        try:
            version = canonical(text)
        except InvalidVersionError:
            continue
        if "-" not in version:
            found.append(version)
    return found


def newer(listed: Iterable[str], table: Iterable[str]) -> Iterator[Step]:
    """The versions of ``listed`` that are newer patches of a line of ``table``, or of a newer line; oldest first.

    Raises:
        InvalidVersionError: one of them is not a full version.
    """
    known = sorted(table, key=_order)
    for version in sorted({canonical(each) for each in listed}, key=_order):
        line = [each for each in known if numbers(each)[:2] == numbers(version)[:2]]
        previous = (line or known)[-1]
        if _order(version) > _order(previous):
            yield Step(previous, version)
            known = sorted([*known, version], key=_order)


def _order(version: str) -> tuple[object, ...]:
    """Pre-releases come before their release, ``RC.2`` before ``RC.10``."""
    release, _, rest = canonical(version).partition("-")
    parts = [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"[.-]", rest)]
    return numbers(release), not rest, parts
