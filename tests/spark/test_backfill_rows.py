"""Rows as messages: what is taken, what is left out, what is kept until it is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pyarrow as pa
import pytest

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge_spark.backfill.rows import KeptRows, Piece, pieces_of
from nats_bridge_spark.errors import DataLostError, SchemaError


def rows(*sequences: int) -> pa.RecordBatch:
    """A batch with these sequences."""
    return pa.record_batch(
        {
            "data": pa.array([b"%d" % sequence if sequence % 3 else None for sequence in sequences], pa.binary()),
            "subject": pa.array([f"a.é.{sequence}" for sequence in sequences], pa.string()),
            "header_block": pa.array(
                [b"NATS/1.0\r\n\r\n" if sequence % 2 else None for sequence in sequences], pa.binary()
            ),
            "sequence": pa.array(sequences, pa.int64()),
            "time_ns": pa.array([1_700_000_000_000_000_000 + sequence for sequence in sequences], pa.int64()),
        }
    )


def sequence_of(message: Delivered) -> int:
    """The sequence in the reply subject of a delivery."""
    return AckReply.parse(message[1]).stream_sequence


def test_rows_are_what_a_consumer_delivers() -> None:
    (piece,) = pieces_of(rows(3, 4), 0)
    first, second = piece.messages()
    assert (first[0], first[2], first[3]) == ("a.é.3".encode(), b"NATS/1.0\r\n\r\n", b"")
    assert (second[2:], sequence_of(second)) == ((b"", b"4"), 4)
    ack = AckReply.parse(second[1])
    assert (ack.stream_sequence, ack.time_ns, ack.pending) == (4, 1_700_000_000_000_000_004, 0)


def test_pieces_are_in_order_and_have_each_row_once() -> None:
    (piece,) = pieces_of(rows(5, 6, 6, 9), 5)
    assert piece.sequences == [6, 9]
    assert [sequence_of(message) for message in piece.messages()] == [6, 9]
    assert pieces_of(rows(5, 5), 5) == []
    assert pieces_of(rows(), 5) == []
    assert [len(piece) for piece in pieces_of(rows(*range(1, 2501)), 0)] == [1024, 1024, 452]


@pytest.mark.parametrize(("sequences", "after"), [((7, 6), 0), ((4, 8), 5)])
def test_rows_out_of_order_are_not_taken(sequences: tuple[int, ...], after: int) -> None:
    with pytest.raises(DataLostError, match="the history is not in order"):
        pieces_of(rows(*sequences), after)


def test_rows_of_another_shape_are_named() -> None:
    batch = rows(1)
    with pytest.raises(SchemaError, match="column time_ns: missing"):
        pieces_of(batch.drop_columns(["time_ns"]), 0)
    text = batch.set_column(0, "data", pa.array(["text"]))
    with pytest.raises(SchemaError, match="column data: is of type string; must be binary"):
        pieces_of(text, 0)
    for at, name in ((1, "subject"), (3, "sequence"), (4, "time_ns")):
        lacking = batch.set_column(at, name, pa.nulls(1, batch.schema.field(name).type))
        with pytest.raises(SchemaError, match=f"column {name}: is null in 1 rows; no message of a stream lacks it"):
            pieces_of(lacking, 0)


def test_large_rows_make_small_pieces() -> None:
    batch = rows(*range(1, 101)).set_column(0, "data", pa.array([bytes(1 << 20)] * 100, pa.binary()))
    assert {len(piece) for piece in pieces_of(batch, 0)} <= {1, 2, 3, 4}
    (piece, *others) = pieces_of(batch.slice(0, 1), 0)
    assert (len(piece), others) == (1, [])


async def test_rows_are_kept_until_they_are_stored() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(*range(1, 4001))
        yield rows(*range(4001, 4101))

    kept = KeptRows(batches())
    seen = [message async for piece in _some(kept, 2500) for message in piece.messages()]
    assert (len(seen), kept.last) == (3072, 4000)
    assert kept.forgotten == 0
    kept.stored(2050)
    assert kept.forgotten == 2048, "the last sequence of a piece that is stored in whole"
    # Another round begins where the target stands, and ends with what was not read yet.
    pieces = [piece async for piece in kept.behind(2060)]
    assert [sequence_of(message) for piece in pieces for message in piece.messages()] == list(range(2061, 4101))
    assert [sequence for piece in pieces for sequence in piece.sequences] == list(range(2061, 4101))
    assert (kept.read, kept.last) == (4100, 4100)


async def _some(kept: KeptRows, count: int) -> AsyncIterator[Piece]:
    seen = 0
    async for piece in kept.behind(0):
        yield piece
        seen += len(piece)
        if seen >= count:
            return
