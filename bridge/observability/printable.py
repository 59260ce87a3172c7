"""Text from elsewhere on one line of a screen: a server's words must not move a cursor, nor look like a second line."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """The text without line ends, control characters and runs of blanks."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
