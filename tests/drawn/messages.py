"""Random header blocks and payloads: what applications send, what they could send, fakes of the server's lines."""

from __future__ import annotations

from random import Random

from nats_conformance.catalogue.case import Message

_NAMES = (
    b"A", b"a", b"B", b"x-lower", b"X-Spaces", b"Name", b"traceparent", b"KV-Operation", b"Content-Type",
    b"Nats-Streams",
)  # fmt: skip
_VALUES = (
    b"1", b"2", b"", b"two  words", b"a:b:c", b"DEL", "Zoë, 日本".encode(), b"\xe9\xff", b"\tx\t", b"z" * 70, b"\\r\\n",
    b'"q"', b"y" * 3000, b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
)  # fmt: skip
_COLONS = (b": ",) * 8 + (b":", b":  ", b" : ", b":\t", b" ")
_FAKES = (
    b"Nats-Stream: liar", b"Nats-Subject: x.y", b"Nats-Sequence: 1", b"Nats-Last-Sequence: 9", b"Nats-Msg-Size: 17",
    b"Nats-Time-Stamp: never", b"nats-stream: low", b"Nats-Stream-Sourced: no", b"X-Nats-Sequence: 4",
)  # fmt: skip
_ACTING = (
    b"Nats-Expected-Stream: S", b"Nats-Expected-Stream: O", b"Nats-Expected-Last-Sequence: 99", b"Nats-Expected-x: 1",
    b"Nats-Rollup: sub", b"Nats-TTL: 5s", b"Nats-Stream-Source: X 7 > >", b"Nats-Stream-Source: X 7",
    b"Nats-Batch-Id: b", b"Nats-Batch-x: b", b"Nats-Request-Info: {}", b"Nats-Incr: 1", b"Nats-Marker-Reason: MaxAge",
    b"Nats-Schedule: @at x",
)  # fmt: skip
_STATUS = (b"NATS/1.0 503 Not Today", b"NATS/1.0 404", b"NATS/1.0  200", b"NATS/1.0 x", b"nats/1.0", b"NATS/2.0")
_CONTROL = b"NATS/1.0 100 Idle"
_ODD_BLOCKS = (
    b"NATS/1.0\r\n\r\n", b"Foo: bar\r\n\r\n", b"NATS/1.0\r\n\r\nA: 1\r\n\r\n", b"NATS/1.0\r\nNoColon\r\n\r\n",
    b"NATS/1.0\r\n: v\r\n\r\n",
)  # fmt: skip
# Servers append their lines to these too, and break the line before.
_ENDLESS_BLOCKS = (
    b"\r\n", b"NATS/1.0\r\nA: 1", b"NATS/1.0\r\nA: 1\r\n", b"NATS/1.0\nA: 1\n\n", b"xy", b"abc", b"NATS/1.0\r\n",
)  # fmt: skip
_PAYLOADS = (b"", b"x", b"\r\n", b"MSG fake 1 5\r\n", b"0" * 40, bytes(range(256)), b"p" * 2000)
_LONG_PAYLOAD = b"q" * 70_000


def draw_message(random: Random, subject: bytes, number: int) -> Message:
    """Draw a message on this subject. Its block may make a server act; ``number`` makes unique ids unique."""
    return Message(subject, draw_block(random, number, wild=True), draw_payload(random))


def draw_payload(random: Random) -> bytes:
    """Draw a payload, seldom a long one."""
    return _LONG_PAYLOAD if random.random() < 0.02 else random.choice(_PAYLOADS)


def draw_block(random: Random, number: int, *, wild: bool = False) -> bytes:
    """Draw a header block.

    Args:
        random: decides.
        number: of the message, for a message id of its own.
        wild: also draw blocks without an end, headers and statuses on which servers act, and message ids that come
            again.
    """
    chance = random.random()
    if chance < 0.25:
        return b""
    if chance < 0.31:
        return random.choice((*_ODD_BLOCKS, *_ENDLESS_BLOCKS) if wild else _ODD_BLOCKS)
    lines = [_line(random) for _ in range(random.choice((1, 1, 2, 3, 5)))]
    if random.random() < 0.2:
        lines.append(random.choice(lines))
    if random.random() < 0.2:
        lines.append(random.choice(_FAKES))
    if random.random() < 0.06:
        lines.append(b"Nats-Msg-Id: id-%d" % (0 if wild and random.random() < 0.3 else number))
    if wild and random.random() < 0.02:
        lines += [b"Nats-Request-Info: {%d}" % at for at in range(random.choice((2, 3)))]
    if wild and random.random() < 0.06:
        lines += random.choices(_ACTING, k=random.choice((1, 1, 2)))
    random.shuffle(lines)
    first = random.choice((*_STATUS, _CONTROL) if wild else _STATUS) if random.random() < 0.05 else b"NATS/1.0"
    return headers(*lines, first=first)


def headers(*lines: str | bytes, first: bytes = b"NATS/1.0") -> bytes:
    """Return the header block that has these lines."""
    return b"".join((line.encode() if isinstance(line, str) else line) + b"\r\n" for line in (first, *lines, b""))


def _line(random: Random) -> bytes:
    return random.choice(_NAMES) + random.choice(_COLONS) + random.choice(_VALUES)
