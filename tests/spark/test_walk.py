"""The walks of the pages on Spark, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.walk import DOCS, WALKS, comparable, play, steps


@pytest.mark.parametrize(("page", "least"), [("spark.md", 5), ("spark-diff.md", 2), ("spark-restore.md", 5)])
@pytest.mark.usefixtures("spark")
def test_the_page_shows_what_its_commands_print(page: str, least: int, tmp_path: Path) -> None:
    walk = steps((DOCS / page).read_text("utf-8"))
    assert len(walk) >= least
    for reported, played in zip(walk, play(walk, tmp_path, WALKS[page]), strict=True):
        assert comparable(played.output) == comparable(reported.output), reported.code
