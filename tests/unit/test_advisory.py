"""What is made of advisories: header blocks, and advisories that are not what they seem."""

import json

import pytest

from nats_bridge.kinds.advisories.advisory import Advisory, advisory_block, attached_block
from nats_transforms import header_block
from nats_transforms.republish import StoredMessage

SUBJECT = b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ORDERS.worker"
PAYLOAD = (
    b'{"type":"io.nats.jetstream.advisory.v1.max_deliver","id":"iD1","timestamp":"2026-11-21T09:21:25.8Z",'
    b'"stream":"ORDERS","consumer":"worker","stream_seq":7,"deliveries":5}'
)
TIME = 1_795_252_885_439_282_399


def stored(block: bytes = b"", subject: bytes = b"orders.eu") -> StoredMessage:
    return StoredMessage(subject, block, b"body", 7, TIME)


def test_an_advisory_alone() -> None:
    advisory = Advisory.read(SUBJECT, PAYLOAD)
    assert advisory_block(advisory) == b"NATS/1.0\r\nNats-Subject: " + SUBJECT + b"\r\nNats-Msg-Id: iD1\r\n\r\n"
    assert advisory_block(advisory, size=9, note="gone") == (
        b"NATS/1.0\r\nNats-Subject: "
        + SUBJECT
        + b"\r\nNats-Bridge-Message: gone\r\nNats-Msg-Id: iD1\r\nNats-Msg-Size: 9\r\n\r\n"
    )


def test_the_message_with_its_advisory() -> None:
    block = attached_block(Advisory.read(SUBJECT, PAYLOAD), stored(b"NATS/1.0\r\nA: 1\r\na:2 \r\n\r\n"), timed=True)
    assert block == (
        b"NATS/1.0\r\nA: 1\r\na:2 \r\nNats-Stream: ORDERS\r\nNats-Subject: orders.eu\r\nNats-Sequence: 7\r\n"
        b"Nats-Time-Stamp: 2026-11-21T09:21:25.439282399Z\r\n"
        b"Nats-Bridge-Advisory: io.nats.jetstream.advisory.v1.max_deliver\r\nNats-Bridge-Advisory-Id: iD1\r\n"
        b"Nats-Bridge-Consumer: worker\r\nNats-Bridge-Deliveries: 5\r\nNats-Bridge-Advisory-Json: "
        + PAYLOAD
        + b"\r\nNats-Msg-Id: iD1\r\n\r\n"
    )
    untimed = attached_block(Advisory.read(SUBJECT, PAYLOAD), stored(), timed=False, headers_only=True)
    assert b"Nats-Time-Stamp" not in untimed
    assert untimed.endswith(b"\r\nNats-Msg-Size: 4\r\n\r\n")


def test_what_would_act_in_a_stream_is_renamed() -> None:
    acting = [
        "Msg-Id",
        "Rollup",
        "TTL",
        "Stream-Source",
        "Incr",
        "Expected-Stream",
        "Expected-Last-Msg-Id",
        "Expected-Last-Subject-Sequence",
        "Batch-Id",
        "Batch-Commit",
        "Schedule",
        "Schedule-Target",
    ]
    lines = b"".join(b"Nats-%b: v\r\n" % name.encode() for name in acting)
    block = attached_block(Advisory.read(SUBJECT, PAYLOAD), stored(b"NATS/1.0\r\n" + lines + b"\r\n"), timed=True)
    assert block.count(b"\nNats-Msg-Id:") == 1
    assert header_block.read(block, b"Nats-Msg-Id") == b"iD1"
    for name in acting:
        assert header_block.read(block, b"Nats-Bridge-Original-" + name.encode()) == b"v"
        # A server looks for the name anywhere in the block, and gives up where it is not a line's beginning.
        assert name == "Msg-Id" or b"Nats-" + name.encode() + b":" not in block


def test_a_dead_letter_that_fails_again_names_its_last_failure() -> None:
    first = attached_block(Advisory.read(SUBJECT, PAYLOAD), stored(), timed=True)
    again = PAYLOAD.replace(b"iD1", b"iD2").replace(b'"deliveries":5', b'"deliveries":9')
    second = attached_block(Advisory.read(SUBJECT, again), stored(first), timed=True)
    assert second.count(b"Nats-Bridge-Deliveries") == second.count(b"Nats-Bridge-Advisory-Json") == 1
    assert header_block.read(second, b"Nats-Bridge-Deliveries") == b"9"
    assert header_block.read(second, b"Nats-Bridge-Original-Msg-Id") == b"iD1"


def test_texts_of_others_begin_no_header() -> None:
    said = json.loads(PAYLOAD) | {"reason": "bad\r\nNats-Msg-Id: forged\r\n", "consumer": "c\nX: y", "id": "i\rd"}
    block = attached_block(Advisory.read(SUBJECT, json.dumps(said, indent=1).encode()), stored(), timed=True)
    names = [line.split(b":")[0] for line in block.split(b"\r\n")[1:-2]]
    assert b"X" not in names
    assert names.count(b"Nats-Msg-Id") == 1
    assert b"\n" not in block.replace(b"\r\n", b"")
    json_line = header_block.read(block, b"Nats-Bridge-Advisory-Json")
    assert json_line is not None
    assert json.loads(json_line) == said


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"not json",
        b"[]",
        b"17",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"stream":"S"}',
        b'{"stream":"S","stream_seq":"7"}',
        b'{"stream":"S","stream_seq":-7}',
        b'{"stream":"S","stream_seq":true}',
        b'{"stream":"S.T","stream_seq":7}',
        b'{"stream":"S\\r\\nPUB x 0","stream_seq":7}',
        b'{"stream":"\\ud800","stream_seq":7}',
        b'{"stream":["S"],"stream_seq":7}',
    ],
)
def test_advisories_about_no_message(payload: bytes) -> None:
    """Any client in the account may publish there."""
    advisory = Advisory.read(SUBJECT, payload)
    assert not advisory.names_a_message
    assert advisory_block(advisory).endswith(b"\r\n\r\n")
