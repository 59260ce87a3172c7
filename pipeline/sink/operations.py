"""The hot loop of writing: record batches in, protocol operations out; and the checks that name the row.

Columns become lists of bytes at once, and everything constant for a subject is built once. A row that cannot be a
message raises before anything of its piece is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from zlib import crc32

import pyarrow as pa

from bridge.copying.copy_loop import Operation
from bridge.copying.target import Target
from bridge.printable import printable
from pipeline.errors import RowError
from pipeline.sink.layout import RowLayout
from pipeline.sink.row_ids import RowPlace
from pipeline.sink.stored_rows import StoredRows
from transforms import header_block
from transforms.subject import is_valid_publish

__all__ = ["ForeignSubjectError", "OperationBuilder"]

_MOST_SUBJECTS = 65_536
_MOST_NAMES = 4096
_ID = b"Nats-Msg-Id"
_ID_LINE = b"\nNats-Msg-Id:"
_ID_BLOCK = len(b"NATS/1.0\r\nNats-Msg-Id: \r\n\r\n")

_Known: TypeAlias = tuple[bytes, int]
"""An operation's beginning, and the subject's checksum."""


class ForeignSubjectError(RowError):
    """A row's subject is none of the stream's.

    Args:
        message: which row, and what the stream stores.
        subject: the row's.
    """

    def __init__(self, message: str, subject: str) -> None:
        super().__init__(message)
        self.subject = subject


class OperationBuilder:
    """Makes operations of rows.

    Args:
        layout: which column is what.
        place: which task's rows they are.
        target: the stream that receives.
        max_payload: bytes that the server takes in one message, headers included.
        check_subjects: whether subjects must be the stream's.
        stored: what an earlier attempt has stored; those rows are left out.
    """

    def __init__(
        self,
        layout: RowLayout,
        place: RowPlace,
        target: Target,
        *,
        max_payload: int,
        check_subjects: bool = True,
        stored: StoredRows | None = None,
    ) -> None:
        self.already = 0  # rows left out
        self.saw_ids = False  # whether a row had an id of its own
        self.stored = stored
        self._layout = layout
        self._place = place
        self._prefix = place.prefix
        self._target = target
        self._check_subjects = check_subjects
        self._limit = min(max_payload, target.max_message_size or max_payload)
        self._known: dict[bytes, _Known] = {}
        self._names: set[bytes] = set()

    def build(self, batch: pa.RecordBatch, first: int) -> list[Operation]:
        """Operations of the rows that are not stored yet, in order.

        Args:
            batch: the rows.
            first: number of the first one in the partition, from 0.

        Returns:
            Each with the row's number plus one as its name, without a reply subject.

        Raises:
            RowError: a row cannot be a message of the stream.
        """
        layout = self._layout
        subjects = self._column(batch, layout.subject, first, "subject")
        payloads = self._column(batch, layout.data, first, "data")
        if layout.message_id is not None and layout.brings_only_ids and self.stored is None:
            ids = self._column(batch, layout.message_id, first, "id")
            if _are_plain(ids):
                return self._build_identified(first, subjects, payloads, ids)
        if layout.brings_ids:
            return self._build_any(batch, first, subjects, payloads)
        known, prefix, stored, limit = self._known, self._prefix, self.stored, self._limit
        out: list[Operation] = []
        for row, (subject, payload) in enumerate(zip(subjects, payloads, strict=True), first):
            try:
                head, check = known[subject]
            except KeyError:
                head, check = self._learn(subject, row)
            check = crc32(payload, check)
            if stored is not None and self._is_stored(stored, row, check, subject):
                continue
            block = b"NATS/1.0\r\nNats-Msg-Id: %b%d-%08x\r\n\r\n" % (prefix, row, check)
            size = len(block)
            total = size + len(payload)
            if total > limit:
                raise self._too_large(total, row, subject)
            out.append((b"%d" % (row + 1), b"%b%d %d\r\n%b%b\r\n" % (head, size, total, block, payload)))
        return out

    def _build_identified(
        self, first: int, subjects: Sequence[bytes], payloads: Sequence[bytes], ids: Sequence[bytes]
    ) -> list[Operation]:
        """The same for rows with ids of their own, and nothing else."""
        self.saw_ids = True
        known, limit = self._known, self._limit
        out: list[Operation] = []
        for name, (subject, payload, own) in enumerate(zip(subjects, payloads, ids, strict=True), first + 1):
            try:
                head, _ = known[subject]
            except KeyError:
                head, _ = self._learn(subject, name - 1)
            size = _ID_BLOCK + len(own)
            total = size + len(payload)
            if total > limit:
                raise self._too_large(total, name - 1, subject)
            data = b"%b%d %d\r\nNATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n%b\r\n" % (head, size, total, own, payload)
            out.append((b"%d" % name, data))
        return out

    def _build_any(
        self, batch: pa.RecordBatch, first: int, subjects: Sequence[bytes], payloads: Sequence[bytes]
    ) -> list[Operation]:
        """The same for rows with headers or ids of their own."""
        layout, known, prefix, stored, limit = self._layout, self._known, self._prefix, self.stored, self._limit
        blocks = self._blocks(batch, first)
        ids: Sequence[bytes | None] = [None] * len(subjects)
        if layout.message_id is not None:
            ids = self._column(batch, layout.message_id, first, "id")
        out: list[Operation] = []
        for row, (subject, payload, block, own) in enumerate(zip(subjects, payloads, blocks, ids, strict=True), first):
            try:
                head, check = known[subject]
            except KeyError:
                head, check = self._learn(subject, row)
            brought = header_block.read(block, _ID) if _ID_LINE in block else None
            if own is not None:
                if not own or b"\r" in own or b"\n" in own or own != own.strip(b" \t"):
                    raise self._wrong(row, subject, f"'{_said(own)}' cannot be a message id")
                if brought is not None and brought != own:
                    raise self._wrong(
                        row,
                        subject,
                        f"its id is '{_said(own)}', and its headers say Nats-Msg-Id '{_said(brought)}': drop one",
                    )
            message_id = own or brought
            if message_id is None:
                check = crc32(payload, crc32(block, check))
                if stored is not None and self._is_stored(stored, row, check, subject):
                    continue
                message_id = b"%b%d-%08x" % (prefix, row, check)
            else:
                self.saw_ids = True
                if stored is not None and message_id in stored.ids:
                    self.already += 1
                    continue
            if not block:
                block = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id
            elif brought is None:
                block = header_block.append(block, [(_ID, message_id)])
            size = len(block)
            total = size + len(payload)
            if total > limit:
                raise self._too_large(total, row, subject)
            out.append((b"%d" % (row + 1), b"%b%d %d\r\n%b%b\r\n" % (head, size, total, block, payload)))
        return out

    def _column(self, batch: pa.RecordBatch, index: int, first: int, role: str) -> list[bytes]:
        column = batch.column(index)
        if column.null_count:
            row = first + column.is_null().to_pylist().index(True)
            name = batch.schema.field(index).name
            raise RowError(f"{self._named(row)}: {role} is null; leave such rows out: .where('{name} is not null')")
        return _bytes(column)

    def _blocks(self, batch: pa.RecordBatch, first: int) -> list[bytes]:
        """The header block of each row as it was given; empty for none."""
        layout = self._layout
        if layout.header_block is not None:
            return [block or b"" for block in _bytes(batch.column(layout.header_block))]
        if layout.headers is None:
            return [b""] * batch.num_rows
        column = batch.column(layout.headers)
        counts = [count or 0 for count in column.value_lengths().to_pylist()]
        names: list[Any]
        values: list[bytes | None]
        names, values = (_bytes(part) for part in column.flatten().flatten())
        known = self._names
        blocks: list[bytes] = []
        end = 0
        for row, count in enumerate(counts, first):
            start, end = end, end + count
            if not count:
                blocks.append(b"")
                continue
            lines = []
            for name, value in zip(names[start:end], values[start:end], strict=True):
                if name not in known:
                    known.add(self._checked(name, row))
                if value is None or b"\n" in value or b"\r" in value:
                    said = "null" if value is None else f"'{_said(value)}'"
                    raise RowError(f"{self._named(row)}: header {_said(name)}: its value {said} is not one line")
                lines.append(b"%b: %b\r\n" % (name, value))
            blocks.append(b"NATS/1.0\r\n%b\r\n" % b"".join(lines))
        return blocks

    def _checked(self, name: bytes | None, row: int) -> bytes:
        if not name or name != b"".join(name.split()) or b":" in name or min(name) < 0x21 or max(name) == 0x7F:
            said = "null" if name is None else f"'{_said(name)}'"
            raise RowError(f"{self._named(row)}: {said} cannot be the name of a header: no spaces, no colon, not empty")
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        return name

    def _learn(self, subject: bytes, row: int) -> _Known:
        if not is_valid_publish(subject) or b"\x00" in subject:
            raise self._wrong(
                row, subject, "a message cannot have this subject: no empty tokens, no wildcards, no white space"
            )
        if self._check_subjects and not self._target.takes(subject):
            patterns = ", ".join(pattern.decode("utf-8", "replace") for pattern in self._target.subjects[:5])
            wrong = self._wrong(
                row, subject, f"stream '{self._target.name}' does not store this subject, but {patterns or 'none'}"
            )
            raise ForeignSubjectError(wrong.message, subject.decode())
        known = self._known
        if len(known) >= _MOST_SUBJECTS:
            known.clear()
        entry = known[subject] = (b"HPUB %b " % subject, crc32(subject))
        return entry

    def _is_stored(self, stored: StoredRows, row: int, check: int, subject: bytes) -> bool:
        found = stored.check_of(row)
        if found is None:
            removed = stored.was_removed(row)
            self.already += removed
            return removed
        if found != check:
            raise self._wrong(
                row,
                subject,
                "an earlier attempt has stored another message as this row: the rows do not come in the same order"
                " each time; sort them, or give ids of their own (a column id, or option idColumn)",
            )
        self.already += 1
        return True

    def _too_large(self, total: int, row: int, subject: bytes) -> RowError:
        return self._wrong(row, subject, f"with its headers it has {total} bytes, more than the {self._limit} allowed")

    def _wrong(self, row: int, subject: bytes, why: str) -> RowError:
        return RowError(f"{self._named(row)} (subject '{_said(subject)}'): {why}")

    def _named(self, row: int) -> str:
        return f"row {row} of partition {self._place.partition}"


def _are_plain(ids: Sequence[bytes]) -> bool:
    """Whether all of them can be message ids without a closer look: not empty, no line ends, no spaces."""
    lines = b"\n".join((b"", *ids, b""))
    return lines.count(b"\n") == len(ids) + 1 and not any(text in lines for text in (b"\n\n", b"\r", b" ", b"\t"))


def _bytes(column: Any) -> list[Any]:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return list(column.to_pylist())
    return list(column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary()).to_pylist())


def _said(text: bytes) -> str:
    return printable(text.decode("utf-8", "replace"))[:200]
