"""What pages of the documentation show is what happens: the tutorial, other walks, the migration.

Each command has tests of its own, so the pages are played by `make test-all` alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.record_migration import record
from docs.walk import DOCS, WALKS, comparable, play, steps

pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("page", "least"),
    [("tutorial.md", 20), ("redrive.md", 7), ("watch.md", 2), ("failover.md", 7), ("init.md", 0)],
)
def test_a_walk(page: str, least: int, tmp_path: Path) -> None:
    walk = steps((DOCS / page).read_text("utf-8"))
    assert len(walk) > least
    for reported, played in zip(walk, play(walk, tmp_path, WALKS[page]), strict=True):
        assert comparable(played.output) == comparable(reported.output), reported.code or reported.name


async def test_the_migration_loses_and_doubles_nothing() -> None:
    lines = await record()
    assert lines[-6:] == [
        "in ORDERS_EU       666",
        "  by the bridge    400",
        "  by the server    266",
        "missing            0",
        "duplicated         0",
        "same order         yes",
    ]
