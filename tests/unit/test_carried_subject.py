"""Subjects that servers 2.9.10 and 2.10.27 cut at an `@` when they come over a route; each line as one of them sent."""

import pytest

from nats_bridge.client.batch_parser import Route
from nats_bridge.client.wire import Delivered, WireClient

ACK = "$JS.ACK.S.c@d.1.2.2.1795875901059952261.4"
CUT = [
    ("s.a", "", "s.a"),
    ("example.com.login", "@s.bob", "s.bob@example.com.login"),
    ("b", "@s.a@", "s.a@@b"),
    ("_INBOX.x", "@s.x@", "s.x@"),
    ("_INBOX.x", "@s.a@b@", "s.a@b@"),
    ("3", "@s.1.2", "s.1.2@3"),
]


@pytest.mark.parametrize("block", ["", "NATS/1.0\r\nA: @\r\n\r\n"])
@pytest.mark.parametrize("step", [1, 10_000])
async def test_cut_subjects_are_restored(step: int, block: str) -> None:
    got: list[Delivered] = []
    client = WireClient()
    parser = client._batches
    parser.routes[b"7"] = Route(got.extend, None)
    read = "PONG\r\n"
    for subject, carried, _ in CUT:
        sizes = f"{len(block)} {len(block) + 1}" if block else "1"
        read += f"{'H' if block else ''}MSG {subject} 7 {ACK}{carried} {sizes}\r\n{block}@\r\nPONG\r\n"
    data = read.encode()
    for at in range(0, len(data), step):
        assert parser.take(data[at : at + step]) == b""
    assert [(subject.decode(), reply.decode()) for subject, reply, *_ in got] == [(whole, ACK) for *_, whole in CUT]


async def test_other_reply_subjects_stay() -> None:
    got: list[Delivered] = []
    client = WireClient()
    client._batches.routes[b"7"] = Route(got.extend, None)
    for reply in (b"a@b", b"$JS.ACK.S.c.1.2.2.4@b", b"$JS.ACK.S@T.c.1.2.2.1795875901059952261.4"):
        assert client._batches.take(b"MSG s 7 %b 0\r\n\r\n" % reply) == b""
        assert got.pop()[:2] == (b"s", reply)
