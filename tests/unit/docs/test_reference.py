"""The pages of the reference are what the code says."""

from __future__ import annotations

import pytest

from docs.reference.pages import FOLDER, PAGES
from docs.reference.server_features import FEATURES
from nats_conformance.catalogue.reading import read_catalogue


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text("utf-8")
    assert written == PAGES[name](), "generate it: python -m docs.reference --write"


def test_every_page_has_something_that_makes_it() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == {name for name in PAGES if "/" not in name}


def test_every_case_of_a_new_document_belongs_to_a_feature() -> None:
    families = tuple(f"{family}/" for feature in FEATURES for family in feature.families)
    rooms = ("adr43/", "adr48/", "adr49/", "adr50/", "adr51/", "adr60/", "native/persistence/", "native/consumers/")
    assert [c.id for c in read_catalogue() if c.id.startswith(rooms) and not c.id.startswith(families)] == []


def test_every_row_of_a_feature_is_shown_by_a_case() -> None:
    assert [(feature.title, row.where) for feature in FEATURES for row in feature.rows if not row.shown_by] == []
