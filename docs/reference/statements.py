"""The page on the ADRs' normative statements, each with the cases that cover it."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from docs.reference.markdown import code, table
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.statements import Statement, read_statements

_HEAD: Final = """\
# Statements of the ADRs

This page is generated: `python -m docs.reference --write`.

Each normative statement of ADR-28, ADR-30 and ADR-36 has conformance cases, or a reason why it has none. The same holds
for the statements of ADR-57, ADR-59 and ADR-60 that concern sources and mirrors. To list the cases whose ids begin with
`adr28/headers`, run `nats-conform list adr28/headers`.
"""


def page() -> str:
    """The page's text."""
    ids = [case.id for case in read_catalogue()]
    statements = read_statements(ids)
    parts = [_HEAD, _summary(statements, ids)]
    for adr, of_adr in groupby(statements, lambda statement: statement.adr):
        parts.append(f"## {adr}\n")
        parts.append(table(("statement", "cases"), ((each.text, _evidence(each)) for each in of_adr)))
    parts.append("## Statements that an outside process cannot satisfy\n")
    parts += [f"- {each.adr}, “{each.text}”: {each.outside}" for each in statements if each.outside]
    return "\n".join(parts) + "\n"


def _summary(statements: tuple[Statement, ...], ids: list[str]) -> str:
    rows = []
    for adr, group in groupby(statements, lambda statement: statement.adr):
        of_adr = list(group)
        covered = [each for each in of_adr if each.cases]
        cases = sum(any(each.covers(case) for each in covered) for case in ids)
        rows.append((adr, str(len(of_adr)), str(len(covered)), str(len(of_adr) - len(covered)), str(cases)))
    head = ("document", "statements", "covered", "explained", "cases")
    return table(head, rows, frozenset({1, 2, 3, 4}))


def _evidence(statement: Statement) -> str:
    return ", ".join(map(code, statement.cases)) or f"None. {statement.untested}"
