"""Each known defect can be put back: its code is where its entry says."""

from __future__ import annotations

import ast

import pytest

from tests.simulation.defects import BRIDGE, ENTRIES


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_the_code_of_a_defect_occurs_once(entry: dict[str, str]) -> None:
    file = BRIDGE / entry["file"]
    code = file.read_text() if file.is_file() else ""
    assert code.count(entry["before"]) == 1, "the code of this defect has moved: write the entry again, or delete it"
    ast.parse(code.replace(entry["before"], entry["after"]))
