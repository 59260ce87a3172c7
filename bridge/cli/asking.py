"""Runs commands that ask a server and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog

__all__ = ["ask", "quiet_logs"]

_Answer = TypeVar("_Answer")


def ask(question: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a coroutine and return its result, without logs.

    Left out are asyncio's own remarks (on TLS connections that the other side closes) and the log of a running sidecar:
    what matters of it is in the answer, and standard output may be for a program to read.
    """
    with quiet_logs():
        return asyncio.run(question)


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence the log of the sidecar's modules, and asyncio's; see `ask`."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
