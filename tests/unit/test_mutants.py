"""The planted defects still fit the code: each can be planted where it was meant, and names tests that are there."""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.__main__ import main
from tests.mutants.defects import AREAS, Defect, DefectError, read_defects

ROOT = Path(__file__).parents[2]
DEFECTS = read_defects()


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text("utf-8")


def is_there(test: str) -> bool:
    file, _, function = test.partition("[")[0].partition("::")
    return re.search(rf"^(async )?def {function}\(", text_of(file), re.MULTILINE) is not None


@pytest.mark.parametrize("area", AREAS)
def test_defects_can_be_planted_and_their_tests_are_there(area: str) -> None:
    for defect in DEFECTS:
        if defect.area == area:
            assert defect.planted(text_of(defect.file)) != text_of(defect.file)
            assert defect.tests
            assert [test for test in defect.tests if not is_there(test)] == []


def test_ids_are_unique_and_every_area_has_enough() -> None:
    assert len({each.id for each in DEFECTS}) == len({each.wrong for each in DEFECTS}) == len(DEFECTS)
    counted = Counter(each.area for each in DEFECTS)
    assert min(counted[area] for area in AREAS) >= 8
    assert len(DEFECTS) >= 66


@pytest.mark.parametrize("text", ["", "a = 1\na = 1\n"])
def test_a_defect_whose_place_is_not_there_once_is_an_error_with_its_name(text: str) -> None:
    defect = Defect("intake/x", "bridge/nats_bridge/consuming/ordered_reader.py", "", (), "a = 1", "a = 2")
    with pytest.raises(
        DefectError, match=r"intake/x: its old text stands in bridge/nats_bridge/consuming/ordered_reader\.py"
    ):
        defect.planted(text)


def test_an_id_that_no_defect_has_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tests.mutants", "intake", "reload/no-such"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no defect has the id or area reload/no-such; --list names them" in capsys.readouterr().err
