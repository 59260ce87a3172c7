"""Every wrong engine is found out, by the case that it names."""

from __future__ import annotations

import pytest

from nats_bridge.conformance.catalogue import Case, read_catalogue
from nats_bridge.conformance.miniatures import MINIATURES, Caught, Miniature, caught, failing, reported


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


async def test_a_miniature_that_no_case_caught_is_reported(cases: dict[str, Case]) -> None:
    (miniature,) = [each for each in MINIATURES if each.name == "size-in-characters"]
    others = [case for case in cases.values() if case.id.startswith("adr30/")]
    found = await caught(others, [miniature])
    assert found == (Caught(miniature, ()),)
    assert reported(found).splitlines() == [
        "size-in-characters: counts characters in Nats-Msg-Size instead of bytes",
        "    NOT CAUGHT",
        "0 of 1 wrong engines were caught by the cases that they name",
    ]


async def test_what_caught_a_miniature_is_reported(cases: dict[str, Case]) -> None:
    (miniature,) = [each for each in MINIATURES if each.name == "size-in-characters"]
    (by_its_case,) = await caught([cases["adr28/block/size/1"]], [miniature])
    assert reported([by_its_case, Caught(miniature, ("a", "b"))]).splitlines()[1::2] == [
        "    caught by adr28/block/size/1",
        "    NOT CAUGHT by adr28/block/size/1, only by a, b",
    ]
