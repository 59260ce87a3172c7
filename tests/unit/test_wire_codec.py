"""The codec of the wire, fed by hand: reads split anywhere, garbage, sizes that no message has."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.errors import ProtocolError

from nats_bridge.client.batch_parser import BatchParser, Delivered, Route
from nats_bridge.client.wire import WireClient

SUBJECTS = st.binary(min_size=1, max_size=12).map(lambda raw: raw.translate(None, b" \r\n") or b"s")
BLOCKS = st.just(b"") | st.binary(max_size=40).map(lambda raw: b"NATS/1.0\r\n" + raw + b"\r\n\r\n")
PAYLOADS = st.binary(max_size=60) | st.sampled_from([b"\r\n", b"MSG a 1 3\r\nabc\r\n", b"PING\r\n", b"\r", b"\n"])
MESSAGES = st.lists(st.tuples(SUBJECTS, st.just(b"") | SUBJECTS, BLOCKS, PAYLOADS, st.sampled_from([b"1", b"2"])))


@dataclass
class Ears:
    """What a parser handed on, per subscription and in order."""

    received: dict[bytes, list[Delivered]] = field(default_factory=lambda: {b"1": [], b"2": []})
    controls: list[tuple[bytes, bytes]] = field(default_factory=list)

    def parser(self) -> BatchParser:
        parser = WireClient()._batches  # of a client that is not connected
        parser.routes[b"1"] = Route(self.received[b"1"].extend, None)
        parser.routes[b"2"] = Route(
            self.received[b"2"].extend, lambda reply, block: self.controls.append((reply, block))
        )
        return parser


def _operation(message: tuple[bytes, bytes, bytes, bytes, bytes]) -> bytes:
    subject, reply, block, payload, sid = message
    middle = reply + b" " if reply else b""
    if block:
        sizes = b"%d %d" % (len(block), len(block) + len(payload))
        return b"HMSG %b %b %b%b\r\n%b%b\r\n" % (subject, sid, middle, sizes, block, payload)
    return b"MSG %b %b %b%d\r\n%b\r\n" % (subject, sid, middle, len(payload), payload)


async def _feed(reads: Sequence[bytes]) -> Ears:
    """Hand reads on as nats-py's task does, and as they come from the socket; both must be the same."""
    ears, at_once = Ears(), Ears()
    parser, taking = ears.parser(), at_once.parser()
    for read in reads:
        await parser.parse(read)
        await taking.parse(taking.take(read))
    assert ears == at_once
    return ears


def _expected(messages: Sequence[tuple[bytes, bytes, bytes, bytes, bytes]]) -> Ears:
    ears = Ears()
    for subject, reply, block, payload, sid in messages:
        if sid == b"2" and block.startswith(b"NATS/1.0 100") and not payload and not reply.startswith(b"$JS.ACK."):
            ears.controls.append((reply, block))
        else:
            ears.received[sid].append((subject, reply, block, payload))
    return ears


@settings(max_examples=2 * settings.default.max_examples)
@given(messages=MESSAGES, data=st.data())
def test_reads_may_end_anywhere(messages: list[tuple[bytes, bytes, bytes, bytes, bytes]], data: st.DataObject) -> None:
    stream = b"".join(map(_operation, messages))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    reads = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert asyncio.run(_feed(reads)) == _expected(messages)


_SAMPLE = [
    (b"orders.eu", b"", b"", b"plain", b"1"),
    (b"orders.eu", b"reply.to", b"NATS/1.0\r\nA: 1\r\n\r\n", b"", b"1"),
    (b"other", b"", b"NATS/1.0\r\n\r\n", b"MSG x 1 3\r\nabc\r\n", b"2"),
    (b"beat", b"$JS.FC.x", b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"", b"2"),
    (b"a", b"$JS.ACK.S.c.1.1.1.1.0", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"", b"2"),
    (b"with space", b"$JS.ACK.S.c.1.2.2.1.0", b"", b"\r\n\r\n", b"1"),
    (b"orders", b"", b"", b"", b"2"),
]


def _sample_expected() -> Ears:
    return _expected(_SAMPLE)


def test_two_reads_split_at_every_byte() -> None:
    stream = b"+OK\r\n" + b"".join(map(_operation, _SAMPLE)) + b"+OK\r\n"
    for place in range(len(stream) + 1):
        assert asyncio.run(_feed([stream[:place], stream[place:]])) == _sample_expected(), place


def test_a_read_for_every_byte() -> None:
    stream = b"".join(map(_operation, _SAMPLE))
    assert asyncio.run(_feed([stream[n : n + 1] for n in range(len(stream))])) == _sample_expected()


@pytest.mark.parametrize(
    "line",
    [
        b"MSG a 1 -1\r\n",
        b"MSG a 1 -20\r\n",
        b"MSG a 1 99999999999999999999\r\n",
        b"MSG a 1 268435457\r\n",
        b"MSG a 1 x\r\nx\r\n",
        b"MSG\r\n",
        b"MSG a\r\n",
        b"HMSG a 1 5 -1\r\n",
        b"HMSG a 1 -3 4\r\nabcd\r\n",
        b"HMSG a 1 9 4\r\nabcd\r\nabcdefgh",
        b"HMSG a 1 x 4\r\nabcd\r\n",
        b"MSG a one 1\r\nx\r\n",
        b"INFO\r\n",
        b"INFO {\r\n",
        b"INFO 5\r\n",
        b"INFO []\r\n",
        b"INFO " + b"[" * 100_000 + b"\r\n",
        b"HELLO\r\n",
        b"msg a 1 1\r\nx\r\n",
        b"\r\n",
        b" \r\n",
        b"\xff\xfe\r\n",
    ],
)
async def test_what_is_not_the_protocol_ends_the_connection(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        await Ears().parser().parse(b"MSG a 1 1\r\nx\r\n" + line)


async def test_a_line_without_an_end_is_not_waited_for_endlessly() -> None:
    parser = Ears().parser()
    fed = 0
    with contextlib.suppress(ProtocolError):
        while fed < 100:
            await parser.parse(b"x" * 1_000_000)
            fed += 1
    assert fed == 4


async def test_a_large_message_is_taken_whole() -> None:
    payload = random.Random(1).randbytes(20_000_000)
    stream = b"MSG a 1 %d\r\n%b\r\n" % (len(payload), payload)
    ears = await _feed([stream[n : n + 262_144] for n in range(0, len(stream), 262_144)])
    assert ears.received[b"1"] == [(b"a", b"", b"", payload)]


def _harmless(raw: bytes) -> bytes:
    """Without what needs a connection to be answered: it is the server's word, not a message."""
    return raw.replace(b"PING", b"PUNG").replace(b"-ERR", b"-ARR")


_GARBAGE = st.binary(max_size=80).map(_harmless)


@settings(max_examples=2 * settings.default.max_examples)
@given(garbage=_GARBAGE, messages=MESSAGES, data=st.data())
def test_garbage_is_refused_or_waited_for_and_nothing_else(
    garbage: bytes, messages: list[tuple[bytes, bytes, bytes, bytes, bytes]], data: st.DataObject
) -> None:
    stream = _harmless(b"".join(map(_operation, messages)))  # behind garbage, payloads may be read as lines
    place = data.draw(st.integers(0, len(stream)))
    with contextlib.suppress(ProtocolError):
        asyncio.run(_feed([stream[:place] + garbage, stream[place:]]))


@dataclass
class Turns:
    """Which subscription was handed how many messages, turn by turn."""

    turns: list[tuple[bytes, int]] = field(default_factory=list)

    def parser(self, *sids: bytes) -> BatchParser:
        parser = WireClient()._batches
        for sid in sids:
            parser.routes[sid] = Route(
                lambda batch, sid=sid: self.turns.append((sid, len(batch))),  # type: ignore[misc]
                lambda _, __, sid=sid: self.turns.append((sid, 0)),  # type: ignore[misc]
            )
        return parser


def _delivery(sid: bytes, number: int, payload: bytes = b"plain") -> bytes:
    return b"MSG orders.%d %b $JS.ACK.S.c.1.%d.1.1.0 %d\r\n%b\r\n" % (number, sid, number, len(payload), payload)


@pytest.mark.parametrize("payload", [b"plain", b"two\r\nlines"])
async def test_a_read_is_one_batch_for_each_subscription_whatever_their_order(payload: bytes) -> None:
    reported = Turns()
    await reported.parser(b"1", b"2").parse(b"".join(_delivery(b"12"[n % 2 :][:1], n, payload) for n in range(10)))
    assert reported.turns == [(b"1", 5), (b"2", 5)]


@pytest.mark.parametrize("payload", [b"two\r\nlines", b"a\r\nb\r\nc", b"\r\n"])
@pytest.mark.parametrize("asks", [True, False])
async def test_no_subscription_is_handed_nothing_wherever_a_read_ends(payload: bytes, asks: bool) -> None:
    answer = b"MSG inbox.g7 1 %d\r\n%b\r\n" % (len(payload), payload)
    whole = _delivery(b"1", 1, payload) if asks else answer
    for end in range(len(whole)):
        reported = Turns()
        parser = reported.parser(b"1")
        await parser.parse(whole[:end])
        assert reported.turns == []
        await parser.parse(whole[end:])
        assert reported.turns == [(b"1", 1)]


async def test_answers_with_one_reply_subject_are_distinguished_by_content() -> None:
    line = b"MSG inbox.g7 %b 3\r\n%b\r\n"
    said = [(b"1", b"abc"), (b"1", b"def"), (b"2", b"ghi"), (b"1", b"jkl"), (b"1", b"\r\nm"), (b"1", b"nop")]
    ears = await _feed([b"".join(line % one for one in said)])
    assert [message[3] for message in ears.received[b"1"]] == [b"abc", b"def", b"jkl", b"\r\nm", b"nop"]
    assert ears.received[b"2"] == [(b"inbox.g7", b"", b"", b"ghi")]


async def test_a_status_follows_the_messages_of_its_own_subscription_only() -> None:
    reported = Turns()
    heartbeat = _operation((b"beat", b"", b"NATS/1.0 100 Idle Heartbeat\r\n\r\n", b"", b"1"))
    await reported.parser(b"1", b"2").parse(_delivery(b"2", 1) + _delivery(b"1", 1) + heartbeat + _delivery(b"1", 2))
    assert reported.turns == [(b"1", 1), (b"1", 0), (b"2", 1), (b"1", 1)]


@pytest.mark.parametrize("size", [0, 1, 5, 128, 2_000, 5_000])
async def test_messages_that_are_cut_by_a_read_come_in_order_whatever_their_size(size: int) -> None:
    stream = b"".join(_delivery(b"1", n, b"%d" % (n % 10) * size) for n in range(40))
    for read in (1_000, 1_023, 7_777):
        ears = await _feed([stream[n : n + read] for n in range(0, len(stream), read)])
        assert [message[0] for message in ears.received[b"1"]] == [b"orders.%d" % n for n in range(40)]
        assert [message[3] for message in ears.received[b"1"]] == [b"%d" % (n % 10) * size for n in range(40)]
