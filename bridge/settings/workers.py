"""The key `workers`: over how many processes the rules are spread."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

__all__ = ["Workers", "WorkersField"]

Workers: TypeAlias = int | Literal["auto"]
"""A number, or `auto`: as many as cores may be used."""

_MOST: Final = 256


def _workers(value: Any) -> Workers:
    if value == "auto":
        return "auto"
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)  # of a variable
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise PydanticCustomError(
            "workers",
            "{value} is no number of processes; write auto or a whole number from 1 to {most}",
            {"value": repr(value), "most": _MOST},
        )
    return value


WorkersField = Annotated[
    Workers,
    PlainValidator(_workers),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": _MOST}], "default": 1}),
]
"""`Workers` as a key of the configuration."""
