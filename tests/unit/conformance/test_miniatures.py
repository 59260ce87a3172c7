"""Every wrong engine is found out, by the case that it names."""

from __future__ import annotations

import pytest

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from tests.miniatures import MINIATURES, Miniature, caught, failing


@pytest.fixture(scope="module", name="cases")
def _cases() -> dict[str, Case]:
    return {case.id: case for case in read_catalogue()}


@pytest.mark.parametrize("miniature", MINIATURES, ids=lambda each: each.name)
async def test_a_miniature_is_caught_by_the_case_that_it_names(miniature: Miniature, cases: dict[str, Case]) -> None:
    (found,) = await caught([cases[miniature.case]], [miniature])
    assert found.is_named


async def test_the_true_engine_is_not_caught(cases: dict[str, Case]) -> None:
    # `test_engine_subject` plays all of them.
    assert await failing(None, list(cases.values())[::8]) == ()


def test_there_are_many_and_each_has_a_name_and_a_description() -> None:
    assert len(MINIATURES) >= 18
    assert len({each.name for each in MINIATURES}) == len(MINIATURES)
    assert len({each.description for each in MINIATURES}) == len(MINIATURES)
