"""Dialects in a configuration: which there are, and which versions a rule's dialect stands for."""

from __future__ import annotations

from typing import Final

from nats_bridge.bridge.settings.models import NATIVE_DIALECT
from nats_bridge.transforms.dialect import KNOWN_LINES, Dialect, dialect
from nats_bridge.transforms.errors import UnknownDialectError

__all__ = ["candidates", "dialect_problem", "with_transforms"]

_FIRST_WITH_TRANSFORMS: Final = dialect("2.10.0")


def dialect_problem(text: str) -> str | None:
    """Why `text` is no dialect, or None."""
    if text == NATIVE_DIALECT:
        return None
    try:
        dialect(text)
    except UnknownDialectError:
        lines = ", ".join(f"{major}.{minor}" for major, minor in KNOWN_LINES)
        return f"unknown dialect '{text}'; takes one of {lines}, a full version such as 2.10.27, or native"
    return None


def candidates(version: str) -> tuple[Dialect, ...]:
    """The dialects that a rule may run with, oldest first: one, or with `native` all that are known."""
    if version == NATIVE_DIALECT:
        return tuple(dialect(f"{major}.{minor}") for major, minor in KNOWN_LINES)
    return (dialect(version),)


def with_transforms(version: Dialect) -> Dialect:
    """The dialect itself, or the oldest one whose servers have subject transforms in streams.

    The sidecar brings these transforms to older servers, which have no decision about them to follow.
    """
    return version if version.stream_fields_of_2_10 else _FIRST_WITH_TRANSFORMS
