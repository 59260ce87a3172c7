"""Running what asks a server something and ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["ask"]

_Answer = TypeVar("_Answer")


def ask(question: Coroutine[Any, Any, _Answer]) -> _Answer:
    """The answer of a coroutine, without asyncio's own remarks (on TLS connections that the other side closes)."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    return asyncio.run(question)
