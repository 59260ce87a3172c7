"""The protocol of leaf connections on bytes: reads split anywhere, garbage, every kind of line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.bridge.client.leaf_protocol import (
    Event,
    Info,
    Interest,
    LeafParser,
    LeafProtocolError,
    Message,
    Ping,
    Pong,
    Refused,
    announcement,
    connect_line,
    message,
)

SUBJECTS = st.binary(min_size=2, max_size=12).map(lambda raw: b"s." + raw.translate(None, b" \r\n+|"))
BLOCKS = st.just(b"") | st.binary(max_size=40).map(lambda raw: b"NATS/1.0\r\n" + raw + b"\r\n\r\n")
PAYLOADS = st.binary(max_size=60) | st.sampled_from([b"\r\n", b"LMSG a 3\r\nabc\r\n", b"PING\r\n", b"\r", b"\n"])
MESSAGES = st.builds(Message, SUBJECTS, st.just(b"") | SUBJECTS, BLOCKS, PAYLOADS)

CONVERSATION: list[tuple[bytes, list[Event]]] = [
    (b'INFO {"version":"2.10.27","nonce":"abc"}\r\n', [Info({"version": "2.10.27", "nonce": "abc"})]),
    (b"LS+ orders.>\r\n", [Interest(b"orders.>", True)]),
    (b"LS+ orders.> workers 3\r\n", [Interest(b"orders.>", True)]),
    (b"LS- orders.>\r\n", [Interest(b"orders.>", False)]),
    (b"LMSG a 3\r\na\r\n\r\n", [Message(b"a", b"", b"", b"a\r\n")]),
    (b"LMSG a r 0\r\n\r\n", [Message(b"a", b"r", b"", b"")]),
    (b"LMSG a + r workers others 1\r\nx\r\n", [Message(b"a", b"r", b"", b"x")]),
    (b"LMSG a | workers 1\r\nx\r\n", [Message(b"a", b"", b"", b"x")]),
    (b"HMSG a r 12 14\r\nNATS/1.0\r\n\r\n\xff\x00\r\n", [Message(b"a", b"r", b"NATS/1.0\r\n\r\n", b"\xff\x00")]),
    (b"HMSG a + r workers 12 13\r\nNATS/1.0\r\n\r\nx\r\n", [Message(b"a", b"r", b"NATS/1.0\r\n\r\n", b"x")]),
    (b"PING\r\n", [Ping()]),
    (b"PONG\r\n", [Pong()]),
    (b"+OK\r\n", []),
    (
        b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n",
        [Refused('Permissions Violation for Publish to "a"')],
    ),
]


@pytest.mark.parametrize(("line", "events"), CONVERSATION)
def test_each_kind_of_line(line: bytes, events: list[Event]) -> None:
    assert LeafParser().feed(line) == events


@pytest.mark.parametrize("step", [1, 2, 3, 7, 50])
def test_reads_may_end_anywhere(step: int) -> None:
    data = b"".join(line for line, _ in CONVERSATION)
    parser = LeafParser()
    found = [event for at in range(0, len(data), step) for event in parser.feed(data[at : at + step])]
    assert found == [event for _, events in CONVERSATION for event in events]


@given(st.lists(MESSAGES), st.integers(1, 40))
def test_what_is_written_is_read_back(messages: list[Message], step: int) -> None:
    data = b"".join(message(*each) for each in messages)
    parser = LeafParser()
    found = [event for at in range(0, len(data), step) for event in parser.feed(data[at : at + step])]
    assert found == messages


@pytest.mark.parametrize(
    "garbage",
    [
        b"MSG a 1 1\r\nx\r\n",
        b"LMSG a b c 1\r\nx\r\n",
        b"LMSG a one\r\nx\r\n",
        b"LMSG a -1\r\n\r\n",
        b"LMSG a 99999999999\r\n",
        b"LMSG\r\n",
        b"HMSG a 5 1\r\nx\r\n",
        b"INFO []\r\n",
        b"INFO {\r\n",
        b"x" * (4 * 1024 * 1024 + 2),
    ],
)
def test_garbage_is_an_error(garbage: bytes) -> None:
    with pytest.raises(LeafProtocolError):
        LeafParser().feed(garbage)


def test_the_first_words() -> None:
    line = connect_line(Info({"version": "2.15.1"}), "bridge-orders", {"user": "leaf", "pass": "secret"})
    assert line.startswith(b"CONNECT ")
    assert line.endswith(b"\r\n")
    assert json.loads(line[8:]) == {
        "name": "bridge-orders",
        "version": "2.15.1",
        "headers": True,
        "user": "leaf",
        "pass": "secret",
    }
    assert announcement(b"bridge.orders.API.>") == b"LS+ bridge.orders.API.>\r\n"
