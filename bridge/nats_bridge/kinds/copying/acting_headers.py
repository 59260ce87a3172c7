"""Handles headers that a stream acts on. A stream refuses them from clients, or must not apply them to a copy.

A server that copies stores them unchanged and without effect: a stream with sources only counts if it is a counter
stream itself, and cannot have schedules (10187). But from a client, a stream refuses them or acts on them. So the
bridge renames them, as it does with source records: `Nats-Bridge-Incr`, `Nats-Bridge-Schedule`,
`Nats-Bridge-Scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterable

INCREMENT = b"Nats-Incr:"
"""The increment that a message adds to a counter (2.12)."""

SCHEDULES = b"Nats-Schedule"
"""Prefix of the headers of schedules, and of `Nats-Scheduler` in messages that a schedule has published (2.12)."""

RENAMED = "in copies, Nats-Incr is Nats-Bridge-Incr and Nats-Schedule… is Nats-Bridge-Schedule…: nothing acts there"
"""Said once, when there are such messages."""

_PREFIX, _OURS = b"\nNats-", b"\nNats-Bridge-"


def counting(block: bytes) -> bytes:
    """Restore the increment's own name in the header block of an earlier copy."""
    return block.replace(b"\nNats-Bridge-Incr:", b"\nNats-Incr:")


def renamed(block: bytes, beginnings: Iterable[bytes]) -> bytes:
    """Rename the headers that begin with one of these prefixes to names of the bridge."""
    for beginning in beginnings:
        line = b"\n" + beginning
        if line in block:
            block = block.replace(line, _OURS + line.removeprefix(_PREFIX))
    return block
