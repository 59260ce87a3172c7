"""A pattern for everything that a transform can make of its subjects."""

from __future__ import annotations

from transforms.destination import Kind
from transforms.transform import Transform

__all__ = ["destination_pattern"]

_SEVERAL_TOKENS = (
    Kind.SPLIT,
    Kind.SPLIT_FROM_LEFT,
    Kind.SPLIT_FROM_RIGHT,
    Kind.SLICE_FROM_LEFT,
    Kind.SLICE_FROM_RIGHT,
)


def destination_pattern(transform: Transform) -> str:
    """The pattern; that of the source where the transform leaves subjects as they are."""
    if transform.is_empty or not transform.parts:
        return transform.pattern.decode()
    tokens: list[str] = []
    for part in transform.parts:
        if part.kind in _SEVERAL_TOKENS:
            return ".".join([*tokens, ">"])
        tokens.append(part.text.decode() if part.kind in (Kind.LITERAL, Kind.REST) else "*")
    return ".".join(tokens)
