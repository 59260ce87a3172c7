"""Comparisons of patterns, against trying out every short subject."""

from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nats_bridge.settings.checks.patterns import in_bytes, reserved_prefix, subjects_of
from nats_transforms.errors import TransformError
from nats_transforms.subject import is_valid_pattern, matches
from nats_transforms.transform import compile_transform

_WORDS = ("a", "b", "*a", "0", "1", "2")
_SUBJECTS = [".".join(words) for count in range(1, 5) for words in product(_WORDS, repeat=count)]
_PATTERNS = st.lists(st.sampled_from(["a", "b", "*a", "1", "*", ">"]), min_size=1, max_size=3).map(".".join)
_PATTERNS = _PATTERNS.filter(lambda pattern: is_valid_pattern(in_bytes(pattern)))
_TOKENS = ["a", "1", "$1", "{{partition(2,1)}}", "{{left(1,1)}}", "{{split(1,a)}}", "{{splitFromLeft(1,1)}}", ">"]
_DESTINATIONS = st.lists(st.sampled_from(_TOKENS), min_size=1, max_size=3).map(".".join)


def _fitting(pattern: str) -> set[str]:
    return {subject for subject in _SUBJECTS if matches(in_bytes(subject), in_bytes(pattern))}


@given(one=_PATTERNS, other=_PATTERNS)
def test_covering_and_overlapping(one: str, other: str) -> None:
    # Patterns have three tokens at most, so subjects of four distinguish all of them.
    first, second = subjects_of(one), subjects_of(other)
    assert second.within(first) == (_fitting(other) <= _fitting(one))
    assert bool(first.meet(second)) == bool(_fitting(one) & _fitting(other))
    assert second.meet(first) == first.meet(second)


@given(source=_PATTERNS, destination=_DESTINATIONS, pattern=_PATTERNS)
def test_what_comes_out_of_a_transform(source: str, destination: str, pattern: str) -> None:
    try:
        transform = compile_transform(in_bytes(source), in_bytes(destination))
    except TransformError:
        assume(False)
        raise
    results = (transform.apply(in_bytes(subject)) for subject in _fitting(source))
    if any(matches(result, in_bytes(pattern)) for result in results if result is not None):
        made = subjects_of(source).through(transform)
        assert made is not None
        assert made.meet(subjects_of(pattern))


@pytest.mark.parametrize(
    ("source", "destination", "again"),
    [
        ("events.*", "{{partition(8,1)}}.events.$1", False),
        ("events.*.*", "{{partition(8,1)}}.events.$1", False),
        ("events.*", "events.{{partition(8,1)}}.$1", False),
        ("7.*", "{{partition(8,1)}}.$1", True),
        ("8.*", "{{partition(8,1)}}.$1", False),
        ("events.*.*", "$1.events.$2", True),
        ("events.*", "$1.stored", True),
        ("events.>", "events.stored.>", True),
        ("events.>", "stored.>", False),
        ("events.*.x", "{{split(1,-)}}", True),
    ],
)
def test_a_transform_that_feeds_itself(source: str, destination: str, again: bool) -> None:
    made = subjects_of(source).through(compile_transform(in_bytes(source), in_bytes(destination)))
    assert made is not None
    assert bool(made.meet(subjects_of(source))) is again


@pytest.mark.parametrize(
    ("subject", "space"),
    [("$JS.API.x", "$JS.>"), ("$SYS.>", "$SYS.>"), ("_INBOX.$1", "_INBOX.>"), ("$JSX.a", None), ("$KV.a.b", None)],
)
def test_reserved_subjects(subject: str, space: str | None) -> None:
    assert reserved_prefix(subject) == space
