"""Answers to the requests of leases that are none."""

from __future__ import annotations

import pytest

from nats_bridge.rules.leadership.lease_store import _json_of


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_json_object_is_no_answer(payload: bytes) -> None:
    assert _json_of(payload) is None
    assert _json_of(None) is None


def test_an_answer() -> None:
    assert _json_of(b'{"error": {"err_code": 10037}}') == {"error": {"err_code": 10037}}
