"""Where transforms may land: decided by shape, held against what they make of subjects."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_bridge.rules.loops.subject_overlap import first_matching, may_land_on
from nats_transforms.subject import matches
from nats_transforms.transform import compile_transform


@pytest.mark.parametrize(
    ("source", "destination", "pattern", "lands"),
    [
        (b"a.*", b"b.$1", b"b.*", True),
        (b"a.*", b"b.$1", b"b.x", True),
        (b"a.*", b"b.$1", b"b.*.*", False),
        (b"a.*", b"b.$1", b"b", False),
        (b"a.*", b"b.$1", b"c.>", False),
        (b"a.>", b"b.>", b"b.x.y", True),
        (b"a.>", b"b.>", b"b.>", True),
        (b"a.>", b"b.>", b"b", False),
        (b"a.*.>", b"$1.b.>", b"x.c.>", False),
        (b"a.*", b"{{split(1,-)}}.z", b"x.y.z", True),
        (b"a.*", b"{{split(1,-)}}.z", b"x.y", False),
        (b"a.*", b"{{splitfromleft(1,2)}}", b"x", True),
        (b"a.*", b"{{partition(8,1)}}.$1", b"*.*", True),
        (b"a.*", b"{{left(1,2)}}.x", b"*", False),
        (b">", b">", b"anything.at.all", True),
    ],
)
def test_decisions(source: bytes, destination: bytes, pattern: bytes, lands: bool) -> None:
    assert may_land_on(compile_transform(source, destination), pattern) is lands


def test_the_first_that_fits() -> None:
    transform = compile_transform(b"a.*", b"b.$1")
    assert first_matching(transform, ["a.*", "b.c.d", "b.>", "b.*"]) == "b.>"
    assert first_matching(transform, []) is None


TOKEN = st.sampled_from(["a", "b", "x-y", "-"])
PATTERN = st.lists(st.sampled_from(["a", "b", "x", "y", "*"]), min_size=1, max_size=5)
DESTINATION = st.lists(
    st.sampled_from(
        ["a", "$1", "$2", "{{split(1,-)}}", "{{slicefromleft(2,1)}}", "{{left(1,1)}}", "{{partition(2,1)}}"]
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=20 * settings.default.max_examples, database=None)
@given(DESTINATION, TOKEN, TOKEN, PATTERN, st.booleans())
def test_what_lands_may_land(destination: list[str], one: str, other: str, pattern: list[str], rest: bool) -> None:
    transform = compile_transform(b"s.*.*", ".".join(destination).encode())
    wanted = ".".join([*pattern, ">"] if rest else pattern)
    result = transform.apply(f"s.{one}.{other}".encode())
    assert result is not None
    if b"" in result.split(b"."):
        return
    assert matches(result, transform.covering)
    if matches(result, wanted.encode()):
        assert may_land_on(transform, wanted.encode())


@pytest.mark.parametrize(
    ("source", "destination", "pattern"),
    [
        (b"a.*", b"", "a.*"),
        (b">", b">", ">"),
        (b"a.>", b"b.>", "b.>"),
        (b"a.*.*", b"b.$2.x", "b.*.x"),
        (b"a.*", b"b.{{split(1,-)}}.c", "b.>"),
    ],
)
def test_every_result_is_covered(source: bytes, destination: bytes, pattern: str) -> None:
    assert compile_transform(source, destination).covering.decode() == pattern
