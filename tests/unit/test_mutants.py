"""The planted defects still fit the code: each can be planted where it was meant, and names tests that are there."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.defects import AREAS, Defect, DefectError, read_defects

ROOT = Path(__file__).parents[2]
DEFECTS = read_defects()


@cache
def functions_of(file: str) -> frozenset[str]:
    return frozenset(
        node.name
        for node in ast.parse((ROOT / file).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: each.id)
def test_a_defect_can_be_planted_and_its_tests_are_there(defect: Defect) -> None:
    planted = defect.planted((ROOT / defect.file).read_text("utf-8"))
    ast.parse(planted)
    assert defect.tests
    for test in defect.tests:
        file, _, function = test.partition("::")
        assert not function or function.partition("[")[0] in functions_of(file), test


def test_ids_are_unique_and_every_area_has_enough() -> None:
    assert len({each.id for each in DEFECTS}) == len({each.wrong for each in DEFECTS}) == len(DEFECTS)
    counted = Counter(each.area for each in DEFECTS)
    assert min(counted[area] for area in AREAS) >= 8
    assert len(DEFECTS) >= 66


@pytest.mark.parametrize("text", ["", "a = 1\na = 1\n"])
def test_a_defect_whose_place_is_not_there_once_is_an_error_with_its_name(text: str) -> None:
    defect = Defect("intake/x", "bridge/intake.py", "", (), "a = 1", "a = 2")
    with pytest.raises(DefectError, match="intake/x: its old text stands in bridge/intake.py"):
        defect.planted(text)
