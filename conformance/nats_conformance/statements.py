"""Traces the ADRs to the catalogue: which cases cover each normative statement.

The statements are data (`statements.yaml`), so that a reader can correct them without code. `read_statements` refuses a
statement that names no case and gives no reason, and a name that no case has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from nats_conformance.catalogue.selection import is_meant
from nats_conformance.errors import CatalogueError

STATEMENTS: Final = Path(__file__).with_name("statements.yaml")


@dataclass(frozen=True, slots=True)
class Statement:
    """A normative statement of an ADR.

    Attributes:
        adr: the document, such as `ADR-28`.
        text: the statement, quoted.
        cases: ids of cases that cover it, or patterns as in `select`; empty if it is `untested`.
        untested: the reason why no case covers it; empty if a case does.
        outside: the reason why a process next to the server cannot satisfy it; empty if it can.
    """

    adr: str
    text: str
    cases: tuple[str, ...] = ()
    untested: str = ""
    outside: str = ""

    def covers(self, case: str) -> bool:
        """Return whether one of `cases` means the case with the id `case`."""
        return any(is_meant(pattern, case) for pattern in self.cases)


def read_statements(ids: Iterable[str], file: Path = STATEMENTS) -> tuple[Statement, ...]:
    """Read the statements in the order of the file.

    Args:
        ids: the ids of the catalogue's cases.
        file: the statements, as YAML.

    Raises:
        CatalogueError: a statement has neither cases nor a reason, has both, or names a case that does not exist.
    """
    known = tuple(ids)
    return tuple(
        _statement(document["adr"], entry, known, file)
        for document in yaml.safe_load(file.read_text(encoding="utf-8"))
        for entry in document["statements"]
    )


def _statement(adr: str, entry: Mapping[str, Any], ids: tuple[str, ...], file: Path) -> Statement:
    place = f"{file.name}: {adr}: '{entry.get('text')}'"
    if unknown := entry.keys() - {"text", "cases", "untested", "outside"}:
        raise CatalogueError(f"{place}: unknown key {', '.join(sorted(unknown))}")
    statement = Statement(adr, **(dict(entry) | {"cases": tuple(entry.get("cases", ()))}))
    if bool(statement.cases) == bool(statement.untested):
        raise CatalogueError(f"{place}: needs either cases, or untested with the reason")
    for pattern in statement.cases:
        if not any(is_meant(pattern, case) for case in ids):
            raise CatalogueError(f"{place}: no case is '{pattern}', or begins with '{pattern}/'")
    return statement
