"""Processes of our own, such as subscribers, that report when they are ready and what they found.

Theory of operation: a worker has one pipe to the benchmark. When it dies, the pipe closes, which ends every wait.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.errors import BenchmarkError

Send = Callable[[object], None]
"""Sends a worker's result to the process that started it."""

_LIMIT = 120.0  # seconds until a silent worker counts as stuck; generous, as machines are slow
_spawned = multiprocessing.get_context("spawn")


class Worker:
    """The side of the benchmark."""

    def __init__(self, name: str, pipe: Connection) -> None:
        self._name = name
        self._pipe = pipe

    def receive(self, limit: float = _LIMIT) -> Any:
        """Return the worker's next report.

        Args:
            limit: seconds to wait for it.

        Raises:
            BenchmarkError: it failed, ended, or reports nothing in time.
        """
        if not self._pipe.poll(limit):
            raise BenchmarkError(f"{self._name}: nothing for {limit:g} s")
        try:
            reported = self._pipe.recv()
        except EOFError:
            raise BenchmarkError(f"{self._name}: ended before it had a result") from None
        if isinstance(reported, BenchmarkError):
            raise BenchmarkError(f"{self._name}: {reported}")
        return reported


@contextmanager
def worker(name: str, work: Callable[..., None], *arguments: object) -> Iterator[Worker]:
    """Run `work(send, *arguments)` in a process of its own; ended when this is left.

    Args:
        name: for errors.
        work: a function of a module.
        arguments: what can be pickled.
    """
    ours, theirs = _spawned.Pipe(duplex=False)
    process = _spawned.Process(target=_run, args=(theirs, work, arguments), daemon=True)
    # Ctrl-C goes to every process of the terminal, but a worker is ended by us: it inherits the signal as blocked, for
    # the time until it ignores it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        theirs.close()
        yield Worker(name, ours)
    finally:
        process.terminate()
        process.join()
        ours.close()


def _run(pipe: Connection, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    # Blocking is not enough: multiprocessing unblocks it when it starts its resource tracker, before the first worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work(pipe.send, *arguments)
    except (OSError, BenchmarkError) as error:
        pipe.send(BenchmarkError(str(error) or type(error).__name__))
