"""The ids of dead letters: one for each message, also where a recreated source has another under the same sequence."""

from __future__ import annotations

from dataclasses import replace

from nats_bridge.kinds.copying.encoder import Rejected

LETTER = Rejected(7, b"s.a", b"NATS/1.0\r\nA: b\r\n\r\n", b"payload", "too large")


def test_the_same_message_has_the_same_identity_whatever_the_reason() -> None:
    assert LETTER.identity == replace(LETTER, reason="another").identity


def test_another_message_of_the_same_sequence_has_another() -> None:
    others = [replace(LETTER, payload=b"other"), replace(LETTER, subject=b"s.b"), replace(LETTER, header_block=b"")]
    assert len({LETTER.identity, *(other.identity for other in others)}) == 4
