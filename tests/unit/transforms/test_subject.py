import pytest

from nats_transforms.subject import (
    collide,
    is_subset,
    is_valid_filter,
    is_valid_literal,
    is_valid_pattern,
    is_valid_publish,
    is_wild,
    matches,
    one_line,
    tokens,
)


def test_tokens_are_what_is_between_dots() -> None:
    assert tokens(b"a.b..c") == [b"a", b"b", b"", b"c"]
    assert tokens(b"") == [b""]


@pytest.mark.parametrize(
    ("subject", "pattern", "filter_", "literal", "publish"),
    [
        (b"foo", True, True, True, True),
        (b"foo.*", True, True, False, False),
        (b"foo.>", True, True, False, False),
        (b">", True, True, False, False),
        (b"foo.>.a", False, False, False, False),
        (b"foo.>x.a", True, True, True, True),
        (b"foo.*x", True, True, True, True),
        (b"foo..a", False, False, False, False),
        (b".foo", False, False, False, False),
        (b"foo.", False, False, False, False),
        (b"", False, False, False, False),
        (b"foo. ", True, False, True, False),
        (b"foo.a\tb", True, False, True, False),
        (b"foo.a\x0cb", True, False, True, False),
        (b"foo.a\x0bb", True, True, True, True),
        (b"foo.\xff", True, True, True, True),
    ],
)
def test_validity(subject: bytes, pattern: bool, filter_: bool, literal: bool, publish: bool) -> None:
    assert is_valid_pattern(subject) is pattern
    assert is_valid_filter(subject) is filter_
    assert is_valid_literal(subject) is literal
    assert is_valid_publish(subject) is publish


@pytest.mark.parametrize(
    ("subject", "pattern", "expected"),
    [
        (b"foo", b"foo", True),
        (b"foo", b"bar", False),
        (b"foo", b">", True),
        (b"foo", b"foo.>", False),
        (b"foo.a.b", b"foo.>", True),
        (b"foo.a", b"foo.*", True),
        (b"foo.a.b", b"foo.*", False),
        (b"foo", b"foo.*", False),
        (b"foo.zzz", b"foo.*x", False),
        (b"foo.*x", b"foo.*x", True),
        (b"foo.*", b"foo.*", True),
        (b"foo.>", b"foo.*", True),
        (b"a.b.c", b"*.*.c", True),
    ],
)
def test_subscriptions_and_consumer_filters_match(subject: bytes, pattern: bytes, expected: bool) -> None:
    assert matches(subject, pattern) is expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (b"foo.a", b"foo.*", True),
        (b"foo.*", b"foo.a", False),
        (b"foo.*", b"foo.*", True),
        (b"foo.*", b"foo.>", True),
        (b"foo.>", b"foo.*", False),
        (b"foo.>", b"foo.>", True),
        (b"foo.>", b">", True),
        (b"foo.*.>", b"foo.>", True),
        (b"foo", b"foo.>", False),
        (b"foo.a.b", b"foo.a", False),
        (b"foo.a", b"foo.a.b", False),
        (b"foo.zzz", b"foo.*x", False),
        (b"foo.*x", b"foo.*x", True),
        (b"foo.*", b"foo.*x", False),
        (b"foo..a", b"foo.*.a", False),
        (b"$x.a", b"$x.*", True),  # in the order of bytes before `*`
        (b"*", b"$x", False),
    ],
)
def test_subset(a: bytes, b: bytes, expected: bool) -> None:
    assert is_subset(a, b) is expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (b"foo", b"foo", True),
        (b"foo", b"bar", False),
        (b"foo.a", b"foo.*", True),
        (b"foo.*", b"*.a", True),
        (b"foo.*", b"bar.*", False),
        (b"foo.*.a", b"foo.b.*", True),
        (b"foo.*", b"foo.*.*", False),
        (b"foo.>", b"foo.*.*", True),
        (b"foo.>", b"foo", False),
        (b"foo.*", b"foo.*.>", False),
        (b"foo.a.>", b"foo.*.b.c", True),
        (b"foo.{{partition(3,1)}}", b"foo.*", True),
        (b"$1.b", b"a.*", False),
        (b">", b"a", True),
        (b"foo.*x.*", b"foo.q.*", False),
        (b"foo.>x.*", b"foo.q.*", False),
        (b"foo.>x.*", b"foo.>x.a", True),
    ],
)
def test_collision_is_symmetric(a: bytes, b: bytes, expected: bool) -> None:
    assert collide(a, b) is expected
    assert collide(b, a) is expected


@pytest.mark.parametrize("one", [b"foo.*x.*", b"foo.**.*", b"foo.>x.*"])
def test_until_2_14_10_and_2_15_3_the_first_byte_of_a_token_decides(one: bytes) -> None:
    assert collide(one, b"foo.q.*", by_first_byte=True)
    assert collide(b"foo.q.*", one, by_first_byte=True)
    assert is_subset(b"foo.q.a", one, by_first_byte=True) is (b">" not in one)
    assert not is_subset(b"foo.*.a", one, by_first_byte=True)


def test_a_token_is_wild_by_its_first_byte_only_where_asked() -> None:
    assert (is_wild(b"*"), is_wild(b"*x"), is_wild(b"*x", by_first_byte=True)) == (True, False, True)


def test_a_text_for_a_screen_has_no_control_characters() -> None:
    assert one_line("orders.é\n\x1b[2J") == "orders.é\\n\\x1b[2J"
