"""A subscription that takes deliveries in bulk is asked first, and gets everything in order with what it leaves."""

from itertools import pairwise
from typing import Any

import pytest

from nats_bridge.client.batch_parser import Route
from nats_bridge.client.wire import Delivered, WireClient

MINE, OTHER = b"7", b"8"


def message(sid: bytes, payload: bytes) -> bytes:
    return b"MSG s %b r %d\r\n%b\r\n" % (sid, len(payload), payload)


class Taking:
    """Takes at most so many messages at a time; notes what it took, and what was left to batches."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.bulk: list[bytes] = []
        self.all: list[bytes] = []

    def take(self, data: bytes, position: int, sid: bytes) -> int:
        assert sid == MINE
        for _ in range(self._most):
            line, end, rest = data[position:].partition(b"\r\n")
            if not end or line.split(b" ")[2:3] != [MINE] or len(rest) < (size := int(line.split(b" ")[-1])) + 2:
                break
            self.bulk.append(rest[:size])
            self.all.append(rest[:size])
            position += len(line) + size + 4
        return position

    def batch(self, batch: list[Delivered]) -> None:
        self.all += [payload for *_, payload in batch]


@pytest.mark.parametrize("most", [0, 1, 3, 1_000])
@pytest.mark.parametrize("step", [1, 7, 40, 10_000])
async def test_everything_comes_once_and_in_order(most: int, step: int) -> None:
    taking, others = Taking(most), Taking(0)
    client = WireClient()
    parser: Any = client._ps
    parser.routes[MINE] = Route(taking.batch, None, taking.take)
    parser.routes[OTHER] = Route(others.batch, None)
    wanted = [b"%d" % number * (number % 9) for number in range(60)]
    lines = [message(MINE, payload) for payload in wanted]
    lines[50:50] = [message(OTHER, b"other")]
    lines[20:20] = [b"PONG\r\n"]
    data = b"".join(lines)
    for start, stop in pairwise([*range(0, len(data), step), len(data)]):
        await parser.parse(data[start:stop])
    assert taking.all == wanted
    assert others.all == [b"other"]
    if most == 1_000 and step == 10_000:
        # Behind PONG it is asked again; behind another subscription's message only with the next read.
        assert len(taking.bulk) == 50
