import pytest

from nats_transforms import TransformError, compile_transform, dialect


@pytest.mark.parametrize(
    ("source", "destination", "back_source", "back_destination"),
    [
        ("one.*.*", "uno.$2.$1", "uno.*.*", "one.$2.$1"),
        ("a.*.b.*.c", "$2.x.{{wildcard(1)}}", "*.x.*", "a.$2.b.$1.c"),
        ("a.>", "b.c.>", "b.c.>", "a.>"),
        (">", "x.>", "x.>", ">"),
        (">", ">", ">", ">"),
        ("*.>", "x.$1.>", "x.*.>", "$1.>"),
        ("foo", "bar", "bar", "foo"),
        ("*.*.*", "$3.$1.$2", "*.*.*", "$2.$3.$1"),
    ],
)
def test_permutations_have_a_reverse(source: str, destination: str, back_source: str, back_destination: str) -> None:
    back = compile_transform(source.encode(), destination.encode()).reverse()
    assert (back.source, back.destination) == (back_source.encode(), back_destination.encode())


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [
        ("foo.*.*", "x.$1", "wildcard at token 3 of the source is not used"),
        ("foo.*", "x.$1.$1", "does not stand for one wildcard once"),
        ("*.*", "x.$0.$2", "does not stand for one wildcard once"),
        ("foo.*", "{{split(1,-)}}", "cannot be undone"),
        ("foo.*", "$1.{{partition(3,1)}}", "cannot be undone"),
        ("foo.*", "$1.{{random(3)}}", "cannot be undone"),
        ("$1.*", "x.$1", "token $1 of the source cannot be written in a destination"),
        ("{{x(1)}}.*", "x.$1", "cannot be written in a destination"),
        ("foo", "", "the destination is empty"),
    ],
)
def test_what_loses_something_has_none(source: str, destination: str, words: str) -> None:
    with pytest.raises(TransformError) as refused:
        compile_transform(source.encode(), destination.encode()).reverse()
    assert refused.value.code == "not_reversible"
    assert words in refused.value.reason


@pytest.mark.parametrize("version", ["2.14.9", "2.15.2"])
def test_a_token_that_only_begins_with_a_star_has_none_while_it_is_wild(version: str) -> None:
    with pytest.raises(TransformError, match="token \\*x of the source cannot be written"):
        compile_transform(b"foo.*x", b"y", dialect(version)).reverse()
    assert compile_transform(b"foo.*x", b"y", dialect("2.15.3")).reverse().destination == b"foo.*x"


def test_the_reverse_has_the_same_dialect() -> None:
    chosen = dialect("2.9")
    assert compile_transform(b"a.*", b"b.$1", chosen).reverse().dialect is chosen
