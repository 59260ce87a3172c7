"""Keeping freed memory is asked of the C library that can; of no other."""

import ctypes

import pytest

from nats_bridge.app import malloc_tuning as freed_memory


class Library:
    """A C library that takes note."""

    def __init__(self) -> None:
        self.reported: dict[int, int] = {}

    def mallopt(self, name: int, value: int) -> int:
        self.reported[name] = value
        return 1


def test_a_read_and_what_is_made_of_it_stay_within_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert freed_memory.keep_freed_memory()
    trim, pad, mapping = (library.reported[name] for name in (-1, -2, -3))
    assert pad <= mapping <= trim <= 32 << 20


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not freed_memory.keep_freed_memory()
