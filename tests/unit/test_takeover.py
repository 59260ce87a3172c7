"""The first message that a server republishes after it took over from a rule."""

import asyncio

from nats_bridge.client.wire import Delivered
from nats_bridge.kinds.republish.takeover import _see


def message(*lines: bytes) -> Delivered:
    return b"out.x", b"", b"NATS/1.0\r\n%b\r\n\r\n" % b"\r\n".join(lines), b""


async def test_only_the_stream_s_first_message_counts() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    others = [
        (b"out.x", b"", b"", b"without headers"),
        message(b"Nats-Sequence: of an order"),  # which would end the connection if it was read as a number
        message(b"Nats-Stream: OTHER", b"Nats-Sequence: 3"),
    ]
    _see(first, b"S", others)
    assert not first.done()
    _see(
        first, b"S", [message(b"Nats-Stream: S", b"Nats-Sequence: 7"), message(b"Nats-Stream: S", b"Nats-Sequence: 8")]
    )
    assert first.result() == 7
