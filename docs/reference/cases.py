"""The page on the conformance suite's cases: how many there are about what."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from docs.reference.markdown import code, table
from nats_conformance.catalogue.case import Case, Level
from nats_conformance.catalogue.reading import read_catalogue

_HEAD: Final = """\
# Cases of the conformance suite

This page is generated: `python -m docs.reference --write`.

What the suite asks, by the beginning of the cases' ids; the title of one case stands for the others.
`nats-conform list adr28/headers` lists the cases of a row with their titles, and
`nats-conform run --select adr28/headers` plays them. A case is `must` where a document says so, `should` where it
recommends it, `observed` where no document says it and servers do it.
"""
_ROOMS: Final = {
    "adr28": "ADR-28: republish",
    "adr30": "ADR-30: subject transforms",
    "adr36": "ADR-36: transforms in streams, sources, mirrors",
    "adr43": "ADR-43: message TTLs, delete markers",
    "adr48": "ADR-48: limit markers of buckets",
    "adr49": "ADR-49: counters",
    "adr50": "ADR-50: atomic and fast batches",
    "adr51": "ADR-51: schedules",
    "adr60": "ADR-60: sources of work queues",
    "native": "What servers do and the ADRs do not say",
}


def page() -> str:
    """The page's text."""
    rooms: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in read_catalogue():
        room, topic, *_ = case.id.split("/")
        rooms[room][f"{room}/{topic}"].append(case)
    if set(rooms) != set(_ROOMS):
        raise ValueError(f"docs/reference/cases.py has no heading for one of {', '.join(sorted(rooms))}")
    parts = [_HEAD]
    for room, heading in _ROOMS.items():
        parts.append(f"## {heading}\n")
        rows = [
            (code(topic), *(_count(cases, level) for level in Level), cases[0].title)
            for topic, cases in sorted(rooms[room].items())
        ]
        parts.append(table(("cases", *(level.value for level in Level), "such as"), rows, frozenset({1, 2, 3})))
    return "\n".join(parts)


def _count(cases: list[Case], level: Level) -> str:
    return str(sum(case.level is level for case in cases) or "-")
