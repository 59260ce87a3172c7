"""Publishers that the stream's acknowledgements or the clock pace, and a subscriber in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.errors import BenchmarkError
from benchmarks.raw_socket import RawSocket
from benchmarks.workers import Send, Worker, worker

SUBJECTS = 1_000
PAYLOAD = 128  # bytes

FILLING = 8
"""Chunks of a thousand messages in flight at most, where a queue may form before the stream.

Since 2.11, a stream with more than 10,000 queued messages drops new ones, and answers only requests.
"""

TRACED = b"NATS/1.0\r\nContent-Type: text/plain\r\nTrace: %(number)032x\r\nNats-Msg-Id: order-%(number)d\r\n\r\n"
"""A header block with two headers of an application and a `Nats-Msg-Id` of each message's own."""

_CHUNK = 1_000  # messages written at once at most; the last of them is acknowledged by the stream
_CHUNK_BYTES = 1 << 20  # payload written at once at most
_WINDOW = 20  # chunks in flight
_SIGN = b"\r\nNats-Stream: "
_READ = 1 << 20  # bytes
_ACKNOWLEDGEMENT = b"MSG _stored "
_REFUSAL = b'"error":'
_TICK = 0.001  # seconds between two writes of the paced publisher
_STAMP = 9 + 1 + 19  # bytes: a message's number and the time at which it was published


def publish_all(
    port: int, messages: int, subjects: int = SUBJECTS, *, block: bytes = b"", window: int = _WINDOW
) -> None:
    """Publish to `bench.0`, `bench.1`, ... as fast as the stream acknowledges; return when all is stored.

    Args:
        port: of the server.
        messages: how many.
        subjects: how many different ones.
        block: a raw header block for each message, see `chunks`.
        window: how many thousand messages may be in flight.

    Raises:
        BenchmarkError: the stream refuses one.
    """
    publish_chunks(port, chunks(messages, subjects, block=block), window=window)


def publish_chunks(port: int, made: Iterable[bytes], *, window: int = _WINDOW) -> None:
    """Publish as fast as the stream acknowledges; return when all is stored.

    Args:
        port: of the server.
        made: protocol operations, written piece by piece; `_stored` is the last one's reply subject in each.
        window: how many pieces may be in flight.

    Raises:
        BenchmarkError: the stream refuses one.
    """
    with RawSocket(port) as connection:
        connection.send(b"SUB _stored 1\r\n")
        in_flight, tail = 0, b""

        def wait_for(allowed: int) -> None:
            nonlocal in_flight, tail
            while in_flight > allowed:
                data = tail + connection.receive()
                if _REFUSAL in data:
                    raise BenchmarkError(f"the stream refuses messages: {data.decode(errors='replace')[:300]}")
                in_flight -= data.count(_ACKNOWLEDGEMENT)
                tail = data[-(len(_ACKNOWLEDGEMENT) - 1) :]

        for chunk in made:
            connection.send(chunk)
            in_flight += 1
            wait_for(window - 1)
        wait_for(0)


def chunks(
    messages: int,
    subjects: int = SUBJECTS,
    *,
    size: int = PAYLOAD,
    name: bytes = b"bench",
    block: bytes = b"",
    groups: int = 0,
) -> Iterator[bytes]:
    """What `publish_chunks` writes for messages on `bench.0`, `bench.1`, ... in turn; a list of it takes no time later.

    Args:
        messages: how many.
        subjects: how many different ones.
        size: of the payload, in bytes.
        name: what subjects begin with.
        block: a raw header block for each message, which may have the message's number as `%(number)d`.
        groups: how many groups the subjects are divided into, which changes with each message: `bench.GROUP.N`.
            0 for none.
    """
    at_once = max(min(_CHUNK, _CHUNK_BYTES // size), 1)
    chunk, made_of = b"", (-1, -1)
    for begin in range(0, messages, at_once):
        # With a thousand subjects all chunks without numbers are the same: no time goes into making them.
        wanted = begin if b"%(" in block else begin % subjects, min(at_once, messages - begin)
        if wanted != made_of:
            chunk, made_of = _chunk(*wanted, subjects, size=size, name=name, block=block, groups=groups), wanted
        yield chunk


def _chunk(
    first: int,
    count: int,
    subjects: int,
    *,
    size: int = PAYLOAD,
    name: bytes = b"bench",
    block: bytes = b"",
    groups: int = 0,
) -> bytes:
    operations, payload = [], b"x" * size
    for number in range(first, first + count):
        subject = b"%b.%d" % (b"%b.%d" % (name, number % groups) if groups else name, number % subjects)
        answer = b"_stored " if number == first + count - 1 else b""
        headers = block % {b"number": number}
        sizes = b"%d %d" % (len(headers), len(headers) + size) if headers else b"%d" % size
        kind = b"HPUB" if headers else b"PUB"
        operations.append(b"%b %b %b%b\r\n%b%b\r\n" % (kind, subject, answer, sizes, headers, payload))
    return b"".join(operations)


def publish_paced(port: int, messages: int, rate: int) -> None:
    """Publish evenly, without waiting for the stream; a payload begins with `NNNNNNNNN TTTTTTTTTTTTTTTTTTT`.

    N is the message's number, from 0, and T the time of publication in nanoseconds of the monotonic clock.

    Args:
        port: of the server.
        messages: how many.
        rate: messages per second.
    """
    at_once = max(int(rate * _TICK), 1)
    rest = b"x" * (PAYLOAD - _STAMP)
    with RawSocket(port) as connection:
        tick = time.monotonic()
        for begin in range(0, messages, at_once):
            tick += at_once / rate
            time.sleep(max(tick - time.monotonic(), 0))
            operations = [
                b"PUB bench.%d %d\r\n%09d %019d%b\r\n" % (number % SUBJECTS, PAYLOAD, number, time.monotonic_ns(), rest)
                for number in range(begin, min(begin + at_once, messages))
            ]
            connection.send(b"".join(operations))
        connection.flush()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When republished messages came: seconds of the monotonic clock, which all processes share."""

    first: float
    last: float


@contextmanager
def arrivals(port: int, subject: str, messages: int) -> Iterator[Worker]:
    """A subscriber that waits for so many republished messages and then returns their `Arrivals`.

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
        count, first, buffer, start = 0, 0.0, bytearray(_READ), 0
        try:
            while count < messages:
                end = connection.receive_into(buffer, start)
                first = first or time.monotonic()
                count += buffer.count(_SIGN, 0, end)
                # A sign that is cut in two by the end of a read is found with the next one, none is found twice.
                tail = buffer[max(end - len(_SIGN) + 1, 0) : end]
                start = len(tail)
                buffer[:start] = tail
        except TimeoutError:
            raise TimeoutError(f"{count:,} of {messages:,} messages came, then none for a minute") from None
        send(Arrivals(first, time.monotonic()))
