"""Deliveries in bulk are the same as deliveries one by one, whatever they hold and wherever a read ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.client.batch_parser import Route
from nats_bridge.client.wire import Delivered, WireClient
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge_spark.source.bulk_parsing import BulkParser
from nats_bridge_spark.source.record_batches import Arrived

_MINE, _OTHER = b"7", b"8"
_BLOCK = b"NATS/1.0\r\nTag: a\r\nMSG x 7 $JS.ACK.a 3\r\n\r\n"


def _reply(number: int) -> bytes:
    return b"$JS.ACK.S.c.1.%d.%d.1700000000000000000.%d" % (number + 100, number, number)


def _delivery(sid: bytes, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> bytes:
    to = b" ".join(part for part in (subject, sid, reply) if part)
    if not block:
        return b"MSG %b %d\r\n%b\r\n" % (to, len(payload), payload)
    return b"HMSG %b %d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(payload), block, payload)


_SUBJECTS = st.sampled_from([b"a", b"a.b.c", b"with space", b"\xff.x", b"MSG", b"HMSG.7"])
_BLOCKS = st.sampled_from([b"", b"", _BLOCK, b"NATS/1.0\r\n\r\n", b"no header at all"])
_PAYLOADS = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"\r\n", b"MSG a 7 r 3\r\nabc\r\n", b"x\nHMSG a 7 $JS.ACK.x 1 2\r\n", b"PING\r\n", b"\nMSG "]
    ),
)
_MESSAGES = st.tuples(_SUBJECTS, _BLOCKS, _PAYLOADS)
_EVENTS = st.one_of(
    _MESSAGES,
    _MESSAGES,
    st.sampled_from([b"+OK\r\n", _delivery(_OTHER, b"other", b"", b"", b"MSG a 7 r 0\r\n\r\n")]),
    st.just(_delivery(_MINE, b"inbox", b"", b"NATS/1.0 408 Request Timeout\r\n\r\n", b"")),
    st.just(b"HMSG inbox 7  28 28\r\nNATS/1.0 409 Exceeds Max\r\n\r\n\r\n"),  # as 2.9 writes it
    st.just(_delivery(_MINE, b"inbox", b"$JS.FC.S.c.R", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"")),
)


def _wire(events: list[Any]) -> bytes:
    numbered = iter(range(1, len(events) + 1))
    return b"".join(
        event if isinstance(event, bytes) else _delivery(_MINE, event[0], _reply(next(numbered)), event[1], event[2])
        for event in events
    )


async def _parsed(data: bytes, cuts: list[int], *, bulk: bool) -> tuple[list[Delivered], list[Arrived]]:
    """What the parser makes of the bytes, in reads that end at the cuts; and what of it came in bulk."""
    client = WireClient()
    seen: list[Delivered] = []
    in_bulk: list[Arrived] = []

    def arrived(messages: Arrived) -> None:
        in_bulk.append(messages)
        columns = (messages.subjects, messages.replies, messages.blocks, messages.payloads)
        seen.extend(zip(*(column.to_pylist() for column in columns), strict=True))

    parser: Any = client._ps

    def control(reply: bytes, block: bytes) -> None:
        seen.append((b"control", reply, block, b""))

    parser.routes[_MINE] = Route(seen.extend, control, BulkParser(arrived, worth=0) if bulk else None)
    parser.routes[_OTHER] = Route(lambda _: None, None)
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    for start, stop in pairwise(places):
        await parser.parse(data[start:stop])
    assert not parser._unread, "the parser waits for more"
    return seen, in_bulk


@given(st.lists(_EVENTS, max_size=30), st.lists(st.integers(min_value=0, max_value=5000), max_size=6))
async def test_bulk_and_one_by_one_agree(events: list[Any], cuts: list[int]) -> None:
    data = _wire(events)
    singly, _ = await _parsed(data, cuts, bulk=False)
    assert len(singly) >= sum(not isinstance(event, bytes) for event in events)
    assert (await _parsed(data, cuts, bulk=True))[0] == singly


async def test_what_is_regular_comes_in_bulk_whole_reads_at_once() -> None:
    events = [(b"a.b", _BLOCK if number % 3 else b"", b"x" * number) for number in range(500)]
    data = _wire(events)
    seen, in_bulk = await _parsed(data, [len(data) // 2], bulk=True)
    assert [len(message[3]) for message in seen] == list(range(500))
    assert sum(map(len, in_bulk)) >= 498  # what the cut went through may come alone
    sequences, times = Arrived.joined(in_bulk).numbers()
    assert sequences[0] == 101
    assert set(times.tolist()) == {1700000000000000000}


async def test_a_message_larger_than_many_reads_is_put_together() -> None:
    events = [(b"a", b"", b"y" * 10), (b"a", _BLOCK, b"\nMSG a 7 r 1\r\n" * 20_000), (b"a", b"", b"z")]
    data = _wire(events)
    seen, _ = await _parsed(data, list(range(0, len(data), 30_000)), bulk=True)
    assert [(message[2], message[3]) for message in seen] == [(block, payload) for _, block, payload in events]


_NUMBERS = st.one_of(st.integers(1, 12), st.integers(95, 105), st.integers(1, 2**63 - 1))


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS), min_size=1, max_size=40), st.booleans(), st.data())
def test_numbers_are_those_of_each_reply_subject(
    numbers: list[tuple[int, int, int, int]], of_a_domain: bool, data: st.DataObject
) -> None:
    shape = b"$JS.ACK.hub.HASH.S.c.1.%d.%d.%d.%d.r" if of_a_domain else b"$JS.ACK.S.c.1.%d.%d.%d.%d"
    arrived = Arrived.of([(b"a", shape % each, b"", b"") for each in numbers])
    arrived = arrived.first(data.draw(st.integers(1, len(numbers))))
    parsed = [AckReply.parse(reply.as_py()) for reply in arrived.replies]
    sequences, times = (column.tolist() for column in arrived.numbers())
    assert (sequences, times) == ([each.stream_sequence for each in parsed], [each.time_ns for each in parsed])


def test_a_reply_subject_without_numbers_is_an_error() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Arrived.of([(b"a", b"$JS.ACK.S.c.1.2.3.4x.5", b"", b"")]).numbers()


def test_numbers_are_read_with_a_domain_too() -> None:
    reply = b"$JS.ACK.hub.ACCHASH.S.c.1.42.7.1700000000000000001.3.random"
    arrived = Arrived.of([(b"a", reply, b"", b"")])
    assert [column.tolist() for column in arrived.numbers()] == [[42], [1700000000000000001]]
    assert AckReply.parse(arrived.last_reply).consumer_sequence == 7
