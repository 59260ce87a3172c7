"""Publishers and subscribers, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any

from benchmarks.raw_socket import RawSocket

__all__ = ["PAYLOAD", "SUBJECTS", "Arrived", "arrivals", "publish_all"]

SUBJECTS = 1_000
PAYLOAD = 128  # bytes

_CHUNK = 1_000  # messages written at once; the last of them is acknowledged by the stream
_WINDOW = 20  # chunks under way without an acknowledgement
_SIGN = b"\r\nNats-Stream: "
_spawned = multiprocessing.get_context("spawn")


def publish_all(port: int, messages: int, subjects: int = SUBJECTS) -> None:
    """Publish to `bench.*`, as fast as the stream acknowledges; return when all is stored."""
    body = b"x" * PAYLOAD
    with RawSocket(port) as connection:
        connection.send(b"SUB _stored 1\r\n")
        under_way = 0
        for begin in range(0, messages, _CHUNK):
            numbers = range(begin, min(begin + _CHUNK, messages))
            chunk = [b"PUB bench.%d %d\r\n%b\r\n" % (number % subjects, PAYLOAD, body) for number in numbers[:-1]]
            chunk.append(b"PUB bench.%d _stored %d\r\n%b\r\n" % (numbers[-1] % subjects, PAYLOAD, body))
            connection.send(b"".join(chunk))
            under_way += 1
            while under_way >= _WINDOW:
                under_way -= connection.receive().count(b"MSG _stored ")
        while under_way > 0:
            under_way -= connection.receive().count(b"MSG _stored ")


class Arrived:
    """When republished messages came: seconds of the monotonic clock, which all processes share."""

    def __init__(self, process: Any, queue: Queue[tuple[float, float]]) -> None:
        self._process = process
        self._queue = queue

    def times(self, timeout: float = 300.0) -> tuple[float, float]:
        """Of the first message and of the last one.

        Raises:
            queue.Empty: they did not all come.
        """
        return self._queue.get(timeout=timeout)


@contextmanager
def arrivals(port: int, subject: str, messages: int) -> Iterator[Arrived]:
    """A subscriber that waits for so many republished messages; it is subscribed when this is entered."""
    queue: Queue[tuple[float, float]] = _spawned.Queue()
    ready = _spawned.Event()
    process = _spawned.Process(target=_subscribe, args=(port, subject, messages, ready, queue), daemon=True)
    process.start()
    try:
        ready.wait()
        yield Arrived(process, queue)
    finally:
        process.terminate()
        process.join()


def _subscribe(port: int, subject: str, messages: int, ready: Event, queue: Queue[tuple[float, float]]) -> None:
    with RawSocket(port, timeout=600.0) as connection:
        connection.send(b"SUB %b 1\r\n" % subject.encode())
        connection.flush()
        ready.set()
        count, tail, first = 0, b"", 0.0
        while count < messages:
            data = tail + connection.receive()
            first = first or time.monotonic()
            count += data.count(_SIGN)
            # A sign that is cut in two by the end of a read is found with the next one, none is found twice.
            tail = data[-(len(_SIGN) - 1) :]
        queue.put((first, time.monotonic()))
