"""Fillers take the numbers that a source lacks, and nothing else changes."""

from __future__ import annotations

import pytest

from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.encoder import Operation
from nats_bridge.kinds.copying.writing.gap_filler import GapFiller


def operations(*numbers: int) -> list[Operation]:
    return [(b"%d" % number, b"HPUB t.x 12 12\r\nNATS/1.0\r\n\r\n\r\n") for number in numbers]


def flat(gap_filler: GapFiller, given: list[Operation]) -> list[tuple[int, bool]]:
    return [(int(number), fills) for piece, fills in gap_filler.pieces(given) for number, _ in piece]


def test_without_gaps_the_operations_stay_one_piece() -> None:
    gap_filler = GapFiller("rule", "A", b"key", None, 4)
    assert list(gap_filler.pieces(operations(5, 6, 7))) == [(operations(5, 6, 7), False)]
    assert list(gap_filler.pieces([])) == []
    assert list(gap_filler.pieces(operations(8))) == [(operations(8), False)]


def test_gaps_are_filled_in_front_of_what_follows() -> None:
    gap_filler = GapFiller("rule", "A", b"key", "t.filler")
    assert flat(gap_filler, operations(3, 4, 7)) == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
        (5, True),
        (6, True),
        (7, False),
    ]
    assert flat(gap_filler, operations(9)) == [(8, True), (9, False)]


def test_a_filler_is_an_empty_message_with_an_id_of_its_own() -> None:
    gap_filler = GapFiller("rule", "A", b"key", "t.filler")
    ((first, fills), _) = list(gap_filler.pieces(operations(2)))
    assert fills
    block = b"NATS/1.0\r\nNats-Msg-Id: bridge-key-1-0\r\n\r\n"
    assert first == [(b"1", b"HPUB t.filler %d %d\r\n%b\r\n" % (len(block), len(block), block))]


def test_a_large_gap_comes_in_pieces() -> None:
    gap_filler = GapFiller("rule", "A", b"key", "t.filler")
    pieces = list(gap_filler.pieces(operations(10_000)))
    assert sum(len(piece) for piece, fills in pieces if fills) == 9_999
    assert max(len(piece) for piece, _ in pieces) <= 2048


@pytest.mark.parametrize(("numbers", "missing"), [((3,), "1 to 2"), ((1, 3), "2")])
def test_a_gap_without_a_filler_subject_is_named(numbers: tuple[int, ...], missing: str) -> None:
    gap_filler = GapFiller("rule", "A", b"key", None)
    with pytest.raises(RuleRefusedError, match=f"stream 'A' has no message {missing} to copy"):
        list(gap_filler.pieces(operations(*numbers)))
