"""The target of copies: the properties of the stream, and the hot loop that turns messages into operations for it.

A copy is byte for byte the result of `nats_transforms.sourcing` (a test compares the two). Before the source record it
also has a message id, if the publisher gave none. That replaces the id of an earlier copy. Everything constant for a
subject is built once (`known_subjects`). Messages that need more care are returned instead of written: those whose
headers may act in the target, and those that it refuses (`Rejected`).

A server that copies stores headers of counters and schedules unchanged and without effect: a stream with sources only
counts if it is a counter stream itself, and cannot have schedules (10187). But from a client, a stream refuses them or
acts on them. So the bridge renames them, as it does with source records: `Nats-Bridge-Incr`, `Nats-Bridge-Schedule`,
`Nats-Bridge-Scheduler`.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import fields_after_count
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.rules.known_subjects import KnownSubjects
from nats_transforms import copy_id, header_block
from nats_transforms.dialect import server_dialect
from nats_transforms.republish import unpublishable
from nats_transforms.source_record import HEADER, TWIN_HEADER
from nats_transforms.sourcing import Sourcing
from nats_transforms.subject import matcher, matches
from nats_transforms.timestamp import nanoseconds_of

OTHERS_UNSEEN: Final = "every copy is confirmed one by one, which is slower"
"""The effect of not receiving the messages that other clients write to the target."""

INCREMENT = b"Nats-Incr:"
"""The increment that a message adds to a counter (2.12)."""

SCHEDULES = b"Nats-Schedule"
"""Prefix of the headers of schedules, and of `Nats-Scheduler` in messages that a schedule has published (2.12)."""

RENAMED = "in copies, Nats-Incr is Nats-Bridge-Incr and Nats-Schedule… is Nats-Bridge-Schedule…: nothing acts there"
"""Said once, when there are such messages."""

_INCREMENT = b"\n" + INCREMENT
_ACTS = (b"\nNats-TTL:", b"\nNats-Rollup:", b"\n" + SCHEDULES, _INCREMENT)
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


Operation: TypeAlias = tuple[bytes, bytes]
"""The message's sequence in the source, as bytes, and an `HPUB` operation without a reply subject."""

Special: TypeAlias = "Operation | Rejected | None"
"""A message to send while no other is in flight, or to skip; or None."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that cannot be copied.

    Attributes:
        sequence: its sequence in the source.
        subject: the subject in the source, or of the copy.
        header_block: raw, as it was to be sent.
        payload: raw.
        reason: why, in words.
    """

    sequence: int
    subject: bytes
    header_block: bytes
    payload: bytes
    reason: str

    @property
    def identity(self) -> bytes:
        """An id for the message, however often it is rejected.

        It differs for the message of a recreated source.
        """
        content = zlib.crc32(self.payload, zlib.crc32(self.header_block, zlib.crc32(self.subject)))
        return b"%d-%08x" % (self.sequence, content)


class CopyEncoder:
    """Turns delivered messages of one source into operations.

    Args:
        sourcing: the compiled entry, but with the `header` of the target.
        key: the entry's key for message ids.
        max_payload: the maximum bytes of a message on the target's server, including headers.
        records: whether copies carry a source record.

    Attributes:
        already_stored: sequences that the target already has, with missing ones before them.
        id_line: the header line of a copy's id, as `copy_id.line_template` returns it.
        record: the start of the source record's line; empty if copies have no record.
        limit: the maximum bytes of a message in the target.
        counts: whether the target is a counter stream.
        where: the condition for copied messages; None for all.
        is_random: whether a subject may be another one each time.
    """

    def __init__(
        self,
        sourcing: Sourcing,
        key: bytes,
        target: Target,
        counters: CopyCounters,
        *,
        max_payload: int,
        records: bool = True,
    ) -> None:
        self.max_payload = max_payload
        self.already_stored: set[int] = set()
        self.where = sourcing.where
        self.is_random = any(part.is_random for part in sourcing.transforms)
        self._sourcing = sourcing
        self._key = key
        self._counters = counters
        self._records = records
        self.retarget(target)

    def retarget(self, target: Target, key: bytes | None = None) -> None:
        """Note that the target was changed, or the source is a new one."""
        self._target = target
        self._key = key or self._key
        # For each subject: the destination; the reason why it cannot be copied; or None if it is not selected.
        self._known: KnownSubjects[bytes | str | None] = KnownSubjects(self._destination, kept=not self.is_random)
        sourcing = self._sourcing
        self._takes = matcher(target.subjects)
        # The constant part is the record of sequence 0 without that number. The subject is at its end.
        names, nameless = (sourcing.record(0, subject)[len(sourcing.source) + 2 :] for subject in (b"*", b""))
        self._record_rest, self._names_subject = nameless, names != nameless
        self.id_line = copy_id.line_template(self._key)
        self._added_form = self.id_line + b"%b%b%b"
        self.record = b"%b: %b " % (target.record_header, sourcing.source) if self._records else b""
        self.counts = target.counts
        self._acts = tuple(name for name in _ACTS if not (target.counts and name == _INCREMENT))
        # A message without headers is written in one piece, unless that may act in the target.
        self._form = b""
        if self.record and not self.counts:
            form = b"%b%b%b%%b%b" % (
                header_block.START,
                self.id_line,
                _escaped(self.record),
                _escaped(self._record_rest),
            )
            form += b" %b\r\n\r\n" if self._names_subject else b"%.0b\r\n\r\n"
            self._form_size = len(form % (b"", b"", b"", b""))
            self._form = b"HPUB %b %d %d\r\n" + form + b"%b\r\n"
        self.limit = min(self.max_payload, target.max_message_size or self.max_payload)

    def run(self, batch: list[Delivered], out: list[Operation], start: int = 0) -> tuple[int, Special]:
        """Handle messages of a batch, in order, until its end or until one is special.

        Args:
            batch: delivered messages.
            out: gets the operations.
            start: index of the first message to handle.

        Returns:
            The index after the last message handled, and that one if it is special (nothing of it is in `out`).
        """
        if start >= len(batch):
            return len(batch), None
        added_form, record, limit = self._added_form, self.record, self.limit
        already_stored, counts, form = self.already_stored, self.counts, self._form
        form_size = self._form_size if form else 0
        names, append = self._names_subject, out.append
        known, enter, where = self._known.young, self._known.enter, self.where
        unselected = 0
        behind = fields_after_count(batch[0][1])
        for index in range(start, len(batch)):
            subject, reply, block, payload = batch[index]
            try:
                destination = known[subject]
            except KeyError:
                destination = enter(subject)
            if destination is None or (where is not None and not where.holds(block)):
                unselected += 1
                continue
            tokens = reply.rsplit(b".", behind)
            sequence, time = tokens[1], tokens[3]
            if already_stored and int(sequence) in already_stored:
                already_stored.discard(int(sequence))
                self._counters.already_there += 1
                continue
            if isinstance(destination, str):
                self._counters.unselected += unselected
                return index + 1, Rejected(int(sequence), subject, block, payload, destination)
            if form and not block:
                size = form_size + len(sequence) + len(time) + len(sequence)
                if names:
                    size += len(subject)
                total = size + len(payload)
                if total <= limit:
                    made = form % (destination, size, total, sequence, time, sequence, subject, payload)
                    append((sequence, made))
                    continue
            acts = has_id = False
            if block:
                if b"Nats-" in block:
                    has_id = block.count(b"Nats-") == 1 and b"\nNats-Msg-Id:" in block and copy_id.IN_BLOCK not in block
                    if not has_id:
                        block, acts = self._travelling(block)
                        has_id = b"\nNats-Msg-Id:" in block
                opened = block[:-2] if len(block) > 2 else header_block.START
            else:
                opened = header_block.START
            if counts and _INCREMENT not in block:
                acts = True  # it is not a counter's message, and will be refused
            tail = self._tail(subject)
            if not record:
                added = tail if has_id else added_form % (sequence, time, b"", b"", tail)
            elif has_id:
                added = b"%b%b%b" % (record, sequence, tail)
            else:
                added = added_form % (sequence, time, record, sequence, tail)
            size = len(opened) + len(added)
            total = size + len(payload)
            operation = b"HPUB %b %d %d\r\n%b%b%b\r\n" % (destination, size, total, opened, added, payload)
            if acts or total > limit:
                self._counters.unselected += unselected
                if total > limit:
                    reason = f"with its headers it has {total} bytes, more than the {limit} that the target takes"
                    return index + 1, Rejected(int(sequence), subject, opened + added, payload, reason)
                return index + 1, (sequence, operation)
            append((sequence, operation))
        self._counters.unselected += unselected
        return len(batch), None

    def _destination(self, subject: bytes) -> bytes | str | None:
        destination = self._sourcing.destination(subject)
        if destination is None:
            return None
        if unpublishable(destination) is not None and (refusal := self._sourcing.refusal(subject)) is not None:
            return f"its subject {refusal.reason}"
        if not (self._takes and self._takes(destination)):
            return f"stream '{self._target.name}' has no subject for '{destination.decode('utf-8', 'replace')}'"
        return destination

    def _tail(self, subject: bytes) -> bytes:
        """Return the end of the header block, after the sequence in the record."""
        if not self._records:
            return b"\r\n"
        name = b" " + subject if self._names_subject else b""
        return b"%b%b\r\n\r\n" % (self._record_rest, name)

    def _travelling(self, stored: bytes) -> tuple[bytes, bool]:
        """Return a header block that may be stored in the target, and whether a header that remains may act there."""
        block = self._sourcing.without_records(stored) if self._records else stored
        bare = self._target.without_withheld(self._sourcing.bare(block))
        if len(bare) < len(block):
            self._counters.withheld_headers += 1
        passive = self._target.with_renamed(bare)
        if len(passive) > len(bare):
            self._counters.renamed_headers += 1
        bare = copy_id.without_copy_id(passive)
        return bare, any(name in bare for name in self._acts)


def _escaped(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")
