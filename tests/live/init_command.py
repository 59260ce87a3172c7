"""`nats-bridge init`: in the test's own process, and as one on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from tests.live.commands import Ran, command_here
from tests.live.until import LIMIT

__all__ = ["init", "on_a_terminal"]


async def init(folder: Path, *arguments: str, stdin: str = "") -> Ran:
    """Run it in a folder, in this process."""
    return await command_here("init", *arguments, folder=folder, stdin=stdin)


async def on_a_terminal(folder: Path, answers: list[tuple[str, str]], *arguments: str) -> Ran:
    """Run it on a terminal, and give each answer when its question is there.

    Args:
        folder: where to run it.
        answers: a part of a question, or of what is said before it, and the answer; in this order.
        arguments: of the command.
    """
    return await asyncio.to_thread(_on_a_terminal, folder, answers, arguments)


def _on_a_terminal(folder: Path, answers: list[tuple[str, str]], arguments: tuple[str, ...]) -> Ran:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nats_bridge", "init", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    told, waiting, position = "", list(answers), 0
    end = time.monotonic() + LIMIT
    try:
        while more := _read(ours, end):
            told += more
            # Only behind a whole prompt, or the terminal would show the answer in the middle of it.
            if told.endswith(": ") and waiting and waiting[0][0] in told[position:]:
                position = len(told)
                os.write(ours, waiting.pop(0)[1].encode() + b"\n")
        code = process.wait(LIMIT)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not waiting, f"never asked: {waiting[0][0]}\n{told}"
    return Ran(code, told.replace("\r\n", "\n"), "")


def _read(terminal: int, end: float) -> str:
    """What comes next; nothing when the process has ended, or does not say anything for too long."""
    if not select.select([terminal], [], [], max(end - time.monotonic(), 0))[0]:
        return ""
    try:
        return os.read(terminal, 65536).decode()
    except OSError:  # nobody holds the other end any more
        return ""
