"""The examples that the architecture decision records give, row by row."""

import pytest

from nats_transforms import compile_transform, dialect
from nats_transforms.republish import compile_republish

DIALECTS = ("2.9", "2.10", "2.11", "2.12", "2.14", "2.15")

# ADR-28, its first version of 2022: source, destination, published, republished.
ADR_28 = [
    (">", "uno.>", "one.two.three", "uno.one.two.three"),
    (">", "uno.>", "four.five.six", "uno.four.five.six"),
    (">", "uno.dos.>", "one.two.three", "uno.dos.one.two.three"),
    (">", "uno.dos.>", "four.five.six", "uno.dos.four.five.six"),
    ("one.>", "uno.>", "one.two.three", "uno.two.three"),
    ("one.>", "uno.>", "four.five.six", None),
    ("one.two.>", "uno.dos.>", "one.two.three", "uno.dos.three"),
    ("one.two.>", "uno.dos.>", "four.five.six", None),
    ("one", "uno", "one", "uno"),
    ("one", "uno", "four", None),
    # The configuration example of all its versions.
    ("one.>", "uno.>", "one.foo.bar", "uno.foo.bar"),
    ("one.>", "uno.>", "four.foo.bar", None),
]


@pytest.mark.parametrize("version", DIALECTS)
def test_adr_28(version: str) -> None:
    for source, destination, published, republished in ADR_28:
        rule = compile_republish("Stream1", {"src": source, "dest": destination}, dialect(version))
        assert rule.destination(published.encode()) == (None if republished is None else republished.encode())


@pytest.mark.parametrize("version", DIALECTS)
def test_adr_28_source_defaults_to_everything(version: str) -> None:
    rule = compile_republish("Stream1", {"dest": "uno.>"}, dialect(version))
    assert rule.destination(b"four.five.six") == b"uno.four.five.six"


# ADR-30, its table of functions: source, destination, subject, result. The table prints `abc.def.ghi` for
# the split of `-abc-def--ghij-`; servers give `abc.def.ghij`.
ADR_30 = [
    ("one.*.three.*.five", "uno.{{wildcard(2)}}.{{wildcard(1)}}", "one.two.three.four.five", "uno.four.two"),
    ("*.two.three.>", "uno.$1.>", "one.two.three.four.five", "uno.one.four.five"),
    (">", "eins.zwei.drei.vier.>", "four.five.six", "eins.zwei.drei.vier.four.five.six"),
    ("*", "{{split(1,-)}}", "-abc-def--ghij-", "abc.def.ghij"),
    ("*", "{{splitfromleft(1,3)}}", "12345", "123.45"),
    ("*", "{{SplitFromRight(1,3)}}", "12345", "12.345"),
    ("*", "{{SliceFromLeft(1,3)}}", "1234567890", "123.456.789.0"),
    ("*", "{{SliceFromRight(1,3)}}", "1234567890", "1.234.567.890"),
    ("foo.*", "bar.{{partition(10,1)}}.$1", "foo.a", "bar.0.a"),
]


@pytest.mark.parametrize("version", DIALECTS)
def test_adr_30(version: str) -> None:
    for source, destination, subject, expected in ADR_30:
        transform = compile_transform(source.encode(), destination.encode(), dialect(version))
        assert transform.apply(subject.encode()) == expected.encode()


# ADR-36, its configuration examples: source, destination, subject, result (None: the subject stays).
ADR_36 = [
    ("foo", "foo-transformed", "foo", "foo-transformed"),
    ("bar", "", "bar", None),
    ("bar", "bar-transformed", "bar", "bar-transformed"),
    ("$KV.A.>", "$KV.B.>", "$KV.A.key.part", "$KV.B.key.part"),
    ("stream2.foo.>", "foo2.>", "stream2.foo.a", "foo2.a"),
    ("stream2.bar.>", "bar2.>", "stream2.bar.a.b", "bar2.a.b"),
    ("stream2.foo.>", "foo2.>", "stream2.bar.a", None),
    ("foo.>", "mapped.foo.>", "foo.a", "mapped.foo.a"),
]


@pytest.mark.parametrize("version", DIALECTS[1:])
def test_adr_36(version: str) -> None:
    for source, destination, subject, expected in ADR_36:
        transform = compile_transform(source.encode(), destination.encode(), dialect(version))
        assert transform.apply(subject.encode()) == (None if expected is None else expected.encode())
