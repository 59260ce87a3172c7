"""The properties of a target: the messages that a stream accepts from a client, and how it stores them.

A server that copies stores headers of counters and schedules unchanged and without effect: a stream with sources only
counts if it is a counter stream itself, and cannot have schedules (10187). But from a client, a stream refuses them or
acts on them. So the bridge renames them, as it does with source records: `Nats-Bridge-Incr`, `Nats-Bridge-Schedule`,
`Nats-Bridge-Scheduler`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nats_bridge.client.jetstream_api import Json
from nats_transforms import header_block
from nats_transforms.dialect import server_dialect
from nats_transforms.source_record import HEADER, TWIN_HEADER
from nats_transforms.subject import matches
from nats_transforms.timestamp import nanoseconds_of

OTHERS_UNSEEN: Final = "every copy is confirmed one by one, which is slower"
"""The effect of not receiving the messages that other clients write to the target."""

INCREMENT = b"Nats-Incr:"
"""The increment that a message adds to a counter (2.12)."""

SCHEDULES = b"Nats-Schedule"
"""Prefix of the headers of schedules, and of `Nats-Scheduler` in messages that a schedule has published (2.12)."""

RENAMED = "in copies, Nats-Incr is Nats-Bridge-Incr and Nats-Schedule… is Nats-Bridge-Schedule…: nothing acts there"
"""Said once, when there are such messages."""

_PREFIX, _OURS = b"\nNats-", b"\nNats-Bridge-"
_NANOSECONDS = 10**9
_LIMITS = ("max_msgs", "max_bytes", "max_age", "max_msgs_per_subject")
_FEEDS = ("sources", "subject_delete_marker_ttl", "allow_msg_schedules")
_DEFAULT_WINDOW = 120 * _NANOSECONDS


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


@dataclass(frozen=True, slots=True)
class Target:
    """The properties of a target stream.

    Attributes:
        subjects: the subjects that it stores.
        max_message_size: the maximum bytes of header block and payload; None without a limit.
        window_ns: the duplicate window in nanoseconds; 0 without one.
        record_header: the name under which it accepts source records from clients.
        withheld: beginnings of header lines that it would refuse a message for.
        renamed: prefixes of header lines that would make it refuse a message or act on it; copies keep these headers
            under names of the bridge.
        counts: whether it is a counter stream, which adds up published messages.
        max_msgs_per_subject: the limit of messages for each subject; 0 without a limit.
        forgets: whether it removes messages by limits.
        full_is_refused: whether it refuses messages when it is full (discard new).
        room: the messages and bytes until it is full, by the limits for the whole stream; 0 messages if limits per
            subject decide.
        fed_by_server: whether the server itself stores messages in it that no subscriber receives: native copies,
            delete markers (2.11), messages of schedules (2.12).
        replicas: the number of servers that have it.
        clock_error_ns: nanoseconds by which the server's clock was ahead of this machine's when the facts were read.
    """

    name: str
    subjects: tuple[bytes, ...]
    max_message_size: int | None
    window_ns: int
    record_header: bytes
    withheld: tuple[bytes, ...]
    renamed: tuple[bytes, ...]
    counts: bool
    max_msgs_per_subject: int
    forgets: bool
    full_is_refused: bool
    room: tuple[float, float]
    fed_by_server: bool
    replicas: int
    clock_error_ns: int = 0

    @classmethod
    def of(cls, info: Json, server_version: str) -> Target:
        """Return the properties that a `STREAM.INFO` shows.

        Args:
            server_version: of the server that answered.
        """
        config, server = info["config"], server_dialect(server_version)
        withheld = [b"Nats-Expected-"]
        if server.source_record_is_refused_from_clients:
            withheld.append(HEADER + b":")
        if not config.get("allow_rollup_hdrs"):
            withheld.append(b"Nats-Rollup:")
        if server.stream_fields_of_2_11 and not config.get("allow_msg_ttl"):
            withheld.append(b"Nats-TTL:")
        if server.copies_lose_batch_headers:
            withheld.append(b"Nats-Batch-")
        counts = bool(config.get("allow_msg_counter"))
        size = int(config.get("max_msg_size", -1))
        has_window = "duplicate_window" in config or not server.sources_drop_duplicate_window
        return cls(
            name=str(config["name"]),
            subjects=tuple(subject.encode() for subject in config.get("subjects") or ()),
            max_message_size=size if size > 0 else None,
            window_ns=int(config.get("duplicate_window") or _DEFAULT_WINDOW) if has_window else 0,
            # A counter takes a client's message with the server's own record for one that it copies itself (10172).
            record_header=TWIN_HEADER if server.source_record_is_refused_from_clients or counts else HEADER,
            withheld=tuple(withheld),
            renamed=(() if counts else (INCREMENT,)) + (SCHEDULES,) if server.stream_fields_of_2_12 else (),
            counts=counts,
            max_msgs_per_subject=max(int(config.get("max_msgs_per_subject", -1)), 0),
            forgets=cls.forgets_by(config),
            full_is_refused=config.get("discard") == "new",
            room=_room(config, info["state"]),
            fed_by_server=any(config.get(name) for name in _FEEDS),
            replicas=int(config.get("num_replicas", 1)),
            # Servers before 2.10 do not report their time.
            clock_error_ns=nanoseconds_of(info["ts"]) - time.time_ns() if info.get("ts") else 0,
        )

    @property
    def now_ns(self) -> int:
        """The time by its server's clock, in nanoseconds since 1970: message times and ids are compared with that."""
        return time.time_ns() + self.clock_error_ns

    @staticmethod
    def forgets_by(config: Json) -> bool:
        """Return whether a stream with this configuration removes messages by limits."""
        return any(int(config.get(limit) or -1) > 0 for limit in _LIMITS)

    @property
    def counts_copies(self) -> bool:
        """Whether its sequences show how many messages it has stored, as long as no other client writes."""
        return self.replicas == 1 and self.window_ns > 0 and not self.full_is_refused and not self.fed_by_server

    @staticmethod
    def may_have_removed_first(info: Json) -> bool:
        """Return whether limits or clients may have removed a stream's first messages, by its `STREAM.INFO`.

        A message that a later one of its subject replaced does not count.
        """
        config, state = info["config"], info["state"]
        replaces = int(config.get("max_msgs_per_subject", -1)) > 0 or config.get("allow_rollup_hdrs")
        if int(state["first_seq"]) <= 1:
            return False
        if not replaces or int(config.get("max_age") or 0) > 0 or config.get("allow_msg_ttl"):
            return True
        # A stream that removes messages because it is full stays about as full.
        messages, size = int(config.get("max_msgs", -1)), int(config.get("max_bytes", -1))
        return 0 < messages <= int(state["messages"]) or 0 < size <= 2 * int(state["bytes"])

    def stores(self, subject: bytes) -> bool:
        """Return whether it stores messages of a subject."""
        return any(matches(subject, pattern) for pattern in self.subjects)

    def without_withheld(self, block: bytes) -> bytes:
        """Remove from a header block all headers that make the target refuse the message, or report it elsewhere."""
        for beginning in self.withheld:
            block = header_block.remove_prefix(block, beginning)
        return header_block.untraced(block)

    def with_renamed(self, block: bytes) -> bytes:
        """Rename the headers that would act here, but that a server would store in a copy without effect."""
        return renamed(counting(block) if self.counts else block, self.renamed)


def _room(config: Json, state: Json) -> tuple[float, float]:
    if config.get("discard_new_per_subject"):
        return 0, 0
    messages, size = int(config.get("max_msgs", -1)), int(config.get("max_bytes", -1))
    return (
        messages - int(state["messages"]) if messages > 0 else math.inf,
        size - int(state["bytes"]) if size > 0 else math.inf,
    )
