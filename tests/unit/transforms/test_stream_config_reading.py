"""Requests that are read in an odd way, each seen on real servers (found by differential testing)."""

from __future__ import annotations

import pytest

from transforms import StreamConfigError, dialect
from transforms.stream_config import validate


@pytest.mark.parametrize(("value", "described"), [([], "array"), (1, "number"), (True, "bool"), ({}, "object")])
def test_a_compression_of_another_type_is_named_by_its_place(value: object, described: str) -> None:
    with pytest.raises(StreamConfigError) as refused:
        validate({"name": "S", "compression": value}, dialect("2.15.1"))
    place = "Go struct field StreamConfigRequest.StreamConfig.compression"
    assert refused.value.description == f"invalid JSON: json: cannot unmarshal {described} into {place} of type string"
