"""Full load: a publisher that the stream's acknowledgements pace, and a subscriber in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.raw_socket import RawSocket
from benchmarks.workers import Send, Worker, worker

__all__ = ["PAYLOAD", "SUBJECTS", "Arrivals", "arrivals", "publish_all"]

SUBJECTS = 1_000
PAYLOAD = 128  # bytes

_CHUNK = 1_000  # messages written at once; the last of them is acknowledged by the stream
_WINDOW = 20  # chunks under way without an acknowledgement
_SIGN = b"\r\nNats-Stream: "
_ACKNOWLEDGEMENT = b"MSG _stored "


def publish_all(port: int, messages: int, subjects: int = SUBJECTS) -> None:
    """Publish to `bench.0`, `bench.1`, ... as fast as the stream acknowledges; return when all is stored.

    Args:
        port: of the server.
        messages: how many.
        subjects: how many different ones.
    """
    chunk, made_of = b"", (-1, -1)
    with RawSocket(port) as connection:
        connection.send(b"SUB _stored 1\r\n")
        under_way, tail = 0, b""
        for begin in range(0, messages, _CHUNK):
            wanted = begin % subjects, min(_CHUNK, messages - begin)
            if wanted != made_of:  # with a thousand subjects all chunks are the same: no time goes into making them
                chunk, made_of = _chunk(*wanted, subjects), wanted
            connection.send(chunk)
            under_way += 1
            while under_way >= _WINDOW or (under_way and begin + _CHUNK >= messages):
                data = tail + connection.receive()
                under_way -= data.count(_ACKNOWLEDGEMENT)
                tail = data[-(len(_ACKNOWLEDGEMENT) - 1) :]


def _chunk(first: int, count: int, subjects: int) -> bytes:
    body = b"x" * PAYLOAD
    operations = [
        b"PUB bench.%d %b%d\r\n%b\r\n" % ((first + n) % subjects, b"_stored " if n == count - 1 else b"", PAYLOAD, body)
        for n in range(count)
    ]
    return b"".join(operations)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When republished messages came: seconds of the monotonic clock, which all processes share."""

    first: float
    last: float


@contextmanager
def arrivals(port: int, subject: str, messages: int) -> Iterator[Worker]:
    """A subscriber that waits for so many republished messages and then tells their `Arrivals`.

    It is subscribed when this is entered.
    """
    with worker("subscriber", _subscribe, port, subject, messages) as subscriber:
        subscriber.receive()
        yield subscriber


def _subscribe(send: Send, port: int, subject: str, messages: int) -> None:
    with RawSocket(port) as connection:
        connection.send(b"SUB %b 1\r\n" % subject.encode())
        connection.flush()
        send("subscribed")
        count, tail, first = 0, b"", 0.0
        try:
            while count < messages:
                data = tail + connection.receive()
                first = first or time.monotonic()
                count += data.count(_SIGN)
                # A sign that is cut in two by the end of a read is found with the next one, none is found twice.
                tail = data[-(len(_SIGN) - 1) :]
        except TimeoutError:
            raise TimeoutError(f"{count:,} of {messages:,} messages came, then none for a minute") from None
        send(Arrivals(first, time.monotonic()))
