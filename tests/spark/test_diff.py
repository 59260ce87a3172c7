"""Comparing histories: what is planted is found, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow
import pyarrow.parquet
import pytest

from nats_bridge_spark.diff.comparing import Comparison
from nats_bridge_spark.diff.findings import order_findings
from nats_bridge_spark.diff.rules import transform_of
from nats_bridge_spark.diff.run import DiffResult
from nats_bridge_spark.diff.sides import SideLocation
from nats_bridge_spark.errors import OptionError, PipelineError, SchemaError
from tests.spark.engines import Comparing, Spark
from tests.spark.histories import Stored, block, history

if TYPE_CHECKING:
    pass

Sides: TypeAlias = tuple[list[Stored], list[Stored]]
Compare: TypeAlias = Callable[..., dict[str, list[tuple[object, ...]]]]

MESSAGES = 300


@pytest.fixture
def last_result() -> list[DiffResult]:
    return []


@pytest.fixture
def engine(session: Spark) -> Comparing:
    return Comparing(session)


@pytest.fixture
def compare(engine: Comparing, tmp_path: Path, last_result: list[DiffResult]) -> Compare:
    """Compare two lists of messages; the findings by kind, without their values where there are none."""

    def run(
        left: list[Stored],
        right: list[Stored],
        *,
        streams: tuple[str, str] = ("L", "R"),
        allowed: frozenset[str] = frozenset(),
        **wanted: object,
    ) -> object:
        place = tmp_path / f"{len(last_result)}"
        left_folder = history(place / "left", left, stream=streams[0])
        right_folder = history(place / "right", right, stream=streams[1])
        sides = SideLocation(str(left_folder)), SideLocation(str(right_folder))
        with engine.compared(*sides, Comparison(**wanted), allowed) as result:  # type: ignore[arg-type]
            last_result.append(result)
            found: dict[str, list[tuple[object, ...]]] = {}
            for kind, *row in engine.findings(result):
                found.setdefault(kind, []).append(tuple(row))
            assert {kind: len(rows) for kind, rows in found.items()} == result.kinds
            assert result.is_equal == (not found)
            return found

    return run  # type: ignore[return-value]


def native_and_bridged(messages: int = MESSAGES) -> Sides:
    """What a native target and a bridged one hold of the same source: equal, but for what is meant to differ."""
    left, right = [], []
    for number in range(1, messages + 1):
        own = (b"A: %d" % number, b"B: \xff\xfe", b"A: again")
        source = b"ORDERS %d > > a.%d" % (number, number)
        left.append(
            Stored(number, f"a.{number}", block(*own, b"Nats-Stream-Source: " + source + b" ID"), b"%d" % number)
        )
        right.append(
            Stored(
                number + 1000,
                f"a.{number}",
                block(*own, b"Nats-Msg-Id: bridge-0123456789ab-%d-17" % number, b"Nats-Bridge-Source: " + source),
                b"%d" % number,
            )
        )
    return left, right


def test_native_and_bridged_targets_are_equal_and_omissions_are_named(
    compare: Compare, last_result: list[DiffResult]
) -> None:
    assert compare(*native_and_bridged()) == {}
    result = last_result[0]
    assert result.comparison.by == "provenance"
    assert result.reason == "both sides' messages say that they come from ORDERS"
    assert (result.counts.common, result.counts.equal, result.left_out) == (MESSAGES, MESSAGES, (0, 0))
    assert {each.divergence: found for each, found in result.counts.ignored.items()} == {
        "kd/copy/record-name": (0, MESSAGES),
        "kd/copy/identity": (MESSAGES, 0),
        "kd/copy/message-id": (0, MESSAGES),
    }


def test_exactly_what_is_planted_is_found(compare: Compare) -> None:
    left, right = native_and_bridged()

    def change(number: int, **changes: object) -> None:
        at = next(at for at, each in enumerate(right) if each.sequence == number + 1000)
        right[at] = replace(right[at], **changes)  # type: ignore[arg-type]

    def lines(number: int) -> list[bytes]:
        whole = right[number - 1].block
        assert whole is not None
        return whole.split(b"\r\n")[1:-2]

    change(10, subject="a.other")
    first, *rest = lines(20)
    change(20, block=block(first + b" ", b"b: \xff\xfe", *rest[1:]))
    first, second, third, *rest = lines(30)
    change(30, block=block(second, first, third, *rest))
    change(40, block=block(*lines(40)[:1], b"B: \xff\xfd", *lines(40)[2:]))
    change(50, block=block(*lines(50)[:1], *lines(50)[2:]))
    change(60, block=block(b"New: 1", *lines(60)))
    change(70, data=b"")
    change(80, data=b"8" + b"0" * 100_000)
    change(90, block=block(b"A:90", *lines(90)[1:]))
    change(100, block=block(*lines(100)[2:3], *lines(100)[1:2], *lines(100)[0:1], *lines(100)[3:]))
    del right[110 - 1]  # missing
    right.append(Stored(5000, "a.x", block(b"Nats-Bridge-Source: ORDERS 999 > > a.x")))
    right.append(replace(right[120 - 2], sequence=5001))
    right.append(Stored(5002, "own", block(b"Own: 1")))
    left.append(Stored(400, "own", b""))
    late = next(each for each in right if each.sequence == 1200)
    right.remove(late)
    right.append(replace(late, sequence=6000))
    random.Random(1).shuffle(right)

    def both(number: int) -> tuple[str, int, int]:
        return f"ORDERS {number}", number, number + 1000

    assert compare(left, right) == {
        "subject": [(*both(10), "", "a.10", "a.other")],
        "header": [
            (*both(20), "B", "\\xff\\xfe", None),
            (*both(20), "b", None, "\\xff\\xfe"),
            (*both(40), "B", "\\xff\\xfe", "\\xff\\xfd"),
            (*both(50), "B", "\\xff\\xfe", None),
            (*both(60), "New", None, "1"),
            (*both(100), "A", "100, again", "again, 100"),
        ],
        "payload": [
            (*both(70), "", "2 bytes, at byte 0: 70", "0 bytes, ends at byte 0"),
            (*both(80), "", "2 bytes, ends at byte 2", "100001 bytes, at byte 2: 0000000000000000…"),
        ],
        "header-block": [
            (
                *both(number),
                "",
                f"NATS/1.0\r\n{left}\r\nNats-Stream-Source: ORDERS {number} > > a.{number}\r\n\r\n",
                f"NATS/1.0\r\n{right}\r\nNats-Stream-Source: ORDERS {number} > > a.{number}\r\n\r\n",
            )
            for number, left, right in (
                (30, "A: 30\r\nB: \\xff\\xfe\r\nA: again", "B: \\xff\\xfe\r\nA: 30\r\nA: again"),
                (90, "A: 90\r\nB: \\xff\\xfe\r\nA: again", "A:90\r\nB: \\xff\\xfe\r\nA: again"),
            )
        ],
        "missing": [("ORDERS 110", 110, None, "", "a.110", None)],
        "extra": [("ORDERS 999", None, 5000, "", None, "a.x")],
        "duplicated": [("ORDERS 120", None, 5001, "right", None, "a.120")],
        "unidentified": [("", None, 5002, "right", None, "own"), ("", 400, None, "left", "own", None)],
        "order": [("ORDERS 200", 200, 6000, "", None, None)],
    }


def test_by_sequence_everything_is_compared(compare: Compare, last_result: list[DiffResult]) -> None:
    ours = b"Nats-Msg-Id: bridge-0123456789ab-1-%d"
    left = [Stored(number, "a", block(ours % 1), b"%d" % number) for number in range(5, 60)]
    right = [replace(each) for each in left]
    right[10] = replace(right[10], block=block(ours % 2))
    right[20] = replace(right[20], data=None)
    left[30], right[30] = replace(left[30], data=None, block=None), replace(right[30], data=b"", block=b"")
    left.append(Stored(100))
    right.append(Stored(101))
    right.append(replace(right[0], data=b"another"))
    assert compare(left, right) == {
        "header": [("15", 15, 15, "Nats-Msg-Id", (ours % 1)[13:].decode(), (ours % 2)[13:].decode())],
        "payload": [("25", 25, 25, "", "2 bytes, at byte 0: 25", "0 bytes, ends at byte 0")],
        "missing": [("100", 100, None, "", "a.b", None)],
        "extra": [("101", None, 101, "", None, "a.b")],
        "duplicated": [("5", None, 5, "right", None, "a")],
    }
    assert last_result[0].comparison.by == "sequence"
    assert not last_result[0].counts.ignored


def test_a_source_and_its_copies(compare: Compare, last_result: list[DiffResult]) -> None:
    left = [Stored(number, f"a.{number % 7}", block(b"A: 1"), b"%d" % number) for number in range(1, 101)]
    left[0] = replace(left[0], block=b"")
    left[1] = replace(left[1], block=block())
    left[2] = replace(left[2], block=block(b"Nats-Expected-Stream: L", b"A: 1", b"Nats-Stream-Source: OLDER 7 > >"))
    right = [
        Stored(
            each.sequence + 7,
            each.subject,
            block(
                *([] if each.sequence < 3 else [b"A: 1"]),
                b"Nats-Msg-Id: bridge-0123456789ab-%d-17" % each.sequence,
                b"Nats-Stream-Source: L:AbCd1234 %d > > %b" % (each.sequence, each.subject.encode()),
            ),
            each.data,
        )
        for each in left
    ]
    right.insert(50, Stored(500, "b", block(b"Nats-Stream-Source: OTHER 1 > >")))
    assert compare(left, right) == {}
    result = last_result[0]
    assert result.comparison.by == "provenance:right"
    assert result.left_out == (0, 1)
    assert {each.what.split(" ")[0]: found for each, found in result.counts.ignored.items()} == {
        "Nats-Msg-Id:": (0, 100),
        "where": (1, 100),
        "headers": (1, 0),
    }


def test_republished_messages_are_copies_as_well(compare: Compare, last_result: list[DiffResult]) -> None:
    left = [Stored(number, f"a.{number}", block(b"Nats-Stream: made up", b"A: 1")) for number in range(1, 51)]
    reported = (
        b"Nats-Stream: L\r\nNats-Subject: a.%d\r\nNats-Sequence: %d\r\nNats-Time-Stamp: t\r\nNats-Last-Sequence: 0"
    )
    right = [
        replace(
            each,
            subject=f"m.{each.subject}",
            block=block(b"Nats-Stream: made up", b"A: 1", reported % (each.sequence, each.sequence)),
        )
        for each in left
    ]
    right[5] = replace(right[5], subject="m.b.6")
    found = compare(left, right, rule=transform_of("a.*", "m.a.{{wildcard(1)}}", "L"))
    assert found == {"subject": [("6", 6, 6, "", "m.a.6", "m.b.6")]}
    assert last_result[0].comparison.by == "provenance:right"


def test_what_a_transform_does_not_select_is_left_out(compare: Compare, last_result: list[DiffResult]) -> None:
    left = [Stored(number, "a.1" if number % 2 else "b.1") for number in range(1, 41)]
    right = [
        Stored(at, "c.1", block(b"Nats-Bridge-Source: L %d a.* c.$1" % each.sequence))
        for at, each in enumerate([each for each in left if each.subject == "a.1"], 1)
    ]
    assert compare(left, right, rule=transform_of("a.*", "c.$1", "L")) == {}
    assert last_result[0].left_out == (20, 0)


def test_by_message_id(compare: Compare, last_result: list[DiffResult]) -> None:
    left = [Stored(number, "a", block(b"Nats-Msg-Id: id-%d" % number)) for number in range(1, 31)]
    right = [replace(each, sequence=100 - each.sequence, data=b"y" if each.sequence == 7 else b"x") for each in left]
    right.sort(key=lambda each: each.sequence)
    left.append(Stored(50, "a", block(b"Nats-Msg-Id: \xff")))
    found = compare(left, right, by="id", allowed=frozenset({"order"}))
    assert last_result[0].kinds == {"missing": 1, "payload": 1, "order": 29}
    assert found["missing"] == [("\\xff", 50, None, "", "a", None)]
    assert found["payload"] == [("id-7", 7, 93, "", "1 bytes, at byte 0: x", "1 bytes, at byte 0: y")]


def test_the_newest_of_each_subject(compare: Compare, last_result: list[DiffResult]) -> None:
    """Of a bucket with history and its copy under another prefix; what the transform does not select is left out."""
    left = [Stored(number, f"a.{number % 7}", data=b"%d" % number) for number in range(1, 29)]
    left.append(Stored(29, "other", data=b"29"))
    right = [Stored(7 + number, f"b.{number % 7}", data=b"%d" % number) for number in range(22, 29)]
    right[3] = replace(right[3], data=b"older")
    right[5] = replace(right[5], subject="b.test")
    found = compare(left, right, by="subject", rule=transform_of("a.*", "b.$1", "L"))
    assert found == {
        "payload": [("b.4", 25, 32, "", "2 bytes, at byte 0: 25", "5 bytes, at byte 0: older")],
        "missing": [("b.6", 27, None, "", "b.6", None)],
        "extra": [("b.test", None, 34, "", None, "b.test")],
    }
    assert last_result[0].left_out == (22, 0)
    assert (last_result[0].counts.common, last_result[0].counts.equal) == (6, 5)


def test_several_entries_that_copy_one_message_are_distinguished(compare: Compare) -> None:
    def copies(start: int) -> list[Stored]:
        return [
            Stored(
                start + 2 * number + at, f"{entry}.{number}", block(b"Nats-Stream-Source: O %d %b %b" % (number, *of))
            )
            for number in range(1, 21)
            for at, (entry, of) in enumerate({"x": (b">", b"x.>"), "y": (b">", b"y.>")}.items())
        ]

    left, right = copies(0), copies(100)
    right[4:6] = [replace(right[5], sequence=right[4].sequence), replace(right[4], sequence=right[5].sequence)]
    assert compare(left, right) == {}
    right[7] = replace(right[7], data=b"changed")
    assert compare(left, right) == {
        "payload": [("O 4", 9, 109, "", "1 bytes, at byte 0: x", "7 bytes, at byte 0: changed")]
    }


def test_headers_can_be_left_out_and_kinds_allowed(compare: Compare, last_result: list[DiffResult]) -> None:
    left = [Stored(number, "a", block(b"A: 1", b"T: %d" % number), b"%d" % number) for number in range(1, 31)]
    right = [replace(each, block=block(b"A: 1")) for each in left[:-1]]
    with pytest.raises(AssertionError):  # they are allowed, so the sides are called equal
        compare(left, right, by="sequence", ignored_headers=(b"T",), allowed=frozenset({"missing"}))
    result = last_result[0]
    assert result.is_equal
    assert result.kinds == {"missing": 1}
    assert [(each.what, found) for each, found in result.counts.ignored.items()] == [("header T", (30, 0))]


def test_what_comes_after_a_later_message_is_out_of_order(engine: Comparing) -> None:
    drawn = random.Random(1)
    rights = list(range(1, 2001))
    for at in sorted(drawn.sample(range(2000), 12)):
        rights.insert(drawn.randrange(2000), rights.pop(at))
    pairs = [(left, right, left % 2) for left, right in enumerate(rights, 1)]
    names = ("source", "number", "left", "right", "group", "common")
    rows = [(b"", left, left, right, group, 1) for left, right, group in pairs]
    table = pyarrow.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    highest, expected = {0: 0, 1: 0}, set()
    for left, _, of in sorted(pairs, key=lambda pair: pair[1]):
        if left < highest[of]:
            expected.add(left)
        highest[of] = max(highest[of], left)
    with engine.rows(table) as matches:
        assert {row["left_sequence"] for row in order_findings(matches).table().to_pylist()} == expected


def test_ranges_and_subjects(engine: Comparing, tmp_path: Path) -> None:
    left = history(tmp_path / "l", [Stored(number, f"a.{number % 3}", data=b"%d" % number) for number in range(1, 61)])
    right = history(
        tmp_path / "r", [Stored(number, f"a.{number % 3}", data=b"%d" % number) for number in range(11, 71)]
    )
    sides = (
        SideLocation(str(left), first=11, subjects=("a.1", "b.>")),
        SideLocation(str(right), last=60, subjects=("*.1",)),
    )
    with engine.compared(*sides, Comparison()) as result:
        assert result.is_equal
        assert result.counts.common == len([number for number in range(11, 61) if number % 3 == 1])


def test_wrong_sides_are_reported_in_a_line(engine: Comparing, tmp_path: Path) -> None:
    some = history(tmp_path / "some", [Stored(number, data=b"%d" % number) for number in range(1, 11)])
    none = history(tmp_path / "none", [])
    ours = history(tmp_path / "ours", [Stored(n, "a", block(b"Nats-Stream-Source: A %d" % n)) for n in range(1, 11)])
    theirs = history(
        tmp_path / "theirs", [Stored(n, "a", block(b"Nats-Stream-Source: B %d" % n)) for n in range(1, 11)]
    )
    mixed = history(tmp_path / "mixed" / "n=1", [Stored(1)], stream="ONE").parent
    history(mixed / "n=2", [Stored(2)], stream="TWO")
    other = tmp_path / "other"
    other.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"id": [0, 1, 2]}), other / "part-0.parquet")

    def reported(left: Path, right: Path, **wanted: object) -> str:
        with (
            pytest.raises(PipelineError) as error,
            engine.compared(SideLocation(str(left)), SideLocation(str(right)), Comparison(**wanted)),  # type: ignore[arg-type]
        ):
            pass
        return str(error.value)

    assert "both sides are the same" in reported(some, some)
    assert reported(none, some) == f"capture {none}: there are no messages"
    assert "has no column stream, subject, sequence, header_block, data" in reported(some, other)
    assert "cannot be read as Parquet" in reported(some, tmp_path / "nothing")
    assert "several streams, such as ONE and TWO" in reported(mixed, some)
    assert "nothing shows which messages" in reported(some, ours)
    assert "no message in common by provenance" in reported(ours, theirs, by="provenance")
    assert "no message in common by provenance:right" in reported(ours, theirs, by="provenance:right")
    assert "belongs to --by provenance:right" in reported(ours, theirs, by="provenance", source=b"X")
    with pytest.raises(SchemaError), engine.compared(SideLocation(str(some)), SideLocation(str(other)), Comparison()):
        pass
    with pytest.raises(OptionError), engine.compared(SideLocation(str(some)), SideLocation(str(some)), Comparison()):
        pass
