"""Answers to the requests of leases that are none."""

import base64

import pytest

from nats_bridge.rules.leadership.lease import Sighting
from nats_bridge.rules.leadership.lease_store import _json_of, _sighting


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_json_object_is_no_answer(payload: bytes) -> None:
    assert _json_of(payload) is None
    assert _json_of(None) is None


def test_an_answer() -> None:
    assert _json_of(b'{"error": {"err_code": 10037}}') == {"error": {"err_code": 10037}}


@pytest.mark.parametrize("ttl", ["NaN", "null", '"soon"'])
def test_a_record_whose_time_is_not_a_number_is_of_another_client(ttl: str) -> None:
    """With such a time the lease would never be free."""
    record = f'{{"holder": "a", "term": 1, "beat": 1, "ttl": {ttl}, "released": false}}'
    message = {"seq": 7, "data": base64.b64encode(record.encode()).decode()}
    assert _sighting(message) == Sighting(7, None)
