"""Random header blocks and payloads: what applications send, what they could send, fakes of the server's lines."""

from __future__ import annotations

from random import Random

from nats_conformance.catalogue.case import Message

_NAMES = (
    b"A",
    b"a",
    b"B",
    b"x-lower",
    b"X-Spaces",
    b"Name",
    b"traceparent",
    b"KV-Operation",
    b"Content-Type",
    b"Nats-Streams",
)
_VALUES = (
    b"1", b"2", b"", b"two  words", b"a:b:c", b"DEL", "Zoë, 日本".encode(), b"\xe9\xff", b"\tx\t", b"z" * 70, b"\\r\\n",
    b'"q"',
)  # fmt: skip
_COLONS = (b": ",) * 8 + (b":", b":  ", b" : ", b":\t", b" ")
_FAKES = (
    b"Nats-Stream: liar", b"Nats-Subject: x.y", b"Nats-Sequence: 1", b"Nats-Last-Sequence: 9", b"Nats-Msg-Size: 17",
    b"Nats-Time-Stamp: never", b"nats-stream: low", b"Nats-Stream-Sourced: no", b"X-Nats-Sequence: 4",
)  # fmt: skip
_ACTING = (
    b"Nats-Expected-Stream: S", b"Nats-Expected-Stream: O", b"Nats-Expected-Last-Sequence: 99", b"Nats-Expected-x: 1",
    b"Nats-Rollup: sub", b"Nats-TTL: 5s", b"Nats-Stream-Source: X 7 > >", b"Nats-Stream-Source: X 7",
    b"Nats-Batch-Id: b",
    b"Nats-Batch-x: b", b"Nats-Request-Info: {}", b"Nats-Incr: 1", b"Nats-Marker-Reason: MaxAge",
    b"Nats-Schedule: @at x",
)  # fmt: skip
_STATUS = (
    b"NATS/1.0 503 Not Today",
    b"NATS/1.0 404",
    b"NATS/1.0 100 Idle",
    b"NATS/1.0  200",
    b"NATS/1.0 x",
    b"nats/1.0",
    b"NATS/2.0",
)
_ODD_BLOCKS = (
    b"NATS/1.0\r\n\r\n", b"Foo: bar\r\n\r\n", b"\r\n", b"NATS/1.0\r\nA: 1", b"NATS/1.0\r\nA: 1\r\n",
    b"NATS/1.0\nA: 1\n\n", b"xy",
    b"NATS/1.0\r\n\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nNoColon\r\n\r\n", b"NATS/1.0\r\n: v\r\n\r\n", b"abc",
    b"NATS/1.0\r\n",
)  # fmt: skip
_PAYLOADS = (b"", b"x", b"\r\n", b"MSG fake 1 5\r\n", b"0" * 40, bytes(range(256)))


def draw_message(random: Random, subject: bytes, number: int) -> Message:
    """A message on this subject; ``number`` makes what must be unique so."""
    return Message(subject, _block(random, number), random.choice(_PAYLOADS))


def _block(random: Random, number: int) -> bytes:
    chance = random.random()
    if chance < 0.25:
        return b""
    if chance < 0.31:
        return random.choice(_ODD_BLOCKS)
    lines = [_line(random) for _ in range(random.choice((1, 1, 2, 3, 5)))]
    if random.random() < 0.2:
        lines.append(random.choice(lines))
    if random.random() < 0.2:
        lines.append(random.choice(_FAKES))
    if random.random() < 0.06:
        lines.append(b"Nats-Msg-Id: id-%d" % (number if random.random() < 0.7 else 0))
    if random.random() < 0.02:
        lines += [b"Nats-Request-Info: {%d}" % at for at in range(random.choice((2, 3)))]
    if random.random() < 0.06:
        lines += random.choices(_ACTING, k=random.choice((1, 1, 2)))
    random.shuffle(lines)
    first = random.choice(_STATUS) if random.random() < 0.05 else b"NATS/1.0"
    return b"".join(line + b"\r\n" for line in [first, *lines]) + b"\r\n"


def _line(random: Random) -> bytes:
    return random.choice(_NAMES) + random.choice(_COLONS) + random.choice(_VALUES)
