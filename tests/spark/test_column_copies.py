"""Copies made of columns are those that the loop makes, message by message; what it must read is left to it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.writing.encoder import CopyEncoder, Operation
from nats_bridge_spark.backfill.column_copies import copies_of
from nats_bridge_spark.backfill.rows import SCHEMA, Piece
from nats_transforms.dialect import dialect
from nats_transforms.republish import StoredMessage
from nats_transforms.sourcing import compile_sourcing
from tests.unit.messages_to_copy import CONFIGS, ENTRIES, KEY, MESSAGES, SUBJECTS, stored, target_of

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


def encoder_of(
    entry: dict[str, Any],
    server: str,
    config: dict[str, Any],
    *,
    records: bool = True,
    counters: CopyCounters | None = None,
    max_payload: int = 1500,
) -> CopyEncoder:
    sourcing = compile_sourcing({"name": "S", **entry}, dialect("2.10.27"))
    target = target_of(server, **config)
    return CopyEncoder(sourcing, KEY, target, counters or CopyCounters(), max_payload=max_payload, records=records)


def one_by_one(loop: CopyEncoder, piece: Piece) -> tuple[list[Operation], bool]:
    """What the loop makes of the messages, up to the first that is special; and whether there is none."""
    out: list[Operation] = []
    _, special = loop.run(piece.messages(), out)
    return out, special is None


@pytest.mark.parametrize("server", ["2.9.10", "2.15.3"])
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
    copies = copies_of(piece, encoder_of(entry, server, config, records=records))
    counters = CopyCounters()
    expected, whole = one_by_one(encoder_of(entry, server, config, records=records, counters=counters), piece)
    if copies is None:
        checked = any(b"Nats-" in message[2] for message in piece.messages())
        assert checked or not whole, "ordinary rows are copied in columns"
        return
    assert whole
    assert copies.operations(0, len(copies)) == expected
    assert list(copies.names) == [int(name) for name, _ in expected]
    assert len(piece) - len(copies) == counters.unselected


@given(made=MESSAGES, own=st.binary(min_size=1, max_size=9).filter(lambda text: not set(text) & set(b"\r\n")))
def test_ids_of_the_publishers_stay(made: list[Any], own: bytes) -> None:
    """All of a piece or none: as most publishers do."""
    lines = [(b"NATS/1.0\r\nA: 1\r\nNats-Msg-Id: %b%d\r\n\r\n" % (own, at)) for at in range(len(made))]
    messages = [(subject, line, b"x", *rest) for (subject, _, _, *rest), line in zip(made, lines, strict=True)]
    piece = piece_of(stored(messages))
    copies = copies_of(piece, encoder_of({"filter_subject": "a.*"}, "2.10.27", {}))
    expected, whole = one_by_one(encoder_of({"filter_subject": "a.*"}, "2.10.27", {}), piece)
    if b"Nats-" in own:
        return
    assert (copies is not None) == whole
    if copies is not None:
        assert copies.operations(0, len(copies)) == expected


def ordinary(*blocks: bytes) -> Piece:
    """Rows that only these header blocks could make special."""
    return piece_of(stored([(b"a.x", b"NATS/1.0\r\n%b\r\n" % block, b"x", 1, 0) for block in blocks]))


OWN = b"Nats-Msg-Id: own\r\n"


@pytest.mark.parametrize(
    "blocks",
    [
        (OWN, b"Nats-Rollup: sub\r\n"),
        (OWN, b"Nats-Msg-Id: bridge-ba9876543210-4-1699999999999999999\r\n"),
        (b"Nats-Msg-Id: bridge-ba9876543210-4-1699999999999999999\r\n",),
        (b"X: Nats-Msg-Id: not\r\n",),
        (OWN, OWN + b"Nats-TTL: 5\r\n"),
        (OWN, b""),
        (b"", b"Nats-Stream-Source: X 7 > > s\r\n"),
    ],
)
def test_headers_that_need_a_look_leave_their_piece_to_the_loop(blocks: tuple[bytes, ...]) -> None:
    assert copies_of(ordinary(OWN, OWN), encoder_of({}, "2.10.27", {})) is not None
    assert copies_of(ordinary(*blocks), encoder_of({}, "2.10.27", {})) is None
    assert copies_of(ordinary(*reversed(blocks)), encoder_of({}, "2.10.27", {})) is None


def test_a_copy_that_is_just_not_too_large() -> None:
    piece = ordinary(b"A: b\r\n", b"A: b\r\nB: c\r\n")
    whole = copies_of(piece, encoder_of({}, "2.10.27", {}))
    assert whole is not None
    most = max(int(operation.partition(b"\r\n")[0].split(b" ")[-1]) for _, operation in whole.operations(0, 2))
    assert copies_of(piece, encoder_of({}, "2.10.27", {}, max_payload=most)) is not None
    assert copies_of(piece, encoder_of({}, "2.10.27", {}, max_payload=most - 1)) is None


def test_a_subject_that_the_target_does_not_take_leaves_its_piece_to_the_loop() -> None:
    made = [(b"a.x", b"", b"x", 1, 0), (b"elsewhere.x", b"", b"x", 1, 0)]
    assert copies_of(piece_of(stored(made)), encoder_of({}, "2.10.27", {})) is None


def test_existing_copies_leave_their_piece_to_the_loop() -> None:
    loop = encoder_of({}, "2.10.27", {})
    loop.there.add(3)
    assert copies_of(ordinary(b"", b""), loop) is not None, "sequences 1 and 2"
    assert copies_of(ordinary(b"", b"", b""), loop) is None


def test_a_random_destination_is_another_one_for_each_message() -> None:
    entry = {"subject_transforms": [{"src": "a.*", "dest": "t.{{random(1000)}}"}]}
    loop = CopyEncoder(
        compile_sourcing({"name": "S", **entry}, dialect("2.15.3")),
        KEY,
        target_of("2.15.3"),
        CopyCounters(),
        max_payload=1500,
    )
    assert copies_of(piece_of(stored([(b"a.x", b"", b"x", 1, 0)] * 3)), loop) is None


def test_nothing_selected_is_nothing_to_send() -> None:
    loop = encoder_of({"filter_subject": "b.>"}, "2.10.27", {})
    copies = copies_of(piece_of(stored([(b"a.x", b"", b"x", 1, 0)] * 3)), loop)
    assert copies is not None
    assert (len(copies), list(copies.names), copies.size) == (0, [], 0)
