"""Dead letters are read as the rules write them, and their messages come back as they were."""

import json
from dataclasses import replace

import pytest

from nats_bridge.jobs.redrive.letter import Letter, read_letter, redrive_id, restored
from nats_bridge.jobs.redrive.redriving import Destinations, RedriveRequest
from nats_bridge.kinds.advisories.advisory import Advisory, advisory_block, attached_block
from nats_transforms.republish import StoredMessage

ADVISORY = Advisory.read(
    b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ORDERS.workers",
    json.dumps(
        {
            "type": "io.nats.jetstream.advisory.v1.max_deliver",
            "id": "abc",
            "timestamp": "2026-11-24T00:00:00Z",
            "stream": "ORDERS",
            "consumer": "workers",
            "stream_seq": 7,
            "deliveries": 5,
        }
    ).encode(),
)
ID = b"redrive-DLQ-00000000-1"


def message(block: bytes) -> StoredMessage:
    return StoredMessage(b"orders.eu.1", block, b"3 pears", 7, 1_700_000_000_000_000_000)


@pytest.mark.parametrize("timed", [True, False])
def test_a_letter_says_where_its_message_was(timed: bool) -> None:
    letter = read_letter(3, attached_block(ADVISORY, message(b""), timed=timed))
    stamp = b"2023-11-14T22:13:20Z" if timed else b""
    assert letter == Letter(
        3, "ORDERS", b"orders.eu.1", 7, stamp, "workers", "5 deliveries", rejected=False, complete=True
    )


def test_a_letter_without_its_payload_is_not_complete() -> None:
    block = attached_block(ADVISORY, message(b""), timed=True, headers_only=True)
    letter = read_letter(3, block)
    assert letter is not None
    assert not letter.complete


def test_an_advisory_alone() -> None:
    letter = read_letter(3, advisory_block(ADVISORY, note="too large"))
    assert letter is not None
    assert (letter.complete, letter.message) != (True, read_letter(4, advisory_block(ADVISORY)))
    assert Destinations([], "DLQ").obstacle(letter) == "its dead letter does not hold the message"


LETTER = b"NATS/1.0\r\nNats-Stream: %b\r\nNats-Subject: a\r\nNats-Sequence: %b\r\nNats-Bridge-Advisory: x\r\n\r\n"


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0\r\nA: b\r\n\r\n",
        LETTER % (b"A B", b"7"),
        LETTER % (b"A", b"seven"),
        LETTER % (b"A", b"7" * 5000),
    ],
)
def test_what_is_no_dead_letter(block: bytes) -> None:
    assert read_letter(1, block) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"A: 1\r\na:2 \r\n", b"A: 1\r\na:2 \r\n"),
        (b"Nats-Msg-Id: own\r\n", b"Nats-Bridge-Original-Msg-Id: own\r\n"),
        (b"Nats-Expected-Stream: X\r\nNats-Rollup: sub\r\nB: 1\r\n", b"B: 1\r\n"),
        (b"Nats-TTL: 1h\r\nNats-Incr: 1\r\nNats-Schedule: @at\r\n", b"Nats-TTL: 1h\r\n"),
        (b"Nats-Stream-Source: Y 4\r\nNats-Batch-Id: q\r\n", b""),
        (
            b"Nats-Bridge-Original-Msg-Id: own\r\nNats-Msg-Id: redrive-DLQ-00000000-7\r\n",
            b"Nats-Bridge-Original-Msg-Id: own\r\n",
        ),
        (
            b"Nats-Stream: B\r\nNats-Subject: b\r\nNats-Msg-Size: 7\r\n",
            b"Nats-Stream: B\r\nNats-Subject: b\r\nNats-Msg-Size: 7\r\n",
        ),
    ],
)
def test_a_message_comes_back_as_it_was_but_for_what_acts(before: bytes, after: bytes) -> None:
    original = b"NATS/1.0\r\n" + before + b"\r\n" if before else b""
    expected = b"NATS/1.0\r\n" + after + b"Nats-Msg-Id: " + ID + b"\r\n\r\n"
    assert restored(original, ID) == expected
    for timed in (True, False):
        assert restored(attached_block(ADVISORY, message(original), timed=timed), ID) == expected


def test_a_rejected_copy() -> None:
    block = (
        b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: rejected-eu-ORDERS-7-00ff\r\nNats-Stream: ORDERS\r\nNats-Subject: eu.1\r\n"
        b"Nats-Sequence: 7\r\nNats-Bridge-Rejected: too large (10054)\r\nNats-Bridge-Msg-Id: own\r\n\r\n"
    )
    letter = read_letter(1, block)
    assert letter == Letter(
        1,
        "ORDERS",
        b"eu.1",
        7,
        b"",
        "",
        "too large (10054)",
        rejected=True,
        complete=True,
        copy_id=b"rejected-eu-ORDERS-7-00ff",
    )
    assert restored(block, ID) == b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: " + ID + b"\r\n\r\n"


def test_ids_are_of_one_letter_of_one_stream() -> None:
    made = {
        redrive_id("D", "2026", 1),
        redrive_id("D", "2026", 2),
        redrive_id("D", "2027", 1),
        redrive_id("E", "2026", 1),
    }
    assert len(made) == 4


def test_filters() -> None:
    letter = Letter(3, "ORDERS", b"orders.eu.1", 7, b"", "workers", "No such customer", rejected=False, complete=True)
    for valid in (RedriveRequest("D"), RedriveRequest("D", consumer="workers", subject="orders.*.>")):
        assert valid.selects(letter)
    for bad in (RedriveRequest("D", consumer="worker"), RedriveRequest("D", subject="orders.us.*")):
        assert not bad.selects(letter)


def test_a_subject_that_is_not_utf_8_or_that_no_stream_takes() -> None:
    letter = read_letter(3, attached_block(ADVISORY, message(b""), timed=True))
    assert letter is not None
    assert Destinations([], "DLQ").obstacle(letter) == "no stream that answers takes its subject"
    unknown = replace(letter, subject="a.\ufffd".encode())
    assert Destinations([], "DLQ").obstacle(unknown).startswith("its subject is not UTF-8")
