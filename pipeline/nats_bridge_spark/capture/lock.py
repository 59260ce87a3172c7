"""One writer per capture: a file that says who it is."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nats_bridge_spark.capture.place import Place
from nats_bridge_spark.errors import PipelineError

LOCK: Final = "_capture.lock"


@contextmanager
def locked(place: Place) -> Iterator[None]:
    """Hold the lock of a directory.

    The lock of a process of this machine that has ended is taken over; the state of one elsewhere cannot be
    known, and its file must be removed by a user who knows it.

    Raises:
        PipelineError: another process writes to it, or may.
    """
    mine = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "begun": _begun(os.getpid())})
    while not place.create(LOCK, mine):
        text = place.read(LOCK)
        if text is None:
            continue  # its owner has just gone
        _require_gone(place, text)
        # Another one may conclude the same at this moment: the one that moves the old lock away has it.
        old = f"{LOCK}.{os.getpid()}"
        if place.move(LOCK, old):
            if place.read(old) != text:
                place.move(old, LOCK)
                raise PipelineError(f"{place}: another capture begins to write to it at this moment; run it again")
            place.remove(old)
    try:
        yield
    finally:
        if place.read(LOCK) == mine:
            place.remove(LOCK)


def _require_gone(place: Place, text: str) -> None:
    try:
        owner: dict[str, Any] = json.loads(text)
        host, pid, begun = str(owner["host"]), int(owner["pid"]), owner["begun"]
    except (ValueError, KeyError, TypeError):
        host, pid, begun = "", 0, None
    if not host:
        raise PipelineError(f"{place}: {LOCK} cannot be read; if no capture writes there, remove it")
    if host != socket.gethostname():
        raise PipelineError(
            f"{place}: process {pid} on {host} writes to it; if that one has ended, remove {place.uri(LOCK)}"
        )
    if _begun(pid) is not None and _begun(pid) == begun:
        raise PipelineError(f"{place}: process {pid} of this machine writes to it; only one capture at a time can")


def _begun(pid: int) -> str | None:
    """The start time of a process, in the kernel's count; None without one. Process ids are reused."""
    try:
        reported = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return None
        return _signalled(pid)  # no Linux
    fields = reported.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _signalled(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "running"
