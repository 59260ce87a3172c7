"""The walk of docs/spark.md, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.walk import DOCS, WALKS, comparable, play, steps


@pytest.mark.usefixtures("spark")
def test_the_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    walk = steps((DOCS / "spark.md").read_text("utf-8"))
    assert len(walk) >= 5
    for reported, played in zip(walk, play(walk, tmp_path, WALKS["spark.md"]), strict=True):
        assert comparable(played.output) == comparable(reported.output), reported.code
