"""A plugin of pytest: the stopper stops no process while a test with the mark `unstoppable` runs."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stops-lock", type=Path, required=True, help="the file that is locked while a process is stopped"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("unstoppable") is None:
        return (yield)
    with Path(item.config.getoption("--stops-lock")).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        return (yield)
