"""One worker over all of its processes: which rules are its, and what happened to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.workers.channel import Json

if TYPE_CHECKING:
    from bridge.workers.worker_process import WorkerProcess

__all__ = ["PAUSES", "EndedError", "Slot"]

PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds before a worker is started again, by how often that has not helped."""


class EndedError(BridgeError):
    """A worker ended on purpose, as one process would have: a rule failed, or a server sent a connection away.

    Args:
        told: what it said of that.
    """

    code = "worker"

    def __init__(self, told: Json) -> None:
        super().__init__(str(told["reason"]))
        self.exit_code = int(told["exit_code"])


@dataclass(slots=True)
class Slot:
    """A worker.

    Attributes:
        number: from 1 on.
        rules: the names of its rules; without any it has no process.
        process: its process, while it has one.
        at_work: whether its rules were started.
        starts: how many processes it has had.
        last_end: how the last one ended that should not have.
        verdict: why it ended the whole sidecar, if it did.
        keeper: what starts it again.
    """

    number: int
    rules: tuple[str, ...] = ()
    process: WorkerProcess | None = None
    at_work: bool = False
    starts: int = 0
    last_end: str | None = None
    verdict: EndedError | None = None
    keeper: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return f"worker {self.number}"

    @property
    def down(self) -> str | None:
        """Why it is not at work, in words; None while it is."""
        if self.at_work:
            return None
        return "is being started" + (f" again: {self.last_end}" if self.last_end else "")
