"""Copies made of columns are those that the loop makes, message by message; what it must look at is left to it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.copying.copy_loop import CopyLoop, Operation
from bridge.copying.counters import CopyCounters
from pipeline.backfill.column_copies import copies_of
from pipeline.backfill.rows import SCHEMA, Piece
from tests.unit.messages_to_copy import BLOCKS, CONFIGS, ENTRIES, KEY, MESSAGES, SUBJECTS, stored, target_of
from transforms.dialect import dialect
from transforms.republish import StoredMessage
from transforms.sourcing import compile_sourcing

ORDINARY = st.lists(
    st.tuples(
        st.sampled_from(SUBJECTS[:4]),
        st.sampled_from([b"", b"", b"NATS/1.0\r\n\r\n", b"X", b"NATS/1.0 503 No\r\nA: b\r\n\r\n"]),
        st.sampled_from([b"", b"x", b"y" * 300]),
        st.integers(1, 3),
        st.sampled_from([0, 1, 999]),
    ),
    min_size=1,
    max_size=25,
)


def piece_of(messages: list[StoredMessage], *, nulls: bool = False) -> Piece:
    """The rows of stored messages; `nulls` in place of what is empty, as captures have them."""

    def given_as(values: list[bytes]) -> pa.Array:
        return pa.array([value or (None if nulls else b"") for value in values], pa.binary())

    rows = pa.record_batch(
        [
            pa.array([message.subject for message in messages], pa.binary()).view(pa.string()),
            pa.array([message.sequence for message in messages], pa.int64()),
            pa.array([message.time_ns for message in messages], pa.int64()),
            given_as([message.header_block for message in messages]),
            given_as([message.payload for message in messages]),
        ],
        schema=SCHEMA,
    )
    return Piece([message.sequence for message in messages], rows)


def loop_of(entry: dict[str, Any], server: str, config: dict[str, Any], *, records: bool = True) -> CopyLoop:
    sourcing = compile_sourcing({"name": "S", **entry}, dialect("2.10.27"))
    return CopyLoop(sourcing, KEY, target_of(server, **config), CopyCounters(), max_payload=1500, records=records)


def one_by_one(loop: CopyLoop, piece: Piece) -> tuple[list[Operation], bool]:
    """What the loop makes of the messages, up to the first that is special; and whether there is none."""
    out: list[Operation] = []
    _, special = loop.run(piece.messages, out)
    return out, special is None


@pytest.mark.parametrize("server", ["2.9.10", "2.15.1"])
@given(
    entry=st.sampled_from(ENTRIES),
    config=st.sampled_from(CONFIGS),
    made=MESSAGES | ORDINARY,
    nulls=st.booleans(),
    records=st.booleans(),
    after=st.integers(0, 30),
)
def test_are_those_of_the_loop(
    server: str,
    entry: dict[str, Any],
    config: dict[str, Any],
    made: list[Any],
    nulls: bool,
    records: bool,
    after: int,
) -> None:
    piece = piece_of(stored(made), nulls=nulls).behind(after)
    if piece is None:
        return
    copies = copies_of(piece, loop_of(entry, server, config, records=records))
    expected, whole = one_by_one(loop_of(entry, server, config, records=records), piece)
    if copies is None:
        looked_at = any(b"Nats-" in message[2] for message in piece.messages)
        assert looked_at or not whole, "ordinary rows are copied in columns"
        return
    assert whole
    assert copies.operations(0, len(copies)) == expected
    assert list(copies.names) == [int(name) for name, _ in expected]


@given(made=MESSAGES, own=st.binary(min_size=1, max_size=9).filter(lambda text: not set(text) & set(b"\r\n")))
def test_ids_of_the_publishers_stay(made: list[Any], own: bytes) -> None:
    """All of a piece or none: as most publishers do."""
    lines = [(b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: %b%d\r\n\r\n" % (own, at)) for at in range(len(made))]
    messages = [(subject, line, b"x", *rest) for (subject, _, _, *rest), line in zip(made, lines, strict=True)]
    piece = piece_of(stored(messages))
    copies = copies_of(piece, loop_of({"filter_subject": "a.*"}, "2.10.27", {}))
    expected, whole = one_by_one(loop_of({"filter_subject": "a.*"}, "2.10.27", {}), piece)
    if b"Nats-" in own:
        return
    assert (copies is not None) == whole
    if copies is not None:
        assert copies.operations(0, len(copies)) == expected


@given(made=ORDINARY, block=BLOCKS)
def test_one_row_that_needs_a_look_leaves_its_piece_to_the_loop(made: list[Any], block: bytes) -> None:
    loop = loop_of({}, "2.10.27", {})
    assert copies_of(piece_of(stored(made)), loop) is not None
    subject, _, payload, *rest = made[-1]
    needs = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"
    assert copies_of(piece_of(stored([*made[:-1], (subject, needs, payload, *rest)])), loop) is None
    assert copies_of(piece_of(stored([*made[:-1], (subject, b"", b"z" * 1500, *rest)])), loop) is None
    assert copies_of(piece_of(stored([*made[:-1], (b"elsewhere.x", b"", payload, *rest)])), loop) is None
    loop.there.add(1)
    assert copies_of(piece_of(stored(made)), loop) is None


def test_copies_of_copies_need_new_ids() -> None:
    block = b"NATS/1.0\r\nNats-Msg-Id: bridge-ba9876543210-4-1699999999999999999\r\n\r\n"
    made = [(b"a.x", block, b"x", 1, 0)] * 3
    assert copies_of(piece_of(stored(made)), loop_of({}, "2.10.27", {})) is None


def test_a_random_destination_is_another_one_for_each_message() -> None:
    entry = {"subject_transforms": [{"src": "a.*", "dest": "t.{{random(1000)}}"}]}
    loop = CopyLoop(
        compile_sourcing({"name": "S", **entry}, dialect("2.15.1")),
        KEY,
        target_of("2.15.1"),
        CopyCounters(),
        max_payload=1500,
    )
    assert copies_of(piece_of(stored([(b"a.x", b"", b"x", 1, 0)] * 3)), loop) is None


def test_nothing_selected_is_nothing_to_send() -> None:
    loop = loop_of({"filter_subject": "b.>"}, "2.10.27", {})
    copies = copies_of(piece_of(stored([(b"a.x", b"", b"x", 1, 0)] * 3)), loop)
    assert copies is not None
    assert (len(copies), list(copies.names), copies.size) == (0, [], 0)
