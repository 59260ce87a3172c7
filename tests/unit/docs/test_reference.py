"""The pages of the reference are what the code says."""

import pytest

from docs.reference.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text("utf-8")
    assert written == PAGES[name](), "generate it: python -m docs.reference --write"


def test_every_page_has_something_that_makes_it() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == {name for name in PAGES if "/" not in name}
