"""Patterns against the engine: whatever subject can occur, a pattern must stand for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_transforms.subject import matches
from nats_transforms.subject_patterns import EVERYTHING, Pattern
from nats_transforms.transform import compile_transform

LETTERS = st.sampled_from(["a", "b", "a-b", "7", "12"])
SUBJECTS = st.lists(LETTERS, min_size=1, max_size=5).map(".".join)
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, ">"] if rest or not tokens else tokens),
    st.lists(LETTERS | st.just("*"), max_size=4),
    st.booleans(),
)
TRANSFORMS = st.sampled_from(
    [
        ("a.>", "b.>"),
        (">", "a.>"),
        (">", ">"),
        ("*.*", "b.$2.$1"),
        ("a.*.>", "a.>"),
        ("*.b.>", "$1.{{partition(3,1)}}.>"),
        ("*.*", "{{split(1,-)}}.x"),
        ("*.*", "x.{{left(2,1)}}.{{wildcard(1)}}"),
        ("*.*", "{{splitfromleft(1,1)}}"),
        ("a", "b.c"),
        ("*", "{{random(20)}}.$0"),
        ("*a.*", "z.$1"),
    ]
)


@given(PATTERNS, PATTERNS, SUBJECTS)
def test_a_common_part_holds_what_both_hold(one: str, two: str, subject: str) -> None:
    common = Pattern.of(one).meet(Pattern.of(two))
    both = matches(subject.encode(), one.encode()) and matches(subject.encode(), two.encode())
    assert both == (common is not None and matches(subject.encode(), str(common).encode()))
    assert common == Pattern.of(two).meet(Pattern.of(one))


@given(PATTERNS, PATTERNS)
def test_within_means_that_the_common_part_is_the_whole(one: str, two: str) -> None:
    assert Pattern.of(one).within(Pattern.of(two)) == (Pattern.of(one).meet(Pattern.of(two)) == Pattern.of(one))


@given(PATTERNS, SUBJECTS, TRANSFORMS)
def test_a_result_is_among_what_the_pattern_becomes(pattern: str, subject: str, texts: tuple[str, str]) -> None:
    transform = compile_transform(texts[0].encode(), texts[1].encode())
    result = transform.apply(subject.encode())
    if result is None or not matches(subject.encode(), pattern.encode()):
        return
    become = Pattern.of(pattern).through(transform)
    assert become is not None
    assert Pattern.of(result).within(become), become
    assert Pattern.of(result).within(become.shortened(1))


@pytest.mark.parametrize(
    ("pattern", "source", "destination", "expected"),
    [
        ("a.*.c", "a.>", "b.>", "b.*.c"),
        ("a.x.>", "a.*.*", "b.$2.$1", "b.*.x"),
        ("a.*", "*.*", "$1.{{split(2,-)}}.end", "a.>"),
        ("a.b-c", "*.*", "$1.{{split(2,-)}}.end", "a.b.c.end"),
        ("a.*", "a.*", "b.{{left(1,1)}}", "b.*"),
        ("a.longer", "a.*", "b.{{left(1,1)}}", "b.l"),
        ("a.>", "b.*", "c.$1", None),
        ("a.>", "a", "c", None),
        ("a.b", "a.*", "", "a.b"),
    ],
)
def test_what_a_transform_makes_of_a_pattern(pattern: str, source: str, destination: str, expected: str | None) -> None:
    result = Pattern.of(pattern).through(compile_transform(source.encode(), destination.encode()))
    assert (None if result is None else str(result)) == expected


def test_numbers_are_distinguished_from_words() -> None:
    numbers = Pattern.of("a.*").through(compile_transform(b"a.*", b"{{partition(8,1)}}.$1"))
    assert numbers is not None
    for literal, possible in (("7", True), ("8", False), ("07", False), ("orders", False), ("*", True)):
        assert (numbers.meet(Pattern.of(f"{literal}.>")) is not None) == possible
    more = Pattern.of("a.*").through(compile_transform(b"a.*", b"{{random(20)}}.$1"))
    assert more is not None
    assert numbers.meet(more) == numbers == more.meet(numbers)
    assert numbers.within(more)
    assert not more.within(numbers)


def test_a_destination_of_which_only_the_text_is_known() -> None:
    assert str(Pattern.of_destination("a.b.{{newer(1)}}.c")) == "a.b.>"
    assert str(Pattern.of_destination("a.$1")) == "a.>"
    assert str(Pattern.of_destination("a.b")) == "a.b"
    assert Pattern.of_destination("{{newer(1)}}") == EVERYTHING
