"""Arrays of subjects through a transform: Arrow's and numpy's short ways against the engine, and against servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge_spark import subject_batch
from nats_bridge_spark.subject_batch import batch_function, fnv1a_32
from nats_transforms import TransformError, compile_transform, dialect
from nats_transforms.functions import fnv1a_32 as engines_fnv1a_32

VECTORS = Path(__file__).parents[1] / "data" / "transform_vectors.jsonl"
VERSIONS = ("2.9.10", "2.10.27", "2.15.1")

DIALECTS = st.sampled_from(["2.9.10", "2.9.25", "2.10.27", "2.11.17", "2.12.15", "2.15.1"]).map(dialect)
WORDS = st.sampled_from(
    [b"a", b"b", b"foo", b"*", b">", b"", b"*x", b">x", b" ", b"\xff", b"\xc3", "é日".encode(), b"q" * 40, b"\x00"]
)
SUBJECTS = st.lists(WORDS, min_size=1, max_size=5).map(b".".join) | st.binary(max_size=12)
MODULI = st.sampled_from([0, 1, 2, 3, 8, 10, 4095, 4096, 4097, 65537, 2**31 - 1, -1, -7])


@st.composite
def transforms_of_columns(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A source, and a destination of literals, wildcards, partitions and `>`; some that servers refuse among them."""
    source = draw(st.lists(st.sampled_from([b"*", b"*", b"foo", b"a", b"*x", b">x"]), max_size=4))
    stars = source.count(b"*")
    rest = not source or draw(st.booleans())
    index = st.integers(-1, stars)
    tokens = st.one_of(
        st.sampled_from([b"foo", b"x", b"b", b">x", "日".encode(), b"\xff"]),
        index.map(lambda number: b"{{wildcard(%d)}}" % number),
        index.map(lambda number: b"$%d" % number),
        st.builds(
            lambda modulus, at: b"{{partition(%s)}}" % b",".join(b"%d" % number for number in [modulus, *at]),
            MODULI,
            st.lists(index, max_size=3),
        ),
    )
    destination = draw(st.lists(tokens, min_size=not rest, max_size=4))
    end = [b">"] if rest else []
    return b".".join([*source, *end]), b".".join([*destination, *end])


@given(transforms_of_columns(), DIALECTS, st.lists(SUBJECTS | st.none(), max_size=12), st.integers(0, 3))
def test_columns_of_tokens_give_what_the_engine_gives(
    texts: tuple[bytes, bytes], chosen: Any, subjects: list[bytes | None], cut: int
) -> None:
    try:
        transform = compile_transform(*texts, chosen)
    except TransformError:
        return
    expected = [None if subject is None else transform.apply(subject) for subject in subjects]
    array = pa.array(subjects, pa.binary())
    assert batch_function(transform)(array).to_pylist() == expected
    # Arrays that Spark hands over may be views into longer ones.
    assert batch_function(transform)(array.slice(cut)).to_pylist() == expected[cut:]
    assert batch_function(transform)(array.cast(pa.large_binary())).to_pylist() == expected


@given(
    st.lists(st.sampled_from([b"a.1", b"a.2", b"b.x", b"a", b"", b"\xff.\xc3", None]), min_size=20, max_size=60),
    st.sampled_from([b"x.$1", b"{{partition(3,1)}}.$1", b"{{split(1,1)}}", b"{{left(1,1)}}"]),
    st.integers(0, 3),
)
def test_subjects_that_are_repeated(subjects: list[bytes | None], destination: bytes, cut: int) -> None:
    transform = compile_transform(b"a.*", destination)
    expected = [None if subject is None else transform.apply(subject) for subject in subjects]
    array = pa.array(subjects, pa.binary())
    asked = batch_function(transform)
    assert asked(array).to_pylist() == expected
    assert asked(array.slice(cut)).to_pylist() == expected[cut:]
    # What is not repeated is not distinguished, and some arrays behind it are not, either.
    others = [b"a.%d" % number for number in range(20)]
    assert asked(pa.array(others, pa.binary())).to_pylist() == list(map(transform.apply, others))
    for _ in range(20):
        assert asked(array).to_pylist() == expected


def test_of_repeated_subjects_each_is_transformed_once() -> None:
    asked: list[bytes] = []

    def counted(subjects: pa.Array) -> pa.Array:
        asked.extend(subjects.to_pylist())
        return subjects

    once = subject_batch._each_once(counted)
    assert once(pa.array([b"b", None, b"a", b"b"] * 50)).to_pylist() == [b"b", None, b"a", b"b"] * 50
    assert asked == [b"b", b"a"]


def test_random_numbers_are_drawn_for_each_subject() -> None:
    transform = compile_transform(b"a", b"{{random(1000000)}}", dialect("2.15.1"))
    assert len(set(batch_function(transform)(pa.array([b"a"] * 1000)).to_pylist())) > 900


@given(st.lists(SUBJECTS, min_size=1, max_size=20), st.sampled_from([b"*", b"*.*", b"*.>", b"foo.*", b">", b"*.a.*"]))
def test_most_subjects_match_some_transform(subjects: list[bytes], source: bytes) -> None:
    # The source is drawn without the destination here, so that many of the subjects match.
    end = b".>" if source.endswith(b">") else b""
    inner = b"{{partition(11,1)}}.x.$1" if b"*" in source else b"x"
    transform = compile_transform(source, inner + end)
    assert batch_function(transform)(pa.array(subjects, pa.binary())).to_pylist() == list(
        map(transform.apply, subjects)
    )


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_the_hash_is_the_engines(keys: list[bytes]) -> None:
    ends = np.cumsum([0, *map(len, keys)], dtype=np.int64)
    data = np.frombuffer(b"".join(keys), np.uint8)
    hashes = fnv1a_32(data, [(ends[:-1], np.diff(ends))], len(keys))
    assert hashes.tolist() == list(map(engines_fnv1a_32, keys))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_servers_answered_is_answered_by_arrays(version: str) -> None:
    compared = columns = 0
    for line in VECTORS.read_text("ascii").splitlines():
        row = json.loads(line)
        reported = {name: row.get(name, {}).get(version) for name in ("results", "subject_transform")}
        answers = {_raw(answer) for answer in reported.values() if isinstance(answer, str) or _is_hex(answer)}
        try:
            transform = compile_transform(_raw(row["src"]), _raw(row["dest"]), dialect(version))
        except TransformError:
            continue
        result = transform.apply(_raw(row["subject"]))
        if transform.is_random or transform.defects or result not in answers:
            continue  # the server did something else than to transform; tests/unit/transforms/test_vectors.py says what
        array = pa.array([_raw(row["subject"]), None, b"a..b"], pa.binary())
        made = batch_function(transform)
        assert made(array).to_pylist()[:2] == [result, None], row
        compared += 1
        columns += made.__name__ == "columns"
    assert compared > 100
    assert columns > 50


def test_functions_that_cut_go_through_the_engine() -> None:
    transform = compile_transform(b"a.*", b"{{left(1,1)}}.{{splitFromLeft(1,2)}}")
    array = pa.array(["a.é", None, "b.x", "a.xyz"])
    assert batch_function(transform)(array).to_pylist() == [b"\xc3.\xc3\xa9", None, None, b"x.xy.z"]


def test_an_empty_destination_gives_nothing_and_everything_to_everything_gives_all() -> None:
    array = pa.array(["a", None, "a..b"])
    assert batch_function(compile_transform(b"a", b""))(array).to_pylist() == [None] * 3
    assert batch_function(compile_transform(b">", b">"))(array).to_pylist() == [b"a", None, b"a..b"]


def test_a_long_subject_among_short_ones() -> None:
    transform = compile_transform(b"*.*", b"{{partition(1000,1,2)}}.$2")
    subjects = [b"a.b", b"x" * 70_000 + b".y", b"cc.dd"] * 50
    assert batch_function(transform)(pa.array(subjects)).to_pylist() == list(map(transform.apply, subjects))


def _is_hex(value: Any) -> bool:
    return isinstance(value, dict) and "hex" in value


def _raw(value: Any) -> bytes:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()
