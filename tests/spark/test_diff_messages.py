"""What is compared of a message, and what two of them differ in: no Spark is needed for these."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.settings import loads
from nats_bridge_spark.diff.comparing import By, Comparison, State, quick_reader, reader
from nats_bridge_spark.diff.findings import KINDS, ComparedMessage, Finding, found
from nats_bridge_spark.diff.provenance import Provenance, provenance, same_source, without_republished_lines
from nats_bridge_spark.diff.rules import rule_of, transform_of
from nats_transforms import header_block
from nats_transforms.dialect import dialect
from nats_transforms.republish import StoredMessage, compile_republish
from nats_transforms.source_record import TWIN_HEADER
from nats_transforms.sourcing import Copied, Sourcing, compile_sourcing
from tests.spark.histories import block

REPUBLISHED = (b"Nats-Stream: M", b"Nats-Subject: a", b"Nats-Sequence: 4", b"Nats-Last-Sequence: 0")


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (b"", None),
        (block(b"A: 1"), None),
        (block(b"Nats-Stream-Source: O 7"), Provenance(b"O", 7)),
        (block(b"Nats-Stream-Source: O 7 a"), None),
        (block(b"Nats-Stream-Source: O 7 a b"), Provenance(b"O", 7, b"a b")),
        (block(b"Nats-Stream-Source: O 7 a\x0cb >\x0c> s id"), Provenance(b"O", 7, b"a\x0cb >\x0c>")),
        (block(b"Nats-Bridge-Source: O:AbCdEfGh 7 > > s"), Provenance(b"O:AbCdEfGh", 7, b"> >")),
        (block(b"Nats-Bridge-Source: O 7 > >", b"Nats-Stream-Source: P 8 > >"), Provenance(b"P", 8, b"> >")),
        (block(b"Nats-Stream-Source: P x", b"Nats-Stream-Source: P 8 > >"), None),
        (block(b"Nats-Stream-Source: $JS.ACK.O.c.1.7.8.9.0"), Provenance(b"O", 7)),
        (block(b"nats-stream-source: O 7 > >"), None),
        (block(*REPUBLISHED), Provenance(b"M", 4)),
        (block(b"Nats-Stream-Source: O 7 > >", *REPUBLISHED), Provenance(b"M", 4)),
        (block(*REPUBLISHED, b"Nats-Stream-Source: O 7 > >"), Provenance(b"O", 7, b"> >")),
        (block(b"Nats-Stream: M"), None),
        (block(b"Nats-Stream-Source: O 18446744073709551615 > >"), None),
    ],
)
def test_where_a_message_comes_from(of: bytes, expected: Provenance | None) -> None:
    assert provenance(of) == expected


def test_names_of_external_streams() -> None:
    assert same_source(b"O", b"O")
    assert same_source(b"O:AbCd1234", b"O")
    assert not same_source(b"O:AbCd123", b"O")
    assert not same_source(b"OTHER", b"O")
    assert not same_source(b"O", b"OT")


@pytest.mark.parametrize(
    ("native", "bridged"),
    [
        (b"Nats-Incr: +5", b"Nats-Bridge-Incr: +5"),
        (b"Nats-Schedule: @at 2099-01-01T00:00:00Z", b"Nats-Bridge-Schedule: @at 2099-01-01T00:00:00Z"),
        (b"Nats-Schedule-Target: a", b"Nats-Bridge-Schedule-Target: a"),
        (b"Nats-Scheduler: a", b"Nats-Bridge-Scheduler: a"),
    ],
)
def test_headers_of_counters_and_schedules_are_those_of_a_native_copy(native: bytes, bridged: bytes) -> None:
    """kd/copy/renamed."""
    left = block(b"A: 1", native, b"Nats-Stream-Source: O 7 > > a")
    right = block(b"A: 1", bridged, b"Nats-Bridge-Source: O 7 > > a")
    here, there, reported = compared_blocks(Comparison("provenance"), left, right)
    assert here == there
    assert reported == ["kd/copy/record-name", "kd/copy/renamed"]


@pytest.mark.parametrize("by", ["provenance", "provenance:right"])
def test_what_a_counter_has_of_its_sources_is_not_compared(by: By) -> None:
    """kd/copy/counter-record, as 2.15.3 and a rule have written it."""
    native = (
        b"Nats-Stream-Source: A 1 a.> t.> a.x wGbdtmAL",
        b'Nats-Counter-Sources: {"A":{"a.x":"5"},"B":{"b.x":"3"}}',
    )
    ours = (b"Nats-Bridge-Source: A 1 a.> t.> a.x", b'Nats-Bridge-Counter-Sources: {"A":{"a.x":"5"}}')
    left = block(b"Nats-Incr: 5", *(native if by == "provenance" else ()))
    here, there, reported = compared_blocks(Comparison(by, source=b"A"), left, block(b"Nats-Incr: 5", *ours))
    assert here == there
    assert "kd/copy/counter-record" in reported


def compared_blocks(comparison: Comparison, left: bytes, right: bytes) -> tuple[bytes, bytes, list[str]]:
    """Both blocks as they are compared, and the divergences that were left out of the right one."""
    *_, here, _ = reader(comparison, right=False)(1, b"a.x", left)
    *_, there, bits = reader(comparison, right=True)(1, b"t.x", right)
    reported = [each.divergence for at, each in enumerate(comparison.ignored) if bits & 1 << at]
    return left if here is None else here, right if there is None else there, reported


@pytest.mark.parametrize("version", ["2.9", "2.10", "2.15"])
@pytest.mark.parametrize("headers_only", [False, True])
def test_republished_lines_go_and_nothing_else(version: str, headers_only: bool) -> None:
    rule = {"src": ">", "dest": "m.>", "headers_only": headers_only}
    republish = compile_republish("M", rule, dialect(version))
    for stored in (block(b"Nats-Stream: mine", b"A: 1"), block(*REPUBLISHED), b""):
        out = republish.apply(StoredMessage(b"a", stored, b"x", 9, 17), 3)
        assert out is not None
        assert without_republished_lines(out.header_block) == stored
        assert provenance(out.header_block) == Provenance(b"M", 9)
    assert without_republished_lines(block(b"A: 1")) == block(b"A: 1")


def test_what_a_republish_rule_leaves_out_is_not_missing() -> None:
    settings = loads(
        "rules:\n  - {name: monitor, kind: republish, stream: M, republish: {dest: 'm.>'},"
        " exclude: [secret.>], where: {header: R, equals: eu}}",
        Path(),
        "c.yaml",
        {},
    )
    comparison = Comparison("provenance:right", rule=rule_of(settings, "monitor", "M"), source=b"M")
    read, eu = reader(comparison, right=False), block(b"R: eu")
    states = [read(1, *message)[0] for message in ((b"a", eu), (b"secret.a", eu), (b"a", block(b"R: us")))]
    assert states == [State.COMPARED, State.LEFT_OUT, State.LEFT_OUT]


_LINES = st.lists(
    st.sampled_from(
        [
            b"A: 1",
            b"A:1",
            b"Nats-Msg-Id: mine",
            b"Nats-Msg-Id: bridge-0123456789ab-7-17",
            b"Nats-Msg-Id: bridge-xyz",
            b"Nats-Expected-Stream: S",
            b"Nats-Stream-Source: O 7 > > s id",
            b"Nats-Stream-Source: O 7 > > s",
            b"Nats-Stream-Source: O 7",
            b"Nats-Stream-Source: O 7 >",
            b"Nats-Stream-Source: O  7 > >",
            b"Nats-Bridge-Source: O:AbCdEfGh 90 a.> b.> a.x",
            b"Nats-Bridge-Source: P 7 > >",
            b"Nats-Bridge-Source: \xff 7 > > s id more",
            b"X: Nats-Stream-Source: O 1 > >",
            b"Nats-Bridge-Counter-Sources: {}",
            b"T: \xff",
            *REPUBLISHED,
        ]
    ),
    max_size=5,
)
_BLOCKS = st.one_of(
    _LINES.map(lambda lines: block(*lines)), _LINES.map(lambda lines: b"\r\n".join(lines)), st.binary(max_size=20)
)


@given(st.lists(_BLOCKS, max_size=6), st.sampled_from(["provenance", "provenance:right", "id", "sequence"]))
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("ignored", [(), (b"T", b"Nats-Msg-Id")])
@pytest.mark.parametrize("rule", [None, compile_sourcing({"name": "O"}), transform_of("s", "t", "O")])
def test_usual_copies_are_read_as_all_others(
    right: bool, ignored: tuple[bytes, ...], rule: Sourcing | None, blocks: list[bytes], by: By
) -> None:
    comparison = Comparison(by, ignored_headers=ignored, source=b"O", first=5, last=80, rule=rule)
    one, quick = reader(comparison, right=right), quick_reader(comparison, right=right)
    for number, stored in enumerate(blocks, 1):
        *expected, whole, ignored_bits = one(number, b"s", stored)
        *found, made, bits = quick(number, b"s", stored)
        assert (found, bits) == (expected, ignored_bits)
        assert (stored if made is None else made) == (stored if whole is None else whole)


@pytest.mark.parametrize("version", ["2.9", "2.10", "2.12", "2.15"])
@pytest.mark.parametrize(
    "stored", [b"", block(b"A: 1", b"a:2"), block(b"Nats-Msg-Id: x"), block(b"Nats-Expected-Stream: S", b"A: 1")]
)
def test_the_copy_that_a_rule_makes_is_what_is_compared(version: str, stored: bytes) -> None:
    sourcing = compile_sourcing({"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}]}, dialect(version))
    comparison = Comparison("provenance:right", source=b"O", rule=sourcing)
    message = StoredMessage(b"a.x", stored, b"", 17, 0)
    copied = sourcing.apply(message)
    assert isinstance(copied, Copied)
    # As the sidecar stores it where the target refuses the server's own header.
    ours = header_block.append(
        sourcing.without_records(sourcing.bare(stored)),
        [
            *([] if b"Nats-Msg-Id" in stored else [(b"Nats-Msg-Id", b"bridge-0123456789ab-17-0")]),
            (TWIN_HEADER, sourcing.record(17, b"a.x")),
        ],
    )
    left = reader(comparison, right=False)(17, b"a.x", stored)
    for theirs in (copied.header_block, ours):
        right = reader(comparison, right=True)(3, copied.subject, theirs)
        assert left[:3] == (State.COMPARED, b"", 17) == right[:3]
        assert left[4] == copied.subject
        assert (left[5] or stored) == (right[5] if right[5] is not None else theirs)
    assert reader(comparison, right=False)(18, b"other", stored)[0] == State.LEFT_OUT


def headers_that_differ(left: bytes, right: bytes) -> list[tuple[str, str, str | None, str | None]]:
    sides = ([ComparedMessage(1, b"", b"a", each, b"")] for each in (left, right))
    return [(each.kind, each.field, each.left_value, each.right_value) for each in found("1", *sides)]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (b"", b"", []),
        (block(b"A: 1"), block(b"A: 2"), [("header", "A", "1", "2")]),
        (block(b"A: 1"), block(b"A: 1", b"A: 1"), [("header", "A", "1", "1, 1")]),
        (block(b"A: 1"), b"", [("header", "A", "1", None)]),
        (b"", block(b"A:"), [("header", "A", None, "")]),
        (block(b"Ab: 1"), block(b"aB: 1"), [("header", "Ab", "1", None), ("header", "aB", None, "1")]),
        (block(b"A: 1", b"A: 2"), block(b"A: 2", b"A: 1"), [("header", "A", "1, 2", "2, 1")]),
        (
            block(b"A: 1", b"B: 2"),
            block(b"B: 2", b"A: 1"),
            [("header-block", "", "NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n", "NATS/1.0\r\nB: 2\r\nA: 1\r\n\r\n")],
        ),
        (b"", block(), [("header-block", "", "", "NATS/1.0\r\n\r\n")]),
    ],
)
def test_what_two_blocks_differ_in(left: bytes, right: bytes, expected: list[tuple[object, ...]]) -> None:
    assert headers_that_differ(left, right) == expected


@given(_BLOCKS, _BLOCKS)
def test_blocks_differ_if_and_only_if_something_is_reported(left: bytes, right: bytes) -> None:
    reported = headers_that_differ(left, right)
    assert bool(reported) == (left != right)
    assert all(kind in KINDS for kind, *_ in reported)


def test_equal_messages_of_one_identity_belong_together() -> None:
    def side(sequence: int, data: bytes) -> ComparedMessage:
        return ComparedMessage(sequence, b"", b"a", b"", data)

    assert list(found("O 1", [side(1, b"x")], [side(8, b"y"), side(9, b"x")])) == [
        Finding("duplicated", "O 1", None, 8, "right", None, "a")
    ]
    assert list(found("O 1", [side(1, b"x"), side(2, b"x")], [])) == [
        Finding("missing", "O 1", 1, None, "", "a", None),
        Finding("duplicated", "O 1", 2, None, "left", "a", None),
    ]


def test_the_first_byte_that_differs() -> None:
    drawn = random.Random(1)
    for _ in range(200):
        data = drawn.randbytes(drawn.randrange(1, 3000))
        at = drawn.randrange(len(data))
        other = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        (only,) = found("", [ComparedMessage(1, b"", b"a", b"", data)], [ComparedMessage(1, b"", b"a", b"", other)])
        assert only.left_value is not None
        assert only.left_value.startswith(f"{len(data)} bytes, at byte {at}: ")
