"""A few rounds of `make twins`: random streams with what newer servers store, native features next to the bridge."""

from __future__ import annotations

import pytest

from nats_transforms.republish import StoredMessage
from tests.twins.comparing import Republished, compare_copies, compare_republished
from tests.twins.playing import Round, pair


@pytest.mark.parametrize(
    "version", [*(pytest.param(v, marks=pytest.mark.exhaustive) for v in ("2.10.27", "2.12.15", "2.14.10")), "2.15.3"]
)
async def test_native_and_bridge_differ_only_where_a_counter_says_so(version: str) -> None:
    async with pair(version) as servers:
        for seed in range(10, 18):
            played = Round(servers, seed)
            found = await played.play(120)
            assert not found.findings, (played.shape, found.findings[:3])
            assert found.equal > 10


def republished(sequence: int, last: int, payload: bytes = b"p") -> Republished:
    block = b"NATS/1.0\r\nNats-Sequence: %d\r\nNats-Last-Sequence: %d\r\n\r\n" % (sequence, last)
    return Republished(b"s.a", block, payload)


def test_what_no_counter_accounts_for_is_found() -> None:
    native = [republished(1, 0), republished(2, 1), republished(3, 2)]
    none = {"vanished": 0, "last_sequence_uncertain": 0}
    assert not compare_republished(native, native, none).findings
    assert compare_republished(native, native[:2], none).findings
    assert not compare_republished(native, native[:2], none | {"vanished": 1}).findings
    wrong = [*native[:2], republished(3, 0)]
    assert compare_republished(native, wrong, none).findings
    assert not compare_republished(native, wrong, none | {"last_sequence_uncertain": 1}).findings
    for bridged in (
        [*native[:2], republished(3, 2, b"other")],
        [native[1], native[0], native[2]],
        [*native, native[2]],
    ):
        assert compare_republished(native, bridged, {"vanished": 9, "last_sequence_uncertain": 9}).findings


def copy(sequence: int, more: bytes = b"") -> StoredMessage:
    record = b"Nats-Stream-Source: S %d > > s.a\r\n" % sequence
    return StoredMessage(b"s.a", b"NATS/1.0\r\n" + more + record + b"\r\n", b"p", sequence, 0)


def test_a_copy_may_be_missing_only_if_the_source_has_removed_it() -> None:
    native = [copy(1), copy(2), copy(3)]
    none = {"renamed_headers": 0, "withheld_headers": 0}
    assert compare_copies(native, native, {1, 2, 3}, none).equal == 3
    assert not compare_copies(native, native[1:], {2, 3}, none).findings
    assert compare_copies(native, native[1:], {1, 2, 3}, none).findings
    assert compare_copies(native, [*native, copy(2)], {1, 2, 3}, none).findings
    ours = [copy(1, b"Nats-Bridge-Incr: 1\r\n")]
    theirs = [copy(1, b"Nats-Incr: 1\r\n")]
    assert compare_copies(theirs, ours, {1}, none).findings
    assert not compare_copies(theirs, ours, {1}, none | {"renamed_headers": 1}).findings


def test_a_header_is_missing_only_if_the_target_refuses_it() -> None:
    native = [copy(1, b"Nats-TTL: 1s\r\n"), copy(2, b"A: b\r\nNats-TTL: 1s\r\n")]
    ours = [copy(1), copy(2, b"A: b\r\n")]
    counted = {"renamed_headers": 0, "withheld_headers": 2}
    assert compare_copies(native, ours, {1, 2}, counted).known == {"withheld_headers": 2}
    assert not compare_copies(native, ours, {1, 2}, counted).findings
    assert compare_copies(native, ours, {1, 2}, counted | {"withheld_headers": 1}).findings
    assert compare_copies(native, [copy(1), copy(2)], {1, 2}, counted).findings


def test_a_native_schedule_may_be_removed_by_what_it_fired() -> None:
    ours = [copy(1, b"Nats-Bridge-Schedule: @at x\r\n"), copy(2)]
    counted = {"renamed_headers": 1, "withheld_headers": 0}
    assert not compare_copies([copy(2)], ours, {1, 2}, counted).findings
    assert compare_copies([copy(2)], ours, {1, 2}, counted | {"renamed_headers": 0}).findings
    assert compare_copies([copy(1, b"Nats-Schedule: @at x\r\n")], ours, {1, 2}, counted).findings


def test_what_is_behind_the_end_is_not_compared() -> None:
    none = {"renamed_headers": 0, "withheld_headers": 0}
    assert compare_copies([copy(1), copy(2)], [copy(1)], {1, 2}, none).findings
    assert not compare_copies([copy(1), copy(2)], [copy(1)], {1, 2}, none, end=1).findings
