"""Warnings about what servers accept although it does not work (found by differential testing)."""

from typing import Any

import pytest

from nats_transforms import dialect
from nats_transforms.stream_config import examine

EMPTY, REST, OTHER = {"src": "", "dest": "d.>"}, {"src": ">", "dest": "d.>"}, {"src": "t.x", "dest": "e"}


@pytest.mark.parametrize(
    ("config", "members"),
    [
        ({"sources": [{"name": "O", "subject_transforms": [EMPTY]}]}, ["sources[0].subject_transforms[0].src"]),
        ({"sources": [{"name": "O", "subject_transforms": [{}]}]}, ["sources[0].subject_transforms[0].src"]),
        ({"sources": [{"name": "O", "subject_transforms": [OTHER, EMPTY]}]}, ["sources[0].subject_transforms[1].src"]),
        ({"sources": [{"name": "O", "subject_transforms": [REST]}, {"name": "P"}]}, []),
        ({"mirror": {"name": "O", "subject_transforms": [EMPTY]}}, []),
        ({"mirror": {"name": "O", "subject_transforms": [EMPTY, OTHER]}}, ["mirror.subject_transforms[0].src"]),
    ],
)
@pytest.mark.parametrize("version", ["2.11.17", "2.12.15", "2.14.9", "2.15.1"])
def test_an_empty_filter_that_never_copies(config: dict[str, Any], members: list[str], version: str) -> None:
    warnings = examine({"name": "S", **config}, dialect(version)).warnings
    assert [each.member for each in warnings if each.id == "empty-filter-never-copies"] == members
