"""Choosing cases by id and level."""

import pytest

from nats_conformance.catalogue.case import Case, Expectation, Level
from nats_conformance.catalogue.selection import select
from nats_conformance.errors import CatalogueError


def case(case_id: str, level: Level) -> Case:
    return Case(id=case_id, title="a title", level=level, clause="", expectation=Expectation())


CASES = [
    case("adr28/headers/order/1", Level.MUST),
    case("adr28/headers/order/2", Level.SHOULD),
    case("adr28/headers-only/1", Level.OBSERVED),
    case("adr30/order/1", Level.MUST),
]


@pytest.mark.parametrize(
    ("patterns", "level", "found"),
    [
        ([], Level.OBSERVED, [0, 1, 2, 3]),
        ([], Level.SHOULD, [0, 1, 3]),
        ([], Level.MUST, [0, 3]),
        (["adr28/headers/order/1"], Level.OBSERVED, [0]),
        (["adr28/headers"], Level.OBSERVED, [0, 1]),
        (["adr28/headers/"], Level.OBSERVED, [0, 1]),
        (["*/order/*"], Level.OBSERVED, [0, 1, 3]),
        (["adr30", "adr28/headers-only"], Level.OBSERVED, [2, 3]),
        (["adr28"], Level.MUST, [0]),
    ],
)
def test_selection(patterns: list[str], level: Level, found: list[int]) -> None:
    assert select(CASES, patterns, level) == tuple(CASES[at] for at in found)


def test_a_pattern_that_means_nothing_is_an_error() -> None:
    with pytest.raises(CatalogueError, match=r"--select adr28/header: no case has such an id; did you mean 'adr28/"):
        select(CASES, ["adr30", "adr28/header"])


def test_cases_to_leave_out() -> None:
    assert select(CASES, ["adr28"], skipped=["*/order/*"]) == (CASES[2],)
    assert select(CASES, skipped=["adr28"]) == (CASES[3],)
    with pytest.raises(CatalogueError, match="--skip adr29: no case has such an id"):
        select(CASES, skipped=["adr29"])
