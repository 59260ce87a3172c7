"""Every wrong engine is found out, by the case that it names."""

from __future__ import annotations

import pytest

from conformance.catalogue import read_catalogue
from conformance.miniatures import MINIATURES, Miniature, catching, failing

CASES = {case.id: case for case in read_catalogue()}


@pytest.mark.parametrize("miniature", MINIATURES, ids=lambda each: each.name)
async def test_a_miniature_is_caught_by_the_case_that_it_names(miniature: Miniature) -> None:
    assert await catching(miniature, [CASES[miniature.caught_by]]) == (miniature.caught_by,)


async def test_the_true_engine_is_not_caught() -> None:
    assert await failing(None, CASES.values()) == ()


def test_there_are_many_and_each_has_a_name_and_a_description() -> None:
    assert len(MINIATURES) >= 18
    assert len({each.name for each in MINIATURES}) == len(MINIATURES)
    assert len({each.description for each in MINIATURES}) == len(MINIATURES)


async def test_a_miniature_that_nobody_noticed_is_told_of_as_such() -> None:
    (miniature,) = [each for each in MINIATURES if each.name == "size-in-characters"]
    others = [case for case in CASES.values() if "size" not in case.id and "headers_only" not in str(case.streams)]
    assert await catching(miniature, others) == ()
