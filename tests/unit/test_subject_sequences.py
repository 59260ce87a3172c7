from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.kinds.republish.subject_sequences import SubjectSequences

# What a subject can hold: no white space, no NUL; everything else, broken UTF-8 included.
subjects = st.binary(min_size=1, max_size=12).map(lambda raw: bytes(b for b in raw if b > 32) or b"x")
sequences = st.integers(min_value=0, max_value=2**64 - 1).map(lambda n: b"%d" % n)


@given(st.lists(st.tuples(subjects, sequences), max_size=200))
def test_behaves_like_a_dict(pairs: list[tuple[bytes, bytes]]) -> None:
    plain: dict[bytes, bytes] = {}
    compact = SubjectSequences()
    for subject, sequence in pairs:
        plain[subject] = sequence
        compact.set(subject, sequence)
    assert dict(compact.items()) == plain
    assert len(compact) == len(plain)
    assert all(compact.get(subject) == sequence for subject, sequence in plain.items())
    assert compact.get(b"never.stored") is None
    assert all(plain[compact.subject_of(sequence) or b""] == sequence for sequence in plain.values())
    assert compact.subject_of(b"no number") is None


def test_holds_many_subjects_that_contain_each_other() -> None:
    compact = SubjectSequences()
    for number in range(20_000):
        compact.set(b"a.%d" % number, b"%d" % (number * 7))
    for number in range(20_000):
        assert compact.get(b"a.%d" % number) == b"%d" % (number * 7)
    assert compact.get(b"a") is None
    assert compact.get(b"a.20000") is None
    compact.clear()
    assert len(compact) == 0
    assert compact.get(b"a.1") is None


def test_replaces_shorter_and_longer_sequences_in_place() -> None:
    compact = SubjectSequences()
    for subject in (b"a", b"b", b"c"):
        compact.set(subject, b"9")
    compact.set(b"b", b"12345678901234567890")
    assert dict(compact.items()) == {b"a": b"9", b"b": b"12345678901234567890", b"c": b"9"}
    compact.set(b"b", b"1")
    assert dict(compact.items()) == {b"a": b"9", b"b": b"1", b"c": b"9"}
