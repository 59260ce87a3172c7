"""Runs commands that ask a server, shows their progress, and lets them finish messages in flight at a signal."""

import asyncio
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click
import structlog

_Answer = TypeVar("_Answer")

_SHOWN_EVERY: Final = 2.0  # seconds between two lines of progress


def ask(question: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a coroutine and return its result, without logs.

    asyncio's own messages (about TLS connections closed by the peer) and the sidecar's log are suppressed. The
    important facts are in the answer, and a program may be reading standard output.
    """
    with quiet_logs():
        return asyncio.run(question)


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence asyncio and the log of the sidecar's modules inside the block; see `ask`."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


@dataclass(slots=True)
class Stop:
    """Whether a signal came.

    Attributes:
        event: set then.
        code: the exit code for the signal, 130 or 143; 0 if none arrived.
    """

    event: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0


@contextmanager
def stopping() -> Iterator[Stop]:
    """Watch for signals inside the block; a second one ends the process at once.

    Only the main thread receives signals; in other threads this does nothing.
    """
    stop, loop = Stop(), asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop.code:
            os._exit(stop.code)
        stop.code = 128 + number
        stop.event.set()

    handled = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def run_job(
    job: Callable[[asyncio.Event, Callable[..., None]], Awaitable[_Answer]], text: Callable[..., str]
) -> tuple[_Answer, int]:
    """Run a job that reports its progress and ends early at a signal, without logs.

    Args:
        job: a function that is called with an event, set at a signal, and with a function that reports progress.
        text: the text of the progress line on stderr, before the seconds and the reported progress.

    Returns:
        The result of the job, and the exit code for a signal (0 if none arrived).
    """

    async def stoppable() -> tuple[_Answer, int]:
        with stopping() as stop:
            return await job(stop.event, _progress(text)), stop.code

    return ask(stoppable())


def show(data: Callable[[], Any], lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
    """Print a result on stdout, for a program or for a person."""
    if as_json:
        # ASCII only, because messages can contain characters that the output cannot encode or that control a terminal.
        click.echo(json.dumps(data(), indent=2))
        return
    for line in lines():
        click.echo(line)


def _progress(text: Callable[..., str]) -> Callable[..., None]:
    began = time.monotonic()
    due = began + _SHOWN_EVERY

    def report(*reported: Any) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + _SHOWN_EVERY
            click.echo(text(now - began, *reported), err=True)

    return report
