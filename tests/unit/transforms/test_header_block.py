import pytest

from nats_transforms.header_block import append, read, remove, remove_first, remove_prefix


def test_lines_are_appended_to_nothing_and_to_a_block() -> None:
    assert append(b"", [(b"A", b"1"), (b"B", b"")]) == b"NATS/1.0\r\nA: 1\r\nB: \r\n\r\n"
    assert append(b"NATS/1.0\r\nx:y\r\n\r\n", [(b"A", b"1")]) == b"NATS/1.0\r\nx:y\r\nA: 1\r\n\r\n"


def test_appending_nothing_changes_nothing() -> None:
    assert append(b"", []) == b""
    assert append(b"Foo: bar\r\n\r\n", []) == b"Foo: bar\r\n\r\n"


@pytest.mark.parametrize(
    ("block", "kept"),
    [
        # Order, case, duplicates, missing and extra spaces, empty values, other first lines: all as they
        # were.
        (b"NATS/1.0\r\nB: 2\r\nA:  sp \r\nx-lower:v\r\nB: 2\r\nE:\r\n\r\n",) * 2,
        (b"NATS/1.0 503 No Responders\r\n\r\n",) * 2,
        (b"Foo: bar\r\n\r\n",) * 2,
        (b"NATS/1.0\r\n\r\n",) * 2,
        # The server cuts two bytes, whatever they are.
        (b"Foo: bar", b"Foo: b\x00\x00"),
        (b"NATS/1.0", b"NATS/1\x00\x00"),
        (b"XYZ", b"X\x00\x00"),
        # Two bytes count as no block at all.
        (b"\r\n", b"NATS/1.0\r\n\x00\x00"),
        (b"xy", b"NATS/1.0\r\n\x00\x00"),
    ],
)
def test_appending_keeps_every_byte_but_the_final_two(block: bytes, kept: bytes) -> None:
    assert append(block, [(b"N", b"v")]) == kept[:-2] + b"N: v\r\n\r\n"


def test_nothing_is_replaced_and_the_last_value_is_read() -> None:
    block = append(b"NATS/1.0\r\nNats-Stream: FAKE\r\n\r\n", [(b"Nats-Stream", b"REAL")])
    assert block == b"NATS/1.0\r\nNats-Stream: FAKE\r\nNats-Stream: REAL\r\n\r\n"
    assert read(block, b"Nats-Stream") == b"REAL"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", None),
        (b"NATS/1.0\r\n\r\n", None),
        (b"NATS/1.0\r\nA: 1\r\n\r\n", b"1"),
        (b"NATS/1.0\r\nA:1\r\n\r\n", b"1"),
        (b"NATS/1.0\r\nA: \t 1 2 \r\n\r\n", b"1 2"),
        (b"NATS/1.0\r\nA:\r\n\r\n", b""),
        (b"NATS/1.0\r\na: 1\r\n\r\n", None),
        (b"NATS/1.0\r\nAA: 1\r\nBA: 2\r\nX: A: 3\r\n\r\n", None),
        (b"NATS/1.0\r\nA : 1\r\n\r\n", None),
        (b"A: 1\r\n\r\n", None),
        (b"Foo: bar\r\nA: 1\r\n\r\n", b"1"),
        (b"NATS/1.0 503\r\nA: 1\r\n\r\n", b"1"),
        (b"NATS/1.0\r\nA: 1", b"1"),
        (b"NATS/1.0\r\nA: a:b\r\n\r\n", b"a:b"),
        (b"NATS/1.0\r\nA: \xff\xc3\r\n\r\n", b"\xff\xc3"),
    ],
)
def test_read_takes_the_exact_name(block: bytes, expected: bytes | None) -> None:
    assert read(block, b"A") == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", b""),
        (b"NATS/1.0\r\nA: 1\r\n\r\n", b""),
        (b"NATS/1.0\r\nA: 1\r\nB:2\r\nA:3\r\n\r\n", b"NATS/1.0\r\nB:2\r\n\r\n"),
        (b"NATS/1.0\r\nA: 1\r\nA: 2\r\nC:  3 \r\n\r\n", b"NATS/1.0\r\nC:  3 \r\n\r\n"),
        (b"NATS/1.0\r\nX: A: 1\r\nAB: 2\r\n\r\n", b"NATS/1.0\r\nX: A: 1\r\nAB: 2\r\n\r\n"),
        (b"NATS/1.0\r\na: 1\r\n\r\n", b"NATS/1.0\r\na: 1\r\n\r\n"),
        (b"NATS/1.0 503 x\r\nA: 1\r\n\r\n", b"NATS/1.0 503 x\r\n\r\n"),
        (b"A: 1\r\n\r\n", b"A: 1\r\n\r\n"),
        (b"Foo: bars\r\nA: {}\r\n\r\n", b"Foo: bars\r\n\r\n"),
        (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n\r\n"),
        (b"NATS/1.0\r\nA: 1", b"NATS/1.0\r\nA: 1"),
    ],
)
def test_remove_takes_out_whole_lines_of_exactly_that_name(block: bytes, expected: bytes) -> None:
    assert remove(block, b"A") == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", b""),
        (b"NATS/1.0\r\nK: 1\r\n\r\n", b""),
        (b"NATS/1.0\r\nB: 2\r\nK:1\r\nK: 2\r\n\r\n", b"NATS/1.0\r\nB: 2\r\nK: 2\r\n\r\n"),
        # The name as a part of another name or of a value, and on the first line: nothing is looked for behind it.
        (b"NATS/1.0\r\nKB: 2\r\nK: 1\r\n\r\n",) * 2,
        (b"NATS/1.0\r\nB: K: 2\r\nK: 1\r\n\r\n",) * 2,
        (b"K: 2\r\nK: 1\r\n\r\n",) * 2,
        (b"NATS/1.0\r\nK: 1",) * 2,
    ],
)
def test_remove_first_gives_up_at_another_use_of_the_name(block: bytes, expected: bytes) -> None:
    assert remove_first(block, b"K") == expected


def test_names_are_texts_and_not_patterns() -> None:
    block = b"NATS/1.0\r\nAxB: 1\r\nA.B: 2\r\n\r\n"
    assert remove(block, b"A.B") == b"NATS/1.0\r\nAxB: 1\r\n\r\n"
    assert remove_prefix(block, b"A.") == b"NATS/1.0\r\nAxB: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            b"NATS/1.0\r\nNats-Expected-Stream: S\r\nX: 1\r\nNats-Expected-Last-Sequence:4\r\n\r\n",
            b"NATS/1.0\r\nX: 1\r\n\r\n",
        ),
        (b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n", b""),
        (b"NATS/1.0\r\nnats-expected-stream: S\r\n\r\n", b"NATS/1.0\r\nnats-expected-stream: S\r\n\r\n"),
        (b"NATS/1.0\r\nX: Nats-Expected-\r\n\r\n", b"NATS/1.0\r\nX: Nats-Expected-\r\n\r\n"),
        (b"", b""),
    ],
)
def test_remove_prefix_takes_out_all_names_that_begin_so(block: bytes, expected: bytes) -> None:
    assert remove_prefix(block, b"Nats-Expected-") == expected
