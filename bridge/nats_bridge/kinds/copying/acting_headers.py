"""Handles headers by which a stream acts, which it refuses from clients or must not apply to a copy.

A server that copies stores them as they are, without effect: a stream with sources counts only if it is a counter
stream itself, and can have no schedules (10187). From a client a stream refuses them, or acts on them. So they travel
under names of ours, as source records do: `Nats-Bridge-Incr`, `Nats-Bridge-Schedule`, `Nats-Bridge-Scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterable

INCREMENT = b"Nats-Incr:"
"""What a message adds to a counter (2.12)."""

SCHEDULES = b"Nats-Schedule"
"""How the names of a schedule's headers begin, and `Nats-Scheduler` of what it has fired (2.12)."""

RENAMED = "in copies, Nats-Incr is Nats-Bridge-Incr and Nats-Schedule… is Nats-Bridge-Schedule…: nothing acts there"
"""Said once, when there are such messages."""

_PREFIX, _OURS = b"\nNats-", b"\nNats-Bridge-"


def counting(block: bytes) -> bytes:
    """The header block of an earlier copy of a counter's message, with the increment under its own name again."""
    return block.replace(b"\nNats-Bridge-Incr:", b"\nNats-Incr:")


def renamed(block: bytes, beginnings: Iterable[bytes]) -> bytes:
    """Rename the lines that begin with a prefix to names of ours."""
    for beginning in beginnings:
        line = b"\n" + beginning
        if line in block:
            block = block.replace(line, _OURS + line.removeprefix(_PREFIX))
    return block
