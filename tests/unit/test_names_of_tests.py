"""The name of a test states a behaviour, and fits into one line of a report."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
LONGEST = 70  # characters


def test_names_of_tests_are_short() -> None:
    names = {
        name: path
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
    }
    assert len(names) > 2000
    assert [f"{path.relative_to(TESTS)}: {name}" for name, path in names.items() if len(name) > LONGEST] == []
