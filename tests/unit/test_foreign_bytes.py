"""What others may have written: advisories, audits, provenance headers. Nothing of it stops a rule or begins a line."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_bridge.client.audit_advisories import read_audit
from nats_bridge.kinds.advisories.advisory import Advisory, advisory_block, attached_block
from nats_transforms import header_block
from nats_transforms.copy_id import CopyId, without_copy_id
from nats_transforms.republish import StoredMessage
from nats_transforms.source_record import HEADER, TWIN_HEADER, SourceRecord, first_record

SUBJECT = b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ORDERS.worker"
GOOD: dict[str, Any] = {
    "type": "io.nats.jetstream.advisory.v1.max_deliver",
    "id": "iD1",
    "timestamp": "2026-11-21T09:21:25.8Z",
    "stream": "ORDERS",
    "consumer": "worker",
    "stream_seq": 7,
    "deliveries": 5,
    "reason": "why",
}
TEXTS = st.text(max_size=20) | st.sampled_from(
    [
        "\r\nInjected: 1",
        "a\nb",
        "\x00",
        "\ud800",
        "2026-99-99T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z",
        "0001-01-01T00:00:00Z",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from([-1, 2**64, 10**300])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
SPACING = st.sampled_from([None, 1])
BLOCKS = st.just(b"") | st.binary(max_size=60).map(lambda raw: b"NATS/1.0\r\n" + raw + b"\r\n\r\n")


def _is_one_block(block: bytes, original: bytes, subject: bytes) -> None:
    """Framed as a header block, and whatever was added stands in lines of its own."""
    assert block.startswith(b"NATS/1.0")
    assert block.endswith(b"\r\n\r\n")
    if b"Injected" not in original + subject:
        assert b"\nInjected" not in block


def _made(advisory: Advisory, block: bytes, subject: bytes) -> None:
    _is_one_block(
        advisory_block(advisory, size=len(advisory.payload), note="unreadable: \r\nInjected: 1"), b"", subject
    )
    stored = StoredMessage(b"orders.eu", block, b"body", 7, 1_795_252_885_439_282_399)
    if advisory.names_a_message:
        made = attached_block(advisory, stored, timed=True)
        _is_one_block(made, block, subject)
        assert header_block.read(made, b"Nats-Sequence") == b"7"
        json.loads(header_block.read(made, b"Nats-Bridge-Advisory-Json") or b"")


@settings(max_examples=3 * settings.default.max_examples)
@given(member=st.sampled_from([*GOOD, "other"]), value=VALUES, indent=SPACING, block=BLOCKS)
def test_an_advisory_with_any_value_anywhere(member: str, value: Any, indent: int | None, block: bytes) -> None:
    payload = json.dumps({**GOOD, member: value}, indent=indent).encode("utf-8", "surrogatepass")
    _made(Advisory.read(SUBJECT, payload), block, b"")


@settings(max_examples=2 * settings.default.max_examples)
@given(payload=st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode()), block=BLOCKS)
def test_an_advisory_that_is_anything(payload: bytes, block: bytes) -> None:
    advisory = Advisory.read(SUBJECT, payload)
    assert advisory.payload == payload
    _made(advisory, block, b"")


@settings(max_examples=2 * settings.default.max_examples)
@given(start=st.integers(0, 200), length=st.integers(0, 20), other=st.binary(max_size=6))
def test_an_advisory_with_other_bytes_in_it(start: int, length: int, other: bytes) -> None:
    payload = json.dumps(GOOD).encode()
    _made(Advisory.read(SUBJECT, payload[:start] + other + payload[start + length :]), b"", b"")


@pytest.mark.parametrize("payload", [b"[" * 100_000, b'{"a":' * 100_000, b'{"stream_seq":' + b"9" * 5000 + b"}"])
def test_an_advisory_that_is_too_much_says_nothing(payload: bytes) -> None:
    assert Advisory.read(SUBJECT, payload) == Advisory(SUBJECT, payload)


AUDIT: dict[str, Any] = {
    "type": "io.nats.jetstream.advisory.v1.api_audit",
    "timestamp": "2026-11-21T09:21:25.8Z",
    "subject": "$JS.API.STREAM.MSG.DELETE.ORDERS",
    "request": '{"seq": 7}',
    "response": '{"success": true}',
}


@settings(max_examples=3 * settings.default.max_examples)
@given(
    member=st.sampled_from(list(AUDIT)),
    value=VALUES | VALUES.map(json.dumps),
    subject=st.sampled_from(["STREAM.MSG.DELETE.S", "STREAM.PURGE.S", "STREAM.UPDATE.S"]),
)
def test_an_audit_with_any_value_anywhere(member: str, value: Any, subject: str) -> None:
    audit = {**AUDIT, "subject": f"$JS.API.{subject}", member: value}
    found = read_audit(json.dumps(audit).encode("utf-8", "surrogatepass"))
    assert found is None or found.stream is not None


@given(payload=st.binary(max_size=60))
def test_an_audit_that_is_anything(payload: bytes) -> None:
    assert read_audit(payload + b"STREAM.PURGE.") is None


_DIGITS = st.from_regex(rb"\A[0-9]{1,60}\Z") | st.sampled_from([b"9" * 5000, b"0" * 5000, b"18446744073709551616"])
_FIELDS = st.lists(st.binary(max_size=12) | _DIGITS, max_size=7).map(b" ".join)


@settings(max_examples=3 * settings.default.max_examples)
@given(value=_FIELDS | _FIELDS.map(lambda value: b"$JS.ACK." + value.replace(b" ", b".")))
def test_a_source_record_that_is_anything(value: bytes) -> None:
    for record in (
        SourceRecord.parse(value),
        *(first_record(b"NATS/1.0\r\n%b: %b\r\n\r\n" % (name, value), name) for name in (HEADER, TWIN_HEADER)),
    ):
        assert record is None or (0 <= record.sequence < 2**64 and record.source)


@pytest.mark.parametrize(
    "value",
    [b"S 18446744073709551616", b"S " + b"9" * 5000, b"S " + b"9" * 5000 + b" > >", b"S \xb2", b"S +1", b"S 1_0"],
)
def test_what_is_no_number_of_a_stream_is_no_record(value: bytes) -> None:
    assert SourceRecord.parse(value) is None


@settings(max_examples=2 * settings.default.max_examples)
@given(value=st.binary(max_size=60) | st.from_regex(rb"\Abridge-[0-9a-f]{12}-[0-9]{1,25}-[0-9]{1,25}\Z"))
def test_an_id_that_is_anything(value: bytes) -> None:
    found = CopyId.parse(value)
    assert found is None or value == b"bridge-%b-%b" % (found.entry, value.split(b"-", 2)[2])
    block = b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: %b\r\n\r\n" % value
    assert without_copy_id(block) in (block, b"NATS/1.0\r\nA: 1\r\n\r\n")
