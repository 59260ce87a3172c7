"""The trace from the ADRs' statements to the cases is complete, in both directions."""

from pathlib import Path

import pytest

from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.errors import CatalogueError
from nats_conformance.statements import Statement, read_statements


def read() -> tuple[Statement, ...]:
    return read_statements([case.id for case in read_catalogue()])


def test_each_statement_has_cases_or_a_reason() -> None:
    statements = read()
    assert {statement.adr for statement in statements} == {f"ADR-{n}" for n in (28, 30, 36, 57, 59, 60)}
    assert len({(statement.adr, statement.text) for statement in statements}) == len(statements)


def test_each_quoting_case_belongs_to_a_statement() -> None:
    statements = read()
    traced = ("ADR-28", "ADR-30", "ADR-36", "ADR-60")
    quoting = [case.id for case in read_catalogue() if case.quote and case.clause.startswith(traced)]
    assert quoting
    assert [case for case in quoting if not any(statement.covers(case) for statement in statements)] == []


def test_a_beginning_ends_at_a_slash() -> None:
    statement = Statement("ADR-30", "", ("adr30/split",))
    assert statement.covers("adr30/split/pieces/1")
    assert statement.covers("adr30/split")
    assert not statement.covers("adr30/split-from/left/1")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("{text: A}", "needs either cases, or untested with the reason"),
        ("{text: A, cases: [x/y], untested: B}", "needs either cases, or untested with the reason"),
        ("{text: A, cases: [x/z]}", "no case is 'x/z', or begins with 'x/z/'"),
        ("{text: A, case: [x/y]}", "unknown key case"),
    ],
)
def test_a_wrong_statement_is_refused_with_its_place(tmp_path: Path, entry: str, reason: str) -> None:
    file = tmp_path / "statements.yaml"
    file.write_text(f"- adr: ADR-1\n  statements:\n    - {entry}\n", encoding="utf-8")
    with pytest.raises(CatalogueError) as refused:
        read_statements(["x/y/1"], file)
    assert str(refused.value) == f"statements.yaml: ADR-1: 'A': {reason}"
