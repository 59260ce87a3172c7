"""The compiled loop writes what Python writes, byte for byte, whatever is read in whatever pieces."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.bridge.client.batch_parser import Route
from nats_bridge.bridge.client.wire import Delivered, WireClient
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.kinds.republish import encoder as republish_loop
from nats_bridge.bridge.kinds.republish.compiled import compiled_loop
from nats_bridge.bridge.kinds.republish.counters import RuleCounters
from nats_bridge.bridge.kinds.republish.encoder import RepublishEncoder
from nats_bridge.bridge.kinds.republish.retention import Retention, StreamLimits
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.republish import compile_republish

SID, OTHER = b"7", b"77"
LIMIT = 600  # bytes that the target takes
SECOND = 1_700_000_000_000_000_000  # nanoseconds
RULES: list[dict[str, object]] = [
    {"src": ">", "dest": "out.>"},
    {"src": "s.*", "dest": "out.$1"},
    {"src": "s.*", "dest": "out.{{partition(4,1)}}.{{split(1,-)}}"},
    {"src": "s.>", "dest": "out.>", "headers_only": True},  # is left to Python
]
BLOCKS = [
    b"",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\nA: 1\r\nA: 2\r\na:3\r\n\r\n",
    b"NATS/1.0\r\nLatin: \xe9\r\nEmpty:\r\n\r\n",
    b"NATS/1.0 503 No\r\nA: b\r\n\r\n",
    b"\r\n",
    b"X",
]
SUBJECTS = [b"s.a", b"s.b", b"s.long-one", b"s.a.b", b"other", b"s.\xff", b"s.own", b"s.x y", b"a 7"]
MESSAGES = st.tuples(
    st.sampled_from(SUBJECTS),
    st.sampled_from(BLOCKS),
    st.sampled_from([b"", b"x", b"\r\nMSG s.a 7 $JS.ACK.S.C.1.9.9.1.0 1\r\nx\r\n", b"y" * 300, b"z" * LIMIT]),
    st.sampled_from([1, 1, 1, 1, 1, 2]),  # by how much the stream's sequence rises
    st.sampled_from([0, 1, 999, 120_000_000, 1_000_000_000, 86_400_000_000_000, 31_556_952_000_000_001]),
    st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2]),  # how often it was delivered
)
LINES = st.sampled_from(
    [
        b"PONG\r\n",
        b"+OK\r\n",
        b"MSG a.b 77 3\r\nabc\r\n",
        b"MSG a.b 77 r 3\r\nabc\r\n",
        b"HMSG inbox 7 31 31\r\nNATS/1.0 100 Idle Heartbeat\r\n\r\n\r\n",
        b"HMSG inbox 7 $JS.FC.S.C.1 33 33\r\nNATS/1.0 100 FlowControl Requ\r\n\r\n\r\n",
    ]
)


def wire(events: list[Any], prefix: bytes) -> bytes:
    """What the server sends; `prefix` is what newer ones write before the stream in a reply subject."""
    out, stream, consumer, time = [], 0, 0, SECOND
    for event in events:
        if isinstance(event, bytes):
            out.append(event)
            continue
        subject, block, payload, step, later, deliveries = event
        stream, consumer, time = stream + step, consumer + 1, time + later
        reply = b"$JS.ACK.%bS.C.%d.%d.%d.%d.0" % (prefix, deliveries, stream, consumer, time)
        reply += b".token" if prefix else b""
        if block:
            sizes = len(block), len(block) + len(payload)
            out.append(b"HMSG %b 7 %b %d %d\r\n%b%b\r\n" % (subject, reply, *sizes, block, payload))
        else:
            out.append(b"MSG %b 7 %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload))
    return b"".join(out)


class Side:
    """A parser and an encoder, with or without the compiled loop between them."""

    def __init__(self, rule: dict[str, object], exclude: tuple[bytes, ...], *, compiled: bool, filtered: bool) -> None:
        self.counters = RuleCounters()
        republish = compile_republish("S", rule, NEWEST, exclude=exclude)
        own = (b"out.own", b"out.a.>")
        limits = Retention(StreamLimits())
        self.encoder = RepublishEncoder(republish, limits, self.counters, own_subjects=own, max_payload=LIMIT)
        self.out: list[bytes] = []
        self.controls: list[tuple[bytes, bytes, int]] = []
        self.in_bulk = 0
        self._next, self._handled, self._filtered = 1, 0, filtered
        self._compiled = compiled_loop(self.encoder) if compiled else None
        client = WireClient()
        self.parser: Any = client._ps
        self.parser.routes[SID] = Route(self._batch, self._control, self._take if compiled else None)
        self.parser.routes[OTHER] = Route(lambda _: None, None)

    def _batch(self, batch: list[Delivered]) -> None:
        self.encoder.run(batch, self.out)
        last = AckReply.parse(batch[-1][1])
        self._next, self._handled = last.consumer_sequence + 1, last.stream_sequence

    def _control(self, reply: bytes, block: bytes) -> None:
        self.controls.append((reply, block, self.counters.received))

    def _take(self, data: bytes, position: int, sid: bytes) -> int:
        assert self._compiled is not None, "nats-bridge-compiled is not there: make compiled-test builds it"
        made = self._compiled.run(data, position, sid, self._next, self._handled, filtered=self._filtered)
        if made is None:
            return position
        self._next, self._handled = self._next + made.messages, made.last
        self.in_bulk += made.messages
        self.out.append(made.operations)
        assert AckReply.parse(made.last_reply).stream_sequence == made.last
        assert AckReply.parse(made.first_reply).deliveries == 1
        return made.position

    async def read(self, data: bytes, cuts: list[int]) -> None:
        places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
        for start, stop in pairwise(places):
            await self.parser.parse(data[start:stop])
        assert not self.parser._unread, "the parser waits for more"


@pytest.mark.parametrize("prefix", [b"", b"_.hash."], ids=["short", "long"])
@given(
    rule=st.sampled_from(RULES),
    events=st.lists(MESSAGES | MESSAGES | MESSAGES | LINES, max_size=60),
    cuts=st.lists(st.integers(0, 9_000), max_size=6),
    exclude=st.sampled_from([(), (b"s.a",), (b"s.a.*", b"other"), (b"s.>",)]),
    filtered=st.booleans(),
    hot=st.sampled_from([0, 1_000, 1 << 20]),
)
async def test_both_write_the_same(
    prefix: bytes,
    rule: dict[str, object],
    events: list[Any],
    cuts: list[int],
    exclude: tuple[bytes, ...],
    filtered: bool,
    hot: int,
) -> None:
    data = wire(events, prefix)
    before, republish_loop._HOT_BYTES = republish_loop._HOT_BYTES, hot
    try:
        python = Side(rule, exclude, compiled=False, filtered=filtered)
        compiled = Side(rule, exclude, compiled=True, filtered=filtered)
        await python.read(data, cuts)
        await compiled.read(data, cuts)
    finally:
        republish_loop._HOT_BYTES = before
    assert b"".join(compiled.out) == b"".join(python.out)
    assert compiled.counters == python.counters
    assert compiled.controls == python.controls
    assert compiled.encoder._entries == python.encoder._entries
    assert dict(compiled.encoder.last_sequences.items()) == dict(python.encoder.last_sequences.items())
    assert python.counters.received == sum(not isinstance(event, bytes) for event in events)


@pytest.mark.parametrize("prefix", [b"", b"_.hash."], ids=["short", "long"])
async def test_what_is_common_is_compiled(prefix: bytes) -> None:
    events: list[Any] = [(b"s.%d" % (n % 50), BLOCKS[n % 4], b"x" * (n % 99), 1, n, 1) for n in range(3_000)]
    events[1_000:1_000] = [b"PONG\r\n"]
    data = wire(events, prefix)
    side = Side({"src": "s.*", "dest": "out.$1"}, (), compiled=True, filtered=False)
    await side.read(data, [len(data) // 3])
    assert (side.counters.received, side.in_bulk, side.counters.republished) == (3_000, 3_000, 3_000)


async def test_subjects_that_a_server_has_cut_are_left_to_python() -> None:
    cut = b"MSG c.d 7 $JS.ACK.S.C.1.%d.%d.1700000000000000000.0@s.a@b 1\r\nx\r\n"
    plain = b"MSG s.e 7 $JS.ACK.S.C.1.%d.%d.1700000000000000000.0 1\r\nx\r\n"
    data = b"".join([(plain if n % 3 else cut) % (n, n) for n in range(1, 9)])
    sides = [Side({"src": "s.>", "dest": "out.>"}, (), compiled=compiled, filtered=False) for compiled in (False, True)]
    for side in sides:
        await side.read(data, [len(data) // 3])
        assert b"".join(side.out).count(b"PUB out.a@b@c.d ") == 2
    assert b"".join(sides[0].out) == b"".join(sides[1].out)
