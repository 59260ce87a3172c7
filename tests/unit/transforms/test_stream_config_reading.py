"""Requests that are read in an odd way, each seen on real servers (found by differential testing)."""

import pytest

from nats_transforms import StreamConfigError, dialect
from nats_transforms.stream_config import validate


@pytest.mark.parametrize(("value", "described"), [([], "array"), (1, "number"), (True, "bool"), ({}, "object")])
def test_a_compression_of_another_type_is_named_by_its_place(value: object, described: str) -> None:
    with pytest.raises(StreamConfigError) as refused:
        validate({"name": "S", "compression": value}, dialect("2.15.1"))
    place = "Go struct field StreamConfigRequest.StreamConfig.compression"
    assert refused.value.description == f"invalid JSON: json: cannot unmarshal {described} into {place} of type string"


@pytest.mark.parametrize(
    ("twice", "member", "kept"),
    [
        ({"max_msgs": 5, "Max_Msgs": None}, "max_msgs", 5),
        ({"max_msgs": 5, "Max_Msgs": 6}, "max_msgs", 6),
        ({"subjects": ["a", "b"], "SUBJECTS": None}, "subjects", ["S"]),
        ({"subjects": ["a", "b"], "SUBJECTS": ["c"]}, "subjects", ["c"]),
        ({"republish": {"src": "S", "dest": "x"}, "REPUBLISH": {"dest": "y"}}, "republish", {"src": "S", "dest": "y"}),
        ({"republish": {"src": "S", "dest": "x"}, "REPUBLISH": None}, "republish", None),
        ({"metadata": {"a": "b"}, "METADATA": {"c": "d"}}, "metadata", {"a": "b", "c": "d"}),
        (
            {"sources": [{"name": "A", "filter_subject": "x"}], "SOURCES": [{"name": "B"}, {"name": "C"}]},
            "sources",
            [{"name": "B", "filter_subject": "x"}, {"name": "C"}],
        ),
    ],
)
def test_a_member_that_comes_twice_is_read_into_the_first(twice: dict[str, object], member: str, kept: object) -> None:
    assert validate({"name": "S", **twice}, dialect("2.15.1")).get(member) == kept
