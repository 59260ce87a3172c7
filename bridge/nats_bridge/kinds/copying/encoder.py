"""The hot loop that turns the source's messages into operations for the target.

A copy is byte for byte the result of `nats_transforms.sourcing` (a test compares the two). Before the source record it
also has a message id, if the publisher gave none. If the source is itself a copy, this id replaces the bridge's id.
Everything constant for a subject is built once (`known_subjects`). Messages that need more care are returned instead of
written: those whose headers may act in the target, those without an increment for a counter, and those that it refuses
(`Rejected`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TypeAlias

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import fields_after_count
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.target import INCREMENT, SCHEDULES, Target
from nats_bridge.rules.known_subjects import KnownSubjects
from nats_transforms import copy_id, header_block
from nats_transforms.republish import unpublishable
from nats_transforms.sourcing import Sourcing
from nats_transforms.subject import matcher

_INCREMENT = b"\n" + INCREMENT
_ACTS = (b"\nNats-TTL:", b"\nNats-Rollup:", b"\n" + SCHEDULES, _INCREMENT)

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
        header_block: raw. It is the copy's, or the source's if the destination cannot be published on.
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

        It differs for another message that a recreated source has under the same sequence.
        """
        content = zlib.crc32(self.payload, zlib.crc32(self.header_block, zlib.crc32(self.subject)))
        return b"%d-%08x" % (self.sequence, content)


class CopyEncoder:
    """Turns delivered messages of one source into operations.

    Args:
        sourcing: the compiled entry. Its `header` is the name of the source record in this target.
        key: the entry's key for message ids.
        max_payload: the maximum bytes of a message on the target's server, including headers.
        records: whether copies carry a source record.

    Attributes:
        already_stored: sequences after the resume point that the target has. Messages before them are missing.
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
