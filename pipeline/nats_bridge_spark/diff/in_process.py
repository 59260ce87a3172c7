"""Runs one comparison in this process, without Spark, with the same result as `run`.

Theory of operation: each side is read once into a file (`spooled_sides`). What identifies a message becomes one number,
by which the messages of both sides are sorted together. Where an identity has one message on either side, the two are
compared byte for byte, column by column; the messages of every other identity, and those that differ, are read in full
(`details`), as Spark's tasks do it. Of each message some hundred bytes are in memory, and no payload.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nats_bridge_spark.diff.comparing import Comparison, State, bits_of, ignored_of, is_plain
from nats_bridge_spark.diff.deciding import comparison_of, decision, nothing_in_common, require_two
from nats_bridge_spark.diff.details import SCHEMA, batches_of, found_in
from nats_bridge_spark.diff.digests import key_columns, read_batch
from nats_bridge_spark.diff.findings import KINDS, Finding, text
from nats_bridge_spark.diff.ordering import MOST, fewest
from nats_bridge_spark.diff.overview import MOST_HEADERS, Examples
from nats_bridge_spark.diff.request import DiffRequest, SideLocation
from nats_bridge_spark.diff.result import Counts, DiffResult
from nats_bridge_spark.diff.spooled_sides import SpooledSide, spooled_side
from nats_bridge_spark.diff.usual_copies import quick_reader
from nats_bridge_spark.errors import PipelineError
from nats_bridge_spark.progress import Progress
from nats_bridge_spark.spool import Spool, portions
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing

_Numbers = NDArray[np.int64]
_Flags = NDArray[np.bool_]

_TEXTS: Final = pa.schema([("subject", pa.binary()), ("block", pa.binary())])


@contextmanager
def compared(
    left: SideLocation, right: SideLocation, wanted: DiffRequest, progress: Progress | None = None
) -> Iterator[DiffResult[Spool]]:
    """Compare two sides. What is kept for the result is removed when the block ends.

    Raises:
        OptionError: nothing identifies messages, or the options do not go together.
        PipelineError: a side cannot be read or holds nothing, or the sides have no message in common.
    """
    progress = progress or Progress("diff")
    require_two(left, right)
    with tempfile.TemporaryDirectory(prefix="nats-bridge-diff-") as folder:
        # The right first: then the left has all that a copier has brought until then.
        other = _side("right", right, Path(folder), progress)
        one = _side("left", left, Path(folder), progress)
        yield _compared(one, other, wanted, progress, Path(folder))


def _side(name: str, place: SideLocation, folder: Path, progress: Progress) -> SpooledSide:
    came = 0

    def read(messages: int) -> None:
        nonlocal came
        came = messages

    progress.enter(f"reading the {name} side", count=lambda: came)
    return spooled_side(place, folder / name, read)


def _compared(
    left: SpooledSide, right: SpooledSide, wanted: DiffRequest, progress: Progress, folder: Path
) -> DiffResult[Spool]:
    by, reason = decision(left, right, wanted)
    comparison = comparison_of(left, by, wanted)
    messages = left.messages + right.messages
    progress.enter("bringing both sides together", total=messages)
    pair = _Pair(
        comparison,
        _read(left, comparison, folder / "left.read", is_right=False),
        _read(right, comparison, folder / "right.read", is_right=True),
    )
    matched = _Matched.of(pair)
    if not matched.common:
        raise PipelineError(nothing_in_common(left, right, comparison, [side.some() for side in pair.sides]))
    odd = matched.odd(pair)
    findings = Spool(folder / "findings", SCHEMA)
    exact = True
    if comparison.by not in ("sequence", "subject"):
        progress.enter("comparing the order", total=matched.common)
        exact = _order(pair, matched, findings)
    progress.enter("reading what differs", total=len(odd))
    for batch in batches_of(found_in(_rows_of(pair, matched, odd))):
        findings.add(batch)
    findings.complete()
    kinds, headers, examples = _overview(findings, wanted.examples)
    progress.messages = messages
    counted = [len(side.rows) for side in pair.sides]
    return DiffResult(
        left=left,
        right=right,
        comparison=comparison,
        reason=reason,
        counts=Counts(
            left=counted[0],
            right=counted[1],
            equal=len(matched.starts) - len(odd),
            common=matched.common,
            odd=len(odd),
            duplicated=matched.duplicated,
            ignored=_ignored(pair),
        ),
        left_out=(left.messages - counted[0], right.messages - counted[1]),
        kinds=kinds,
        headers=headers,
        examples=examples,
        order_is_exact=exact,
        allowed=wanted.allowed,
        findings=findings,
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """The messages of one side that are compared, in the order of their sequences.

    Attributes:
        side: the side.
        rows: their indexes in it.
        numbers: of their identities; of a message that nothing identifies its own sequence, negative on the right.
        sources: of their identities; None where the numbers are enough.
        entries: what copied them; None where nothing did.
        identified: which of them something identifies.
        ignored: what was left out, as bits.
        texts: subject and header block as they are compared, of each row of the side.
    """

    side: SpooledSide
    rows: _Numbers
    numbers: _Numbers
    sources: pa.ChunkedArray | None
    entries: pa.ChunkedArray | None
    identified: _Flags
    ignored: _Numbers
    texts: Spool

    def some(self) -> tuple[bytes, int] | None:
        """The identity of some message."""
        if not len(self.rows):
            return None
        return b"" if self.sources is None else self.sources[0].as_py(), int(self.numbers[0])

    def sequences(self, at: _Numbers) -> _Numbers:
        """The sequences of some of them."""
        return self.side.sequences[self.rows[at]]


def _read(side: SpooledSide, comparison: Comparison, file: Path, *, is_right: bool) -> _Read:
    """Read a side as it is compared; one that is compared as it is needs no reading."""
    count = side.messages
    if is_plain(comparison):
        every, nothing = np.arange(count), np.zeros(count, np.int64)
        return _Read(side, every, side.sequences, None, None, np.ones(count, np.bool_), nothing, side.rows)
    texts = Spool(file, _TEXTS)
    reading = quick_reader(comparison, right=is_right)
    columns: dict[str, list[pa.Array]] = {name: [] for name in ("state", "source", "number", "entry", "ignored")}
    for batch in side.rows.batches:
        read = read_batch(batch, reading)
        texts.add(read.select(["subject", "block"]))
        for name, arrays in columns.items():
            arrays.append(read.column(name))
    texts.complete()
    state, number, ignored = (_numpy(columns[name]) for name in ("state", "number", "ignored"))
    is_compared = np.isin(state, (State.COMPARED, State.UNIDENTIFIED))
    if comparison.by == "subject":
        is_compared &= _newest(side, None if is_right else comparison.rule)
    rows = np.flatnonzero(is_compared)
    identified = state[rows] == State.COMPARED
    own = -side.sequences[rows] if is_right else side.sequences[rows]
    sources, entries = (
        pa.chunked_array(columns[name], pa.binary()).filter(pa.array(is_compared)) for name in ("source", "entry")
    )
    return _Read(
        side,
        rows,
        np.where(identified, number[rows], own),
        sources if "source" in key_columns(comparison) else None,
        entries,
        identified,
        ignored[rows],
        texts,
    )


def _numpy(arrays: list[pa.Array]) -> _Numbers:
    return np.concatenate([array.to_numpy().astype(np.int64) for array in arrays])


def _newest(side: SpooledSide, rule: Sourcing | Republish | None) -> _Flags:
    """The messages behind which there is none with the same subject.

    Args:
        side: the side.
        rule: by which the subjects of copies count, and what is not copied does not; None for the messages' own.
    """
    encoded = pa.chunked_array([batch.column("subject") for batch in side.rows.batches]).dictionary_encode()
    subjects = encoded.chunk(0).dictionary.to_pylist()
    if rule is not None:
        subjects = [rule.destination(subject) for subject in subjects]
    numbers = {subject: number for number, subject in enumerate(dict.fromkeys(subjects)) if subject is not None}
    of_subject = np.array([numbers.get(subject, -1) for subject in subjects], np.int64)
    of_message = of_subject[np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])]
    last = np.full(len(subjects) + 1, -1, np.int64)  # with one place for what is not copied
    np.maximum.at(last, of_message, np.arange(len(of_message)))
    found: _Flags = (of_message >= 0) & (last[of_message] == np.arange(len(of_message)))
    return found


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both sides, whose messages are counted through: those of the left, then those of the right."""

    comparison: Comparison
    left: _Read
    right: _Read

    @property
    def sides(self) -> tuple[_Read, _Read]:
        """Both."""
        return self.left, self.right

    def identities(self) -> _Numbers:
        """A number for each message, the same for the same identity."""
        numbers = np.concatenate([side.numbers for side in self.sides])
        sources = [side.sources for side in self.sides]
        if sources[0] is None or sources[1] is None:
            return numbers
        source = _codes(sources[0], sources[1])
        _, number = np.unique(numbers, return_inverse=True)
        return source * (int(number.max(initial=0)) + 1) + number

    def groups(self) -> _Numbers:
        """A number for each message of the side whose messages say what copied them, the same for the same copier."""
        copied = self.left if self.comparison.by == "provenance" else self.right
        assert copied.entries is not None
        found = _codes(copied.entries)
        if copied.sources is not None:
            found += _codes(copied.sources) * (int(found.max(initial=0)) + 1)
        return found


def _codes(*columns: pa.ChunkedArray) -> _Numbers:
    """A number for each value, the same for the same value."""
    encoded = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.binary())
    chunks = encoded.dictionary_encode().chunks
    return np.concatenate([chunk.indices.to_numpy().astype(np.int64) for chunk in chunks] or [np.zeros(0, np.int64)])


@dataclass(frozen=True, slots=True)
class _Matched:
    """The messages of both sides by identity.

    Attributes:
        order: all messages (`_Pair`), sorted by identity, then by side and sequence.
        starts: where each identity begins in that order.
        lefts: how many messages of the left have each identity.
        rights: how many of the right.
    """

    order: _Numbers
    starts: _Numbers
    lefts: _Numbers
    rights: _Numbers

    @classmethod
    def of(cls, pair: _Pair) -> _Matched:
        """Bring both sides together."""
        identities = pair.identities()
        order = np.argsort(identities, kind="stable")
        identities = identities[order]
        starts = np.flatnonzero(np.diff(identities, prepend=identities[:1] - 1))
        is_right = (order >= len(pair.left.rows)).astype(np.int64)
        rights = np.add.reduceat(is_right, starts) if len(starts) else starts
        lefts = np.diff(starts, append=len(order)) - rights
        return cls(order, starts, lefts, rights)

    @property
    def common(self) -> int:
        """Identities that both sides have."""
        return int(np.count_nonzero((self.lefts > 0) & (self.rights > 0)))

    @property
    def duplicated(self) -> int:
        """Identities of which a side has several messages."""
        return int(np.count_nonzero((self.lefts > 1) | (self.rights > 1)))

    def odd(self, pair: _Pair) -> _Numbers:
        """The identities that have not one message on either side, or different ones."""
        is_odd = (self.lefts != 1) | (self.rights != 1)
        pairs = np.flatnonzero(~is_odd)
        lefts, rights = self.firsts(pair, pairs)
        is_odd[pairs] = _differ(pair, lefts, rights)
        return np.flatnonzero(is_odd)

    def firsts(self, pair: _Pair, identities: _Numbers) -> tuple[_Numbers, _Numbers]:
        """The first messages of identities that both sides have, as indexes of each."""
        starts = self.starts[identities]
        return self.order[starts], self.order[starts + self.lefts[identities]] - len(pair.left.rows)


def _differ(pair: _Pair, lefts: _Numbers, rights: _Numbers) -> _Flags:
    """Which of these pairs of messages differ."""
    here, there = pair.left.rows[lefts], pair.right.rows[rights]
    found = np.ones(len(here), np.bool_)
    for some in portions(pair.left.side.sizes[here] + pair.right.side.sizes[there]):
        texts = pair.left.texts.taken(here[some]), pair.right.texts.taken(there[some])
        same = pc.and_(*(pc.equal(texts[0].column(name), texts[1].column(name)) for name in ("subject", "block")))
        if not _without_payloads(pair.comparison):
            payloads = (of.side.rows.taken(rows[some]) for of, rows in ((pair.left, here), (pair.right, there)))
            same = pc.and_(same, pc.equal(*(each.column("data") for each in payloads)))
        found[some] = ~same.to_numpy(zero_copy_only=False)
    return found


def _without_payloads(comparison: Comparison) -> bool:
    """Whether the copies have no payload."""
    return isinstance(comparison.rule, Republish) and comparison.rule.headers_only


def _rows_of(pair: _Pair, matched: _Matched, identities: _Numbers) -> Iterator[dict[str, Any]]:
    """The messages of identities, in full (`details.found_in`)."""
    counts = (matched.lefts + matched.rights)[identities]
    ends = np.cumsum(counts)
    every = np.repeat(matched.starts[identities] - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
    messages = matched.order[every]
    beyond = len(pair.left.rows)
    sizes = np.concatenate([side.side.sizes[side.rows] for side in pair.sides])[messages]
    for some in portions(sizes):
        chosen = messages[some]
        is_right = chosen >= beyond
        rows = [
            _full(side, chosen[is_right == of_right] - beyond * of_right, pair.comparison, of_right)
            for of_right, side in enumerate(pair.sides)
        ]
        for of_right in is_right.tolist():
            yield next(rows[of_right])


def _full(side: _Read, at: _Numbers, comparison: Comparison, right: int) -> Iterator[dict[str, Any]]:
    rows = side.rows[at]
    whole, texts, taken = side.side.rows.taken(rows), side.texts.taken(rows), pa.array(at)
    states = np.where(side.identified[at], State.COMPARED, State.UNIDENTIFIED).tolist()
    nothing = [b""] * len(at)
    sources, entries = (
        nothing if column is None else column.take(taken).to_pylist() for column in (side.sources, side.entries)
    )
    payloads = nothing if _without_payloads(comparison) else whole.column("data").to_pylist()
    names = ("state", "source", "number", "sequence", "entry", "subject", "block", "data")
    columns = [states, sources, side.numbers[at].tolist(), whole.column("sequence").to_pylist(), entries]
    columns += [texts.column("subject").to_pylist(), texts.column("block").to_pylist(), payloads]
    for values in zip(*columns, strict=True):
        yield {**dict(zip(names, values, strict=True)), "right": bool(right)}


def _order(pair: _Pair, matched: _Matched, findings: Spool) -> bool:
    """Add what is out of order to the findings (see `ordering`); whether these are the fewest."""
    both = np.flatnonzero((matched.lefts > 0) & (matched.rights > 0))
    at = matched.firsts(pair, both)
    lefts, rights = pair.left.sequences(at[0]), pair.right.sequences(at[1])
    if pair.comparison.by == "id":
        groups = np.zeros(len(both), np.int64)
    else:
        groups = pair.groups()[at[0] if pair.comparison.by == "provenance" else at[1]]
    sort = np.lexsort((lefts, groups))
    groups, lefts, rights = groups[sort], lefts[sort], rights[sort]
    # Those of each group above all of the group before, so that one pass goes through all groups.
    _, places = np.unique(rights, return_inverse=True)
    _, ranks = np.unique(groups, return_inverse=True)
    values = places + ranks * (len(places) + 1)
    highest = np.maximum.accumulate(values)
    is_overtaken = np.append(False, values[1:] < highest[:-1])
    if not np.any(is_overtaken):
        return True
    lowest = np.minimum.accumulate(values[::-1])[::-1]
    involved = np.flatnonzero(is_overtaken | np.append(values[:-1] > lowest[1:], False))
    exact = len(involved) <= MOST
    if exact:
        found = fewest(*(column[involved].tolist() for column in (groups, lefts, rights)))
        late = {(left, right): is_late for left, right, is_late in found}
        is_moved = [each in late for each in zip(lefts[involved].tolist(), rights[involved].tolist(), strict=True)]
        moved = involved[is_moved]
    else:
        moved = np.flatnonzero(is_overtaken)
        late = dict.fromkeys(zip(lefts[moved].tolist(), rights[moved].tolist(), strict=True), True)
    for batch in batches_of(_out_of_order(pair, at[0][sort[moved]], lefts[moved], rights[moved], late)):
        findings.add(batch)
    return exact


def _out_of_order(
    pair: _Pair, at: _Numbers, lefts: _Numbers, rights: _Numbers, late: dict[tuple[int, int], bool]
) -> Iterator[dict[str, Any]]:
    side, by = pair.left, pair.comparison.by
    sources = [b""] * len(at) if side.sources is None else side.sources.take(pa.array(at)).to_pylist()
    for source, number, left, right in zip(sources, side.numbers[at], lefts.tolist(), rights.tolist(), strict=True):
        identity = str(number)
        if by in ("provenance", "id"):
            identity = text(source) if by == "id" else f"{text(source)} {identity}"
        yield {
            "kind": "order",
            "identity": identity,
            "left_sequence": left,
            "right_sequence": right,
            "field": "",
            "left_value": None,
            "right_value": "later" if late[left, right] else "earlier",
        }


def _ignored(pair: _Pair) -> dict[Any, tuple[int, int]]:
    every = ignored_of(pair.comparison)
    found = {
        every[bit]: tuple(int(np.count_nonzero(side.ignored >> bit & 1)) for side in pair.sides)
        for bit in bits_of(pair.comparison)
    }
    return {what: (messages[0], messages[1]) for what, messages in found.items() if any(messages)}


def _overview(findings: Spool, most: int) -> tuple[dict[str, int], dict[tuple[str, str], int], Examples]:
    """Count findings, and keep the first ones (see `overview`)."""
    table = findings.table()
    counted = table.group_by(["kind", "field"]).aggregate([([], "count_all")]).to_pylist()
    headers = {(row["kind"], row["field"]): row["count_all"] for row in counted if row["kind"].startswith("header-")}
    kinds: dict[str, int] = {}
    examples: dict[str, tuple[Finding, ...]] = {}
    for kind in KINDS:
        number = sum(row["count_all"] for row in counted if row["kind"] == kind)
        if not number:
            continue
        kinds[kind] = number
        some = table.filter(pc.equal(table.column("kind"), kind))
        some = some.append_column("place", pc.coalesce(some.column("left_sequence"), some.column("right_sequence")))
        firsts = pc.sort_indices(some, [("place", "ascending"), ("field", "ascending")])[:most]
        examples[kind] = tuple(
            Finding(
                kind,
                row["left_sequence"],
                row["right_sequence"],
                row["field"],
                row["left_value"],
                row["right_value"],
                row["identity"],
            )
            for row in some.take(firsts).to_pylist()
        )
    return kinds, dict(sorted(headers.items(), key=lambda each: (-each[1], each[0]))[:MOST_HEADERS]), examples
