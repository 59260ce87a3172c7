"""Arrays of subjects through a transform: against the engine, and against what servers answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge_spark.subject_batch import destinations
from nats_transforms import TransformError, compile_transform, dialect

VECTORS = Path(__file__).parents[1] / "data" / "transform_vectors.jsonl"
VERSIONS = ("2.9.10", "2.10.27", "2.15.1")
SUBJECTS = st.sampled_from([b"a.1", b"a.2", b"b.x", b"a", b"", b"a.*", b"a.\xff.\xc3", None]) | st.binary(max_size=12)


@given(
    st.lists(SUBJECTS, max_size=60),
    st.sampled_from([(b"a.*", b"x.$1"), (b"a.>", b"{{partition(3)}}.>"), (b"a.*", b"{{left(1,1)}}"), (b"a", b"")]),
    st.integers(0, 3),
)
def test_arrays_give_what_the_engine_gives(subjects: list[bytes | None], texts: tuple[bytes, bytes], cut: int) -> None:
    transform = compile_transform(*texts)
    expected = [None if subject is None else transform.apply(subject) for subject in subjects]
    array = pa.array(subjects, pa.binary())
    assert destinations(transform, array).to_pylist() == expected
    # Arrays that Spark hands over may be views into longer ones.
    assert destinations(transform, array.slice(cut)).to_pylist() == expected[cut:]
    assert destinations(transform, array.cast(pa.large_binary())).to_pylist() == expected


def test_random_numbers_are_drawn_for_each_subject() -> None:
    transform = compile_transform(b"a", b"{{random(1000000)}}", dialect("2.15.1"))
    assert len(set(destinations(transform, pa.array([b"a"] * 1000)).to_pylist())) > 900


@pytest.mark.parametrize("version", VERSIONS)
def test_what_servers_answered_is_answered_by_arrays(version: str) -> None:
    compared = 0
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
        assert destinations(transform, array).to_pylist()[:2] == [result, None], row
        compared += 1
    assert compared > 100


def _is_hex(value: Any) -> bool:
    return isinstance(value, dict) and "hex" in value


def _raw(value: Any) -> bytes:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()
