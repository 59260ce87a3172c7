"""How much is captured at once: enough to keep all tasks busy, little enough that a kill costs little."""

from __future__ import annotations

from typing import Final

__all__ = ["end_of_chunk", "tasks_for"]

_BYTES: Final = 2 * 1024**3
"""In a chunk, about, before compression."""
_ROWS_PER_TASK: Final = 100_000
_BYTES_PER_TASK: Final = 32 * 1024**2
"""Below both, another task, and so another file, is not worth its while."""


def end_of_chunk(first: int, last: int, *, remaining: int | None, average: int, chunk: int) -> int:
    """The last sequence of the next chunk.

    Args:
        first: its first sequence.
        last: the last sequence that is wanted.
        remaining: how many messages there are from first to last; None if that is not known.
        average: bytes of a message.
        chunk: messages wanted in a chunk.
    """
    rows = max(1, min(chunk, _BYTES // max(1, average)))
    span = last - first + 1
    if remaining is None or remaining > span:
        remaining = span
    if remaining <= rows:
        return last
    # Where messages are gone in between, more sequences hold as many messages.
    return min(last, first + rows * span // remaining - 1)


def tasks_for(rows: int, *, average: int, most: int) -> int:
    """Tasks for a chunk with so many messages of so many bytes, `most` at most."""
    wanted = max(-(-rows // _ROWS_PER_TASK), -(-rows * average // _BYTES_PER_TASK))
    return max(1, min(most, wanted))
