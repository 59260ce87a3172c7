"""The compiled map of last sequences answers as Python's."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.bridge.kinds.republish import compiled as module
from nats_bridge.bridge.kinds.republish.subject_sequences import SubjectSequences

Compiled: Any = vars(module)["SubjectSequences"]
SUBJECTS = st.sampled_from([b"a", b"b", b"a.b", b"a.b.c", b"x y", b"\xff", b"long" * 99])
SEQUENCES = st.integers(0, 2**64 - 1) | st.integers(0, 9)


def known(sequences: Any) -> dict[bytes, bytes]:
    found = dict(sequences.items())
    assert len(sequences) == len(found)
    return found


@given(st.lists(st.tuples(SUBJECTS, SEQUENCES, st.integers(0, 19)), max_size=60))
def test_both_maps_answer_the_same(steps: list[tuple[bytes, int, int]]) -> None:
    python, compiled = SubjectSequences(), Compiled()
    for subject, number, what in steps:
        sequence = b"%d" % number
        if what == 0:
            python.clear()
            compiled.clear()
        elif what == 1:
            python.forget_below(number)
            compiled.forget_below(number)
        elif what < 6:
            python.set(subject, sequence)
            compiled.set(subject, sequence)
        else:
            assert python.exchange(subject, sequence) == compiled.exchange(subject, sequence)
        found = known(compiled)
        assert found == known(python)
        assert compiled.get(subject) == python.get(subject)
        holders: list[bytes | None] = [each for each, last in found.items() if last == sequence]
        assert compiled.subject_of(sequence) in (holders or [None])
    assert compiled.get(b"never.stored") is None
    assert compiled.subject_of(b"no number") is None


def test_many_subjects() -> None:
    compiled = Compiled()
    for number in range(100_000):
        compiled.set(b"a.%d" % number, b"%d" % (number * 7))
    assert len(compiled) == 100_000
    assert all(compiled.get(b"a.%d" % number) == b"%d" % (number * 7) for number in range(100_000))
    compiled.forget_below(7 * 99_000)
    assert len(compiled) == 1_000
    assert compiled.get(b"a.98999") is None
    assert compiled.subject_of(b"%d" % (7 * 99_500)) == b"a.99500"
