"""The tutorial, done as it is told."""

from __future__ import annotations

from pathlib import Path

from docs.walk import DOCS, WALKS, comparable, play, steps


def test_the_tutorial_shows_what_happens(tmp_path: Path) -> None:
    walk = steps((DOCS / "tutorial.md").read_text("utf-8"))
    assert len(walk) > 20
    for told, played in zip(walk, play(walk, tmp_path, WALKS["tutorial.md"]), strict=True):
        assert comparable(played.output) == comparable(told.output), told.code or told.name
