"""When the content of a watched file counts as whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nats_bridge.app.reload import file_watch
from nats_bridge.app.reload.file_watch import changes_of


async def _found(monkeypatch: pytest.MonkeyPatch, looks: list[str | None], wanted: int) -> list[str]:
    """What the watch reports when successive looks find this."""
    left: Iterator[str | None] = iter(looks)
    monkeypatch.setattr(file_watch, "EVERY_SECOND", 0)
    monkeypatch.setattr(file_watch, "content_hash", lambda _: next(left))
    changes = changes_of(Path("bridge.yaml"))
    found = [await anext(changes) for _ in range(wanted)]
    assert next(left, "no more") == "no more"
    return found


async def test_what_two_looks_agree_on_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _found(monkeypatch, ["half", "more", "whole", "whole"], 1) == ["whole"]


async def test_a_file_that_cannot_be_read_in_between_restarts_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _found(monkeypatch, ["a", None, "a", None, None, "a", "a"], 1) == ["a"]


async def test_it_is_reported_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _found(monkeypatch, ["a", "a", "a", "b", "b"], 3) == ["a", "a", "b"]
