"""Reads both sides as they are compared, and brings their messages together by identity.

Theory of operation. Each message becomes its identity, its sequence and a digest of the compared parts. These are
aggregated by identity: the number of messages on each side, the lowest sequence of each, and the lowest and highest
digest. If each side has one message and the digests are equal, the messages are equal. All other identities are odd,
and their full messages are compared (`findings`).
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge_spark.diff.comparing import Comparison, Ignored, Reader, State, quick_reader
from nats_bridge_spark.diff.rows import Aggregate, Batches, Rows
from nats_transforms.republish import Republish

KEYS: Final = ("source", "number")
"""The columns of an identity. For a message without one, the number is its sequence, negative on the right."""

_UNIT: Final = 1 << 32
"""One message of the right side in a count of both; those of the left are counted below it."""


def read(rows: Rows, comparison: Comparison, *, right: bool, digested: bool = False) -> Rows:
    """Return the messages of a side as they are compared.

    Args:
        digested: whether the payloads are digests already.

    Returns:
        columns `KEYS`, `state`, `left` and `right` (the sequence, null on the other side), `entry`, `group` (messages
        of one value have an order among themselves), `subject`, `block`, `data`, and `ignored_N` for each N of
        `Comparison.ignored`, 1 on the left and 2³² on the right if it was left out. Messages that are not compared are
        not among them.
    """
    kinds = {**_BINARY, "data": pa.int64() if digested else pa.binary()}
    names = (*_READ[:-1], "left", "right", "group", "data", *_ignored_names(comparison))
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in names])
    return rows.mapped(partial(_read, comparison, right, schema), schema)


def matched(left: Rows, right: Rows, comparison: Comparison) -> Rows:
    """One row per identity.

    Returns:
        columns `KEYS`, `left`, `right` (the lowest sequences), `group`, `lefts`, `rights` (how many messages each side
        has), `ignored_N` (sums), and 0 or 1: `common` (both have it), `equal`, `odd`, `several` (a side has several).
    """
    names = _ignored_names(comparison)

    def digests(rows: Rows, *, is_right: bool) -> Rows:
        found = read(rows.digested("data", ["data"]), comparison, right=is_right, digested=True)
        found = found.selected(*KEYS, "left", "right", "group", "subject", "block", "data", *names)
        return found.digested("digest", ["subject", "block", "data"])

    both = digests(left, is_right=False).united(digests(right, is_right=True))
    values: list[Aggregate] = [("left", "count"), ("left", "min"), ("right", "count"), ("right", "min")]
    values += [("group", "max"), ("digest", "min"), ("digest", "max"), *((name, "sum") for name in names)]
    numbers = ("left", "right", "group", "lefts", "rights", "common", "equal", "odd", "several", *names)
    schema = pa.schema([("source", pa.binary()), *((name, pa.int64()) for name in ("number", *numbers))])
    return both.grouped(KEYS, values).mapped(partial(_judged, schema), schema).kept()


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts, in messages of either side and in identities.

    Attributes:
        left: messages of the left that were compared, unidentified ones included.
        odd: identities that must be compared by their full messages.
        several: identities with more than one message on a side.
        ignored: the numbers of messages on the left and right for each part that was left out.
    """

    left: int
    right: int
    equal: int
    common: int
    odd: int
    several: int
    ignored: dict[Ignored, tuple[int, int]]


def counts(found: Rows, comparison: Comparison, known: int) -> Counts:
    """Sum the rows of `matched`, and the known number of other messages that are equal."""
    names = ("lefts", "rights", "equal", "common", "odd", "several", *_ignored_names(comparison))
    (row,) = found.selected(*names).grouped([], [(name, "sum") for name in names]).table().to_pylist() or [{}]
    lefts, rights, equal, common, odd, several, *sums = (row.get(f"{name}_sum") or 0 for name in names)
    ignored = {
        what: (packed % _UNIT, packed // _UNIT) for what, packed in zip(comparison.ignored, sums, strict=True) if packed
    }
    return Counts(lefts + known, rights + known, equal + known, common + known, odd, several, ignored)


def _ignored_names(comparison: Comparison) -> list[str]:
    return [f"ignored_{number}" for number in range(len(comparison.ignored))]


_READ: Final = ("state", "source", "number", "entry", "subject", "block", "ignored")
"""The members of `comparing.Read`."""
_BINARY: Final = dict.fromkeys(("source", "entry", "subject", "block"), pa.binary())


def _read(comparison: Comparison, right: bool, schema: pa.Schema, batches: Batches) -> Batches:
    # Compared as they are, and by sequence, nothing of messages has to be read.
    is_plain = comparison.by == "sequence" and not comparison.ignored_headers and comparison.rule is None
    one = None if is_plain else quick_reader(comparison, right=right)
    for batch in batches:
        columns = _plain(batch) if one is None else _columns(batch, one)
        state, sequences, count = columns["state"], batch.column("sequence"), batch.num_rows
        own = pc.negate(sequences) if right else sequences
        columns["number"] = pc.if_else(pc.equal(state, State.COMPARED), columns["number"], own)
        here, there = ("right", "left") if right else ("left", "right")
        columns |= {here: sequences, there: pa.nulls(count, pa.int64())}
        columns["group"] = _groups(comparison, right, columns)
        columns["data"] = batch.column("data")
        if isinstance(comparison.rule, Republish) and comparison.rule.headers_only:
            nothing = 0 if columns["data"].type == pa.int64() else b""
            columns["data"] = pa.repeat(pa.scalar(nothing, columns["data"].type), count)
        ignored = columns["ignored"].to_numpy()
        for bit, name in enumerate(_ignored_names(comparison)):
            columns[name] = (ignored >> bit & 1) * (_UNIT if right else 1)
        yield pa.RecordBatch.from_pydict(columns, schema).filter(pc.not_equal(state, State.LEFT_OUT))


def _plain(batch: pa.RecordBatch) -> dict[str, Any]:
    zeros, nothing = (pa.repeat(value, batch.num_rows) for value in (pa.scalar(0, pa.int64()), pa.scalar(b"")))
    columns = {"state": zeros, "ignored": zeros, "source": nothing, "entry": nothing}
    columns |= {"number": batch.column("sequence"), "subject": batch.column("subject")}
    return columns | {"block": batch.column("header_block")}


def _columns(batch: pa.RecordBatch, one: Reader) -> dict[str, Any]:
    asked = (batch.column(name).to_pylist() for name in ("sequence", "subject", "header_block"))
    values = list(zip(*map(one, *asked), strict=True)) or [()] * len(_READ)
    found = zip(_READ, values, strict=True)
    columns = {name: pa.array(some, _BINARY.get(name, pa.int64())) for name, some in found}
    columns["subject"] = columns["subject"].fill_null(batch.column("subject"))
    columns["block"] = columns["block"].fill_null(batch.column("header_block"))
    return columns


def _groups(comparison: Comparison, right: bool, columns: dict[str, Any]) -> pa.Array:
    count = len(columns["state"])
    if comparison.by == "id":
        return pa.array(np.zeros(count, np.int64))
    if (comparison.by, right) not in (("provenance", False), ("provenance:right", True)):
        return pa.nulls(count, pa.int64())
    return pa.array(map(_group, columns["source"].to_pylist(), columns["entry"].to_pylist()), pa.int64())


@lru_cache(maxsize=1024)
def _group(source: bytes, entry: bytes) -> int:
    return int.from_bytes(blake2b(source + b" " + entry, digest_size=8).digest(), signed=True)


def _judged(schema: pa.Schema, batches: Batches) -> Batches:
    for batch in batches:
        names = ("left_count", "right_count", "digest_min", "digest_max")
        lefts, rights, lowest, highest = (batch.column(name).to_numpy() for name in names)
        equal = (lefts == 1) & (rights == 1) & (lowest == highest)
        columns: dict[str, Any] = {"equal": equal, "odd": ~equal, "lefts": lefts, "rights": rights}
        columns |= {"common": (lefts > 0) & (rights > 0), "several": (lefts > 1) | (rights > 1)}
        columns |= {"left": batch.column("left_min"), "right": batch.column("right_min")}
        columns |= {"group": batch.column("group_max"), **{name: batch.column(name) for name in KEYS}}
        columns |= {name: batch.column(f"{name}_sum") for name in schema.names if name.startswith("ignored_")}
        yield pa.RecordBatch.from_pydict(columns, schema)
