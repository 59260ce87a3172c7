"""A transform applied to a whole Arrow array of subjects.

Theory of operation: the engine's own function, in a loop over the array, is the meaning of everything here. Profiles
asked for two shorter ways (figures: docs/benchmarks.md): `partition` hashes byte by byte, slowly in Python, and with
numpy for all subjects at once; and where a destination is made of literals, wildcards, `>` and partitions alone, Arrow
cuts, compares and joins whole columns of tokens. Every subject must have the same answer in both ways, whatever its
bytes are; tests/spark/test_subject_batch.py holds one against the other. Other functions take the loop. And where an
array holds the same subjects again and again, as histories do, each of them is transformed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial, wraps
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nats_transforms.destination import DestinationPart, Kind
from nats_transforms.dialect import Dialect
from nats_transforms.functions import modulus_of
from nats_transforms.subject import DOT, REST, is_wild, tokens
from nats_transforms.transform import Transform

Array: TypeAlias = Any
"""A `pyarrow.Array`, which comes without annotations."""

_Rows: TypeAlias = NDArray[np.int64]

_COLUMNAR: Final = frozenset((Kind.LITERAL, Kind.WILDCARD, Kind.REST, Kind.PARTITION))
_FNV_OFFSET: Final = np.uint32(2166136261)
_FNV_PRIME: Final = np.uint32(16777619)
_TABLE: Final = 4096
_REPEATED: Final = 3  # times that each subject is there on average, from which telling them apart pays
_NOT_TRIED: Final = 15  # arrays, after one in which subjects were not repeated
_STAR, _GREATER = b"*>"


def batch_function(transform: Transform) -> Callable[[Array], Array]:
    """The function that transforms an array.

    It takes a string or binary array (large ones as well) and gives a binary array of the same length: null for null,
    and null where the source does not match.
    """
    if transform.is_empty:
        return lambda subjects: pa.nulls(len(subjects), pa.binary())
    if transform.pattern == transform.destination == REST:
        return lambda subjects: subjects.cast(pa.binary())  # tokens are not checked, like the server
    if all(part.kind in _COLUMNAR for part in transform.parts):
        return _each_once(_columnar(transform.pattern, transform.parts, transform.dialect))
    apply = transform.apply

    def one_by_one(subjects: Array) -> Array:
        raw = subjects.cast(pa.binary()).to_pylist()
        return pa.array([None if subject is None else apply(subject) for subject in raw], pa.binary())

    return one_by_one if transform.is_random else _each_once(one_by_one)


def _each_once(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The same function, which is given each subject of an array once where they are repeated."""
    not_tried = 0

    @wraps(function)
    def transformed(subjects: Array) -> Array:
        nonlocal not_tried
        if not_tried:
            not_tried -= 1
            return function(subjects)
        apart = subjects.cast(pa.binary()).dictionary_encode()
        if len(apart.dictionary) * _REPEATED > len(apart):
            not_tried = _NOT_TRIED
            return function(subjects)
        return function(apart.dictionary).take(apart.indices)

    return transformed


def fnv1a_32(data: NDArray[np.uint8], keys: Iterable[tuple[_Rows, _Rows]], count: int) -> NDArray[np.uint32]:
    """The FNV-1a hash, in 32 bits, of `count` keys at once.

    Args:
        data: the bytes of all keys.
        keys: where in `data` the keys' pieces begin, and how long they are; the pieces of a key are hashed as one text.
    """
    hashes = np.full(count, _FNV_OFFSET, np.uint32)
    for starts, lengths in keys:
        rows = np.flatnonzero(lengths)
        state, at, left = hashes[rows], starts[rows], lengths[rows]
        while rows.size:
            state = (state ^ data[at]) * _FNV_PRIME
            at += 1
            left -= 1
            going = left > 0
            if not going.all():
                hashes[rows] = state
                rows, state, at, left = rows[going], state[going], at[going], left[going]
    return hashes


class _Batch:
    """The tokens of an array of subjects, as one Arrow array of tokens and where each subject's begin in it."""

    def __init__(self, subjects: Array) -> None:
        self.raw = subjects.cast(pa.binary())
        cut = pc.split_pattern(self.raw, DOT)
        self.first = np.asarray(cut.offsets, np.int64)
        self.tokens = cut.values
        self.starts, self.data = _buffers(self.tokens)
        self.lengths = np.diff(self.starts)

    def matching(self, count: int, *, or_more: bool, literals: Sequence[tuple[int, bytes]]) -> _Rows:
        """The subjects that have `count` tokens (or more), these literals among them, and none of "", `*` and `>`."""
        counts = np.diff(self.first)  # null has no token, every subject has one
        fits = counts >= count if or_more else counts == count
        short = np.flatnonzero(self.lengths <= 1)
        if short.size:
            byte = self.data[np.minimum(self.starts[short], self.data.size - 1)] if self.data.size else short
            bad = short[(self.lengths[short] == 0) | (byte == _STAR) | (byte == _GREATER)]
            fits[np.searchsorted(self.first, bad, side="right") - 1] = False
        rows = np.flatnonzero(fits)
        for position, text in literals:
            same = pc.equal(self.token(rows, position), pa.scalar(text, pa.binary()))
            rows = rows[np.asarray(same, np.bool_)]
        return rows

    def token(self, rows: _Rows, position: int) -> Array:
        """The subjects' tokens at a position, from 0."""
        return self.tokens.take(pa.array(self.first[rows] + position))

    def rest(self, rows: _Rows, position: int) -> Array:
        """The subjects from a position on, dots included."""
        subjects = self.raw if len(rows) == len(self.raw) else self.raw.take(pa.array(rows))
        if not position:
            return subjects
        cut = pc.split_pattern(subjects, DOT, max_splits=position)
        return cut.values.take(pa.array(np.asarray(cut.offsets, np.int64)[1:] - 1))

    def partition(self, rows: _Rows, positions: Sequence[int], modulus: int) -> Array:
        """The partition of the tokens at these positions, written together; of entire subjects where there is none."""
        if not modulus:
            return pa.scalar(b"0", pa.binary())
        if positions:
            where = [self.first[rows] + position for position in positions]
            keys = [(self.starts[at], self.lengths[at]) for at in where]
            hashes = fnv1a_32(self.data, keys, len(rows))
        else:
            starts, data = _buffers(self.raw)
            hashes = fnv1a_32(data, [(starts[rows], starts[rows + 1] - starts[rows])], len(rows))
        numbers = hashes % np.uint32(modulus)
        if modulus > _TABLE:
            return pa.array(numbers).cast(pa.string()).cast(pa.binary())
        return _texts(modulus).take(pa.array(numbers))


def _columnar(pattern: bytes, parts: Sequence[DestinationPart], dialect: Dialect) -> Callable[[Array], Array]:
    source = tokens(pattern)
    with_rest = source[-1] == REST
    fixed = source[:-1] if with_rest else source
    wild = partial(is_wild, by_first_byte=dialect.first_byte_is_wildcard)
    literals = [(position, token) for position, token in enumerate(fixed) if not wild(token)]

    def columns(subjects: Array) -> Array:
        batch = _Batch(subjects)
        rows = batch.matching(len(source), or_more=with_rest, literals=literals)
        made = _joined([_piece(batch, rows, part) for part in parts], len(rows))
        if len(rows) == len(subjects):
            return made
        places = np.full(len(subjects), -1)
        places[rows] = np.arange(len(rows))
        return made.take(pa.array(places, mask=places < 0))

    return columns


def _piece(batch: _Batch, rows: _Rows, part: DestinationPart) -> Array:
    if part.kind is Kind.LITERAL:
        return pa.scalar(part.text, pa.binary())
    if part.kind is Kind.WILDCARD:
        return batch.token(rows, part.positions[0])
    if part.kind is Kind.REST:
        return batch.rest(rows, part.positions[0])
    return batch.partition(rows, part.positions, modulus_of(part))


def _joined(pieces: Sequence[Array], count: int) -> Array:
    made = pc.binary_join_element_wise(*pieces, pa.scalar(DOT, pa.binary()))
    return pa.repeat(made, count) if isinstance(made, pa.Scalar) else made


@lru_cache(maxsize=16)
def _texts(modulus: int) -> Array:
    return pa.array([b"%d" % number for number in range(modulus)], pa.binary())


def _buffers(array: Array) -> tuple[_Rows, NDArray[np.uint8]]:
    """Where each value of a binary array begins (and the last one ends), and the bytes of all."""
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1] if offsets else [0]
    return np.asarray(starts, np.int64), np.frombuffer(data or b"", np.uint8)
