"""The destination of a transform that leaves subjects as they are."""

from __future__ import annotations

__all__ = ["kept_subject"]


def kept_subject(source: str) -> str:
    """The destination that keeps every subject that a source matches: its wildcards by their numbers."""
    count = 0
    tokens = []
    for token in source.split("."):
        count += token == "*"
        tokens.append(f"{{{{wildcard({count})}}}}" if token == "*" else token)
    return ".".join(tokens)
