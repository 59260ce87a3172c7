"""Answers as servers of 2.9.10, 2.10.27 and 2.15.1 write them, and what is none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.client.pub_ack import SOURCE_RECORD_REFUSED, PubAck


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"stream":"T", "seq":8}', PubAck("stored", "T", 8)),
        (b'{"stream":"T", "domain":"hub", "seq":8}', PubAck("stored", "T", 8)),
        (b'{"stream":"T","seq":8,"batch":"b","count":2}', PubAck("stored", "T", 8)),
        (b'{"stream":"T","seq":8,"duplicate": true}', PubAck("duplicate", "T", 8)),
        (b'{"stream":"T","seq":8,"duplicate":false}', PubAck("stored", "T", 8)),
    ],
)
def test_what_is_in_the_stream(payload: bytes, expected: PubAck) -> None:
    assert PubAck.parse(b"", payload) == expected


@pytest.mark.parametrize(
    ("code", "err_code", "description"),
    [
        (503, 10077, "maximum messages exceeded"),
        (503, 10077, "maximum bytes exceeded"),
        (503, 10077, "maximum messages per subject exceeded"),
        (503, 10023, "insufficient resources"),
        (503, 10008, "JetStream system temporarily unavailable"),
        (503, 10077, "no space left on device"),
        (400, 10158, "duplicate message id is in process"),
        (409, 10158, "duplicate message id is in process"),
    ],
)
def test_what_may_help_to_try_again(code: int, err_code: int, description: str) -> None:
    error = {"code": code, "err_code": err_code, "description": description}
    pub_ack = PubAck.parse(b"", json.dumps({"error": error, "stream": "F", "seq": 0}).encode())
    assert pub_ack == PubAck("later", "F", 0, err_code, description)


@pytest.mark.parametrize(
    ("code", "err_code", "description"),
    [
        (400, 10054, "message size exceeds maximum allowed"),
        (400, 10071, "wrong last sequence: 12"),
        (400, 10060, "expected stream does not match"),
        (400, 10109, "message rollup not permitted"),
        (500, 10111, "rollup not permitted"),
        (400, 10166, "per-message TTL is disabled"),
        (400, SOURCE_RECORD_REFUSED, "message stream source header is not allowed"),
        (400, 10109, "invalid JetStream stream: sealed"),
    ],
)
def test_what_is_refused_permanently(code: int, err_code: int, description: str) -> None:
    error = {"code": code, "err_code": err_code, "description": description}
    pub_ack = PubAck.parse(b"", json.dumps({"error": error, "stream": "F", "seq": 0}).encode())
    assert pub_ack == PubAck("refused", "F", 0, err_code, description)


@pytest.mark.parametrize(
    ("block", "description"),
    [
        (b"NATS/1.0 503\r\n\r\n", "no stream answers (503)"),
        (b"NATS/1.0 503 No Responders\r\n\r\n", "no stream answers (503)"),
        (b"", "an empty answer"),
    ],
)
def test_no_listener_is_a_matter_of_time(block: bytes, description: str) -> None:
    assert PubAck.parse(block, b"") == PubAck("later", description=description)


def test_an_id_that_was_only_taken_note_of_is_not_stored_yet() -> None:
    pub_ack = PubAck.parse(b"", b'{"stream":"T","seq":0,"duplicate":true}')
    assert (pub_ack.kind, pub_ack.sequence) == ("later", 0)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", True),  # no answer, or none in time
        (b'{"stream":"T","seq":0,"duplicate":true}', True),
        (b'{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"seq":0}', True),
        (b"+OK", True),  # another responder was faster than the stream
        (b'{"stream":"T","seq":8}', False),
        (b'{"stream":"T","seq":8,"duplicate":true}', False),
        (b'{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"T"}', False),
        (b'{"error":{"code":400,"err_code":10002,"description":"resource limits exceeded for account"}}', False),
        (b'{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}', False),
    ],
)
def test_whether_it_may_be_stored_all_the_same(payload: bytes, expected: bool) -> None:
    assert PubAck.parse(b"", payload).leaves_open is expected


@pytest.mark.parametrize(
    "payload",
    [
        *(b"+OK", b"ok", b"null", b"[]", b"7", b'"stored"', b"{", b"\xff", b" "),
        *(b'{"stream":"T","seq":"x"}', b'{"stream":"T","seq":null}', b'{"stream":"T","seq":[8]}'),
        # Who answers without naming a stream or a sequence is no stream: nothing says that anything is stored.
        *(
            b"{}",
            b'{"seq":8}',
            b'{"stream":"T"}',
            b'{"stream":"T","seq":0}',
            b'{"ok":true}',
            b'{"seq":8,"duplicate":true}',
        ),
        *(b'{"error":"no"}', b'{"error":7}', b'{"error":["x"]}', b'{"error":{"code":"x"}}', b'{"error":{"code":null}}'),
        *(b'{"stream":"T","seq":Infinity}', b'{"stream":"T","seq":-1}', b"[" * 100_000),
    ],
)
def test_what_is_no_streams_answer_is_never_taken_for_stored(payload: bytes) -> None:
    pub_ack = PubAck.parse(b"", payload)
    assert pub_ack.kind == "refused"
    assert pub_ack.description.startswith("not a stream's answer: ")


def test_a_very_long_wrong_answer_is_not_shown_whole() -> None:
    assert len(PubAck.parse(b"", b"x" * 10_000).description) < 200


@pytest.mark.parametrize(
    ("err_code", "description", "expected"),
    [
        (10071, "wrong last sequence: 12", 12),
        (10071, "wrong last sequence: 0", 0),
        (10071, "wrong last sequence", None),
        (10071, "wrong last sequence: x", None),
        (10054, "message size exceeds maximum allowed: 12", None),
    ],
)
def test_a_wrong_expectation_names_the_last_sequence(err_code: int, description: str, expected: int | None) -> None:
    error = {"code": 400, "err_code": err_code, "description": description}
    pub_ack = PubAck.parse(b"", json.dumps({"error": error, "stream": "T", "seq": 0}).encode())
    assert pub_ack.last_sequence == expected


@given(st.binary(max_size=30), st.binary(max_size=60))
def test_any_bytes_get_a_pub_ack(block: bytes, payload: bytes) -> None:
    assert PubAck.parse(block, payload).kind in ("later", "refused")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "stream", "seq", "duplicate", "code", "err_code"]), inner, max_size=5
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_gets_a_pub_ack_and_only_a_stream_with_a_sequence_stores(answer: object) -> None:
    pub_ack = PubAck.parse(b"", json.dumps(answer).encode())
    if pub_ack.kind in ("stored", "duplicate"):
        assert pub_ack.stream
        assert pub_ack.sequence > 0


def test_no_answer_is_that_of_no_responders() -> None:
    assert PubAck.of(None) == PubAck.parse(b"NATS/1.0 503\r\n\r\n", b"")
    stored = b'{"stream":"S", "seq":5}'
    assert PubAck.of((b"_INBOX.1", b"", b"", stored)) == PubAck.parse(b"", stored)
