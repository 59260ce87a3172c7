"""The page on the ADRs' normative statements, each with the cases that cover it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from docs.reference.markdown import code, items, table
from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.statements import Statement, read_statements

_HEAD: Final = """\
# Coverage of the ADRs

The conformance suite covers ADR-28, ADR-30 and ADR-36, and the statements of ADR-57, ADR-59 and ADR-60 about sources
and mirrors. `conformance/STATEMENTS.md` lists every normative statement with its cases, or the reason why it has none.
The statements that no outside process can satisfy have a separate list there. `nats-conform list adr28/headers` lists
the cases whose ids begin with `adr28/headers`.
"""
_LIST_HEAD: Final = """\
# Statements of the ADRs

This file is generated: `python -m docs.reference --write`. It has each normative statement with the ids of the cases
that cover it, or with the reason why no case does.
"""


def page() -> str:
    """The page's text: how many statements are covered, and by how many cases."""
    cases = read_catalogue()
    statements = read_statements([case.id for case in cases])
    return "\n".join((_HEAD, _summary(statements, cases)))


def whole_list() -> str:
    """The text of the list of all statements with their cases."""
    statements = read_statements([case.id for case in read_catalogue()])
    parts = [_LIST_HEAD, "## Statements that an outside process cannot satisfy\n"]
    parts.append(items((f"{each.adr}, “{each.text}”", each.outside) for each in statements if each.outside))
    for adr, of_adr in groupby(statements, lambda statement: statement.adr):
        parts.append(f"## {adr}\n")
        parts.append(table(("statement", "cases"), ((each.text, _evidence(each)) for each in of_adr)))
    return "\n".join(parts)


def _summary(statements: tuple[Statement, ...], cases: Sequence[Case]) -> str:
    rows = []
    for adr, group in groupby(statements, lambda statement: statement.adr):
        of_adr = list(group)
        covered = [each for each in of_adr if each.cases]
        playing = sum(any(each.covers(case.id) for each in covered) for case in cases)
        rows.append((adr, f"{len(covered)} of {len(of_adr)}", str(playing)))
    return table(("document", "statements with cases", "cases"), rows, frozenset({1, 2}))


def _evidence(statement: Statement) -> str:
    return ", ".join(map(code, statement.cases)) or f"None. {statement.untested}"
