"""When a stream's own republish sends what a rule sends."""

import pytest

from nats_bridge.kinds.republish.native_repeat import sent_twice
from nats_transforms.dialect import NEWEST
from nats_transforms.republish import compile_republish


def common(rule: tuple[str, str], native: tuple[str, str], *exclude: str, **config: object) -> str:
    """The subjects that are sent twice, as text; empty if there are none."""
    made = compile_republish(
        "S", {"src": rule[0], "dest": rule[1]}, NEWEST, exclude=[pattern.encode() for pattern in exclude]
    )
    stream = {"subjects": ["S.>"], "republish": {"src": native[0], "dest": native[1]}, **config}
    found = sent_twice(made, stream, NEWEST)
    return "" if found is None else str(found)


@pytest.mark.parametrize(
    ("rule", "native", "subjects"),
    [
        (("S.>", "out.>"), ("S.>", "out.>"), "S.>"),
        ((">", "out.>"), ("", "out.>"), "S.>"),
        (("S.*", "out.S.$1"), (">", "out.>"), "S.*"),
        (("S.*.x", "out.{{wildcard(1)}}"), ("S.a.x", "out.a"), "S.a.x"),
        (("S.*", "out.{{partition(3,1)}}"), ("S.*", "out.{{Partition(3,1)}}"), "S.*"),
        (("S.*.*", "out.$1.$2"), ("S.>", "out.>"), "S.*.*"),
        (("S.a.>", "out.>"), ("S.*.b.>", "out.b.>"), "S.a.b.>"),
        (("T.>", "out.>"), ("T.>", "out.>"), ""),
        (("S.>", "out.>"), ("S.>", "other.>"), ""),
        (("S.*.*", "out.$2.$1"), ("S.>", "out.>"), ""),
        (("S.*", "out.$1"), (">", "out.>"), ""),
        (("S.a", "out"), ("S.b", "out"), ""),
    ],
)
def test_the_same_destination_for_the_same_subject(
    rule: tuple[str, str], native: tuple[str, str], subjects: str
) -> None:
    assert common(rule, native) == subjects


def test_what_the_rule_leaves_out_is_sent_once() -> None:
    assert common(("S.>", "out.>"), ("S.a.>", "out.a.>"), "S.a.>") == ""
    assert common(("S.>", "out.>"), ("S.a.>", "out.a.>"), "S.a.b") == "S.a.>"


def test_streams_that_bring_other_subjects() -> None:
    both = ("T.>", "out.>")
    for config in ({"sources": [{"name": "A"}]}, {"mirror": {"name": "A"}}, {"subject_transform": {"dest": "T.>"}}):
        assert common(both, both, **config) == "T.>"


def test_no_republish() -> None:
    for none in ({"republish": None}, {"republish": {}}, {"republish": {"src": "S.>", "dest": "x.{{unknown(1)}}"}}):
        assert common(("S.>", "out.>"), ("S.>", "out.>"), **none) == ""
