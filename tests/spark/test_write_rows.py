"""Rows become operations, and a row that cannot be a message is named; without Spark and without a server."""

from __future__ import annotations

import logging
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
import structlog

from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.in_flight import operations_of
from nats_bridge_spark.errors import PipelineError, RowError
from nats_bridge_spark.sink import bundling
from nats_bridge_spark.sink.bundling import BundleBuilder
from nats_bridge_spark.sink.plan import RowLayout, WriteOptions, WritePlan
from nats_bridge_spark.sink.stored_rows import GENERATED, StoredRows, TaskPlace
from nats_bridge_spark.sink.writer import JetStreamWriter

SCHEMA = pa.schema(
    [
        ("subject", pa.string()),
        ("data", pa.binary()),
        ("headers", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
    ]
)
TARGET = Target.of(
    {
        "config": {"name": "S", "subjects": ["s.>"], "max_msg_size": 5000},
        "state": {"messages": 0, "bytes": 0},
        "created": "2026-01-01T00:00:00Z",
    },
    "2.10.27",
)
PLACE = TaskPlace(3, write="w")


def builder(layout: RowLayout, stored: StoredRows | None = None, **options: Any) -> BundleBuilder:
    made = BundleBuilder(layout, PLACE, TARGET, max_payload=options.pop("max_payload", 10_000), **options)
    made.stored = stored
    return made


def batch(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("s.a b", b"", []), "row 11 of partition 3 (subject 's.a b'): a message cannot have this subject"),
        (("s..a", b"", []), "(subject 's..a'): a message cannot have this subject"),
        (("s.*", b"", []), "a message cannot have this subject"),
        (("s.a\r\nPUB s.b 0\r\n", b"", []), "a message cannot have this subject"),
        (("", b"", []), "a message cannot have this subject"),
        (("t.a", b"", []), "(subject 't.a'): stream 'S' does not store this subject, but s.>"),
        ((None, b"", []), "row 11 of partition 3: subject is null; leave such rows out: .where('subject is not null')"),
        (("s.a", None, []), "row 11 of partition 3: data is null; leave such rows out: .where('data is not null')"),
        (("s.a", b"", [("a b", "c")]), "row 11 of partition 3: 'a b' cannot be the name of a header"),
        (("s.a", b"", [("", "c")]), "'' cannot be the name of a header"),
        (("s.a", b"", [("a:b", "c")]), "'a:b' cannot be the name of a header"),
        (("s.a", b"", [("a\r\nb", "c")]), "cannot be the name of a header"),
        (("s.a", b"", [(None, "c")]), "null cannot be the name of a header"),
        (("s.a", b"", [("a", "b\nc: d")]), "row 11 of partition 3: header a: its value 'b c: d' is not one line"),
        (("s.a", b"", [("a", None)]), "row 11 of partition 3: header a: its value null is not one line"),
        (("s.a", bytes(5000), []), "bytes, more than the 5000 allowed"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(row: tuple[Any, ...], said: str) -> None:
    rows = [("s.first", b"", [])] * 11
    with pytest.raises(RowError) as caught:
        builder(RowLayout(0, 1, 2)).build(batch(*rows, row), 0)
    assert said in caught.value.message


@pytest.mark.parametrize("message_id", ["", " a", "a\r\nB: c"])
def test_an_id_that_cannot_be_one_is_refused(message_id: str) -> None:
    schema = pa.schema([("subject", pa.string()), ("data", pa.binary()), ("id", pa.string())])
    with pytest.raises(RowError, match=r"row 0 of partition 3 .*cannot be a message id"):
        builder(RowLayout(0, 1, message_id=2)).build(batch(("s.a", b"", message_id), schema=schema), 0)


def test_two_ids_of_a_row_are_refused() -> None:
    schema = SCHEMA.append(pa.field("id", pa.string()))
    rows = batch(("s.a", b"", [("Nats-Msg-Id", "one")], "two"), schema=schema)
    with pytest.raises(RowError, match="its id is 'two', and its headers say Nats-Msg-Id 'one': drop one"):
        builder(RowLayout(0, 1, 2, message_id=3)).build(rows, 0)


def test_rows_of_large_types_or_without_headers_are_the_same_operation() -> None:
    plain = operations_of(builder(RowLayout(0, 1)).build(batch(("s.a", b"x", None)), 4))
    large = pa.schema([("data", pa.large_string()), ("subject", pa.large_string())])
    assert operations_of(builder(RowLayout(1, 0)).build(batch(("x", "s.a"), schema=large), 4)) == plain
    ((name, operation),) = plain
    assert name == b"5"
    line, _, rest = operation.partition(b"\r\n")
    _, subject, header_size, size = line.split(b" ")
    assert subject == b"s.a"
    assert len(rest) == int(size) + 2
    block = rest[: int(header_size)]
    assert block.startswith(b"NATS/1.0\r\nNats-Msg-Id: ")
    assert rest[int(header_size) :] == b"x\r\n"
    message_id = block.split(b"\r\n")[1].partition(b": ")[2]
    assert GENERATED.fullmatch(message_id)
    assert message_id.startswith(b"%b4-" % PLACE.prefix)


def test_slices_of_a_batch_have_their_own_headers() -> None:
    rows = batch(*((f"s.{i}", b"", [("N", str(i))] * (i % 3)) for i in range(9)))
    whole = operations_of(builder(RowLayout(0, 1, 2)).build(rows, 0))
    parts = [
        operation
        for at in range(0, 9, 2)
        for operation in operations_of(builder(RowLayout(0, 1, 2)).build(rows.slice(at, 2), at))
    ]
    assert parts == whole


def test_stored_rows_are_left_out_and_others_in_their_place_refused() -> None:
    rows = batch(*((f"s.{i}", b"x", []) for i in range(5)))
    stored = StoredRows(PLACE)
    for name, operation in operations_of(builder(RowLayout(0, 1, 2)).build(rows, 0))[1:3]:
        generated = GENERATED.search(operation)
        assert generated is not None
        stored.add(int(name) - 1, int(generated["check"], 16))
    again = builder(RowLayout(0, 1, 2), stored)
    assert list(again.build(rows, 0).names) == [1, 4, 5]
    assert again.already == 2
    with pytest.raises(RowError, match=r"row 1 of partition 3 .* do not come in the same order"):
        builder(RowLayout(0, 1, 2), stored).build(rows.slice(1), 0)


def test_the_bytes_of_many_rows_are_those_of_each() -> None:
    schema = pa.schema([("subject", pa.string()), ("data", pa.binary()), ("id", pa.string())])
    rows = batch(*((f"s.{i}", b"\r\n" * i, f"id-{i}") for i in range(12)), schema=schema).slice(2)
    made = builder(RowLayout(0, 1, message_id=2)).build(rows, 5)
    one_by_one = operations_of(made)
    assert [name for name, _ in one_by_one] == [b"%d" % name for name in range(6, 16)]
    assert one_by_one[1][1] == b"HPUB s.3 31 37\r\nNATS/1.0\r\nNats-Msg-Id: id-3\r\n\r\n\r\n\r\n\r\n\r\n"
    assert made.written(b"") == b"".join(data for _, data in one_by_one)
    assert made.written(b"r.x") == b"".join(
        data.replace(f"s.{i} ".encode(), f"s.{i} r.x ".encode(), 1) for i, (_, data) in enumerate(one_by_one, 2)
    )
    replies = [b"", b"r.1"] * 5
    assert made.written(replies) == b"".join(made.kept([at]).written(reply) for at, reply in enumerate(replies))
    assert made.operations(3, 5) == one_by_one[3:5]
    assert list(made.behind(9).names) == [10, 11, 12, 13, 14, 15]
    assert operations_of(made.kept([0, 9])) == [one_by_one[0], one_by_one[9]]
    assert made.size == sum(
        len(part) for row in (made.subjects, made.blocks, made.payloads) for part in row.to_pylist()
    )


def test_an_id_is_the_row_s_place_and_the_checksum_of_what_is_said() -> None:
    rows = batch(*((f"s.{i}", bytes([i % 256]) * i, None) for i in range(300)))
    for number, (_, data) in enumerate(operations_of(builder(RowLayout(0, 1)).build(rows, 7)), 7):
        message_id = data.split(b"Nats-Msg-Id: ")[1].split(b"\r\n")[0]
        subject, payload = b"s.%d" % (number - 7), bytes([(number - 7) % 256]) * (number - 7)
        assert message_id == b"%b%d-%08x" % (PLACE.prefix, number, crc32(payload, crc32(subject)))


def test_more_subjects_than_are_remembered_are_all_the_stream_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "_MOST_SUBJECTS", 4)
    made = builder(RowLayout(0, 1))
    for first in range(0, 12, 3):
        rows = batch(*((f"s.{i}", b"x", None) for i in range(first, first + 3)), ("s.0", b"y", None))
        assert list(made.build(rows, first).names) == [first + 1, first + 2, first + 3, first + 4]
    with pytest.raises(RowError, match=r"row 13 of partition 3 \(subject 't.a'\): stream 'S' does not store"):
        made.build(batch(("s.0", b"", None), ("t.a", b"", None), ("t.a", b"", None)), 12)


def test_rows_of_large_types_behind_others_are_taken_as_they_are() -> None:
    schema = pa.schema([("data", pa.large_binary()), ("subject", pa.large_string())])
    rows = batch(*((b"%d" % i, f"s.{i}") for i in range(9)), schema=schema)
    whole = operations_of(builder(RowLayout(1, 0)).build(rows, 0))
    assert operations_of(builder(RowLayout(1, 0)).build(rows.slice(6), 6)) == whole[6:]


def test_stored_rows_with_own_ids_are_left_out_whatever_their_size() -> None:
    schema = pa.schema([("subject", pa.string()), ("data", pa.binary()), ("id", pa.string())])
    rows = batch(("s.a", b"x", "one"), ("s.b", bytes(6000), "two"), ("s.c", b"y", "three"), schema=schema)
    stored = StoredRows(PLACE)
    stored.ids.add(b"two")
    again = builder(RowLayout(0, 1, message_id=2), stored)
    made = again.build(rows, 3)
    assert (list(made.names), again.already) == ([4, 6], 1)
    assert made.subjects.to_pylist() == [b"s.a", b"s.c"]


def test_the_first_row_that_is_too_large_is_named() -> None:
    rows = batch(("s.a", b"x", None), ("s.b", bytes(5000), None), ("s.c", bytes(6000), None))
    with pytest.raises(RowError, match=r"row 3 of partition 3 \(subject 's.b'\): with its headers it has 50\d\d bytes"):
        builder(RowLayout(0, 1)).build(rows, 2)


def test_a_task_leaves_the_logging_of_its_process_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers are used again: next for a function of the user's that logs."""
    root, ours = logging.getLogger(), structlog.get_config()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", logging.WARNING)
    plan = WritePlan(WriteOptions.of({"servers": "nats://127.0.0.1:1", "stream": "S"}), RowLayout(0, 1))
    try:
        with pytest.raises(PipelineError, match="written by tasks of Spark"):
            JetStreamWriter(plan).write(iter(()))
    finally:
        structlog.configure(**ours)
    assert (root.handlers, root.level) == ([], logging.WARNING)
