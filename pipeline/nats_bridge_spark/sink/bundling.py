"""The hot path of writing: turns the rows of a record batch into messages.

The problem: a repeated task must not store a row twice, and a Python loop over the rows is too slow.

The idea: each message carries an id, and whole columns are joined to whole columns of header blocks.

* Rows without ids get one (`stored_rows`). A later attempt of the task leaves out those whose ids are stored.
* Rows with ids keep them, in their own column or as `Nats-Msg-Id` in their headers.
* If ids are the only headers and all are plain text, the blocks are joined column by column. Rows with headers are
  built one by one (`_identified`).

Example: task `T` has the prefix `spark-k-0-7-`. It writes rows 0 to 2 of subject `a`, is killed after two of them, and
runs again.

```text
first attempt   row 0 gets T0-1c291ca3, row 1 gets T1-8d076785, killed
stored rows     0: 1c291ca3, 1: 8d076785
second attempt  row 0, row 1: same check, left out, `already` is 2; row 2 gets T2-f4d06ac4, sent
                if row 1 had another payload now: another check, RowError
```

Invariants:

* `build` returns the messages of a batch or raises. Nothing of a batch with a wrong row is sent, and the error names
  the row.
* A message's name is its row's number plus one, in the order of the rows.
* A row is left out only if the stream has it, or is known to have had it.
"""

import sys
from array import array
from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.kinds.copying.target import Target
from nats_bridge_spark.row_bundle import RowBundle, as_text, constant, first_with, joined
from nats_bridge_spark.sink.plan import RowLayout
from nats_bridge_spark.sink.stored_rows import StoredRows, TaskPlace, said
from nats_transforms import header_block
from nats_transforms.republish import unpublishable

_MOST_SUBJECTS = 65_536
_ID = b"Nats-Msg-Id"
_ID_LINE = b"\nNats-Msg-Id:"
_BEFORE_ID = constant(b"NATS/1.0\r\nNats-Msg-Id: ")
_BEHIND_ID = constant(b"\r\n\r\n")
_DASH = constant(b"-")
_CRLF = constant(b"\r\n")
_NAME = r"^[^\x00-\x20:\x7f]+$"


class BundleBuilder:
    """Builds the messages of a task's rows.

    Args:
        max_payload: the maximum bytes of a message on the server, including headers.
    """

    def __init__(
        self, layout: RowLayout, place: TaskPlace, target: Target, *, max_payload: int, check_subjects: bool = True
    ) -> None:
        self.already = 0  # rows left out
        self.stored: StoredRows | None = None  # rows stored by an earlier attempt, which are left out
        self._layout = layout
        self._place = place
        self._prefix = place.prefix
        self._before_row = constant(b"NATS/1.0\r\nNats-Msg-Id: " + place.prefix)
        self._target = target
        self._check_subjects = check_subjects
        self._limit = min(max_payload, target.max_message_size or max_payload)
        self._known: dict[bytes, int] = {}  # subjects that are the stream's, with their checksums

    def build(self, batch: pa.RecordBatch, first: int) -> RowBundle:
        """Messages of the rows that are not stored yet, in order.

        Args:
            batch: the rows, at least one.
            first: number of the first one in the partition, from 0.

        Returns:
            Each with the row's number plus one as its name.

        Raises:
            RowError: a row cannot be a message of the stream.
        """
        layout = self._layout
        subjects = self._column(batch, layout.subject, first, "subject")
        payloads = self._column(batch, layout.data, first, "data")
        self._learn_all(subjects, first)
        ids = None if layout.message_id is None else self._column(batch, layout.message_id, first, "id")
        if not layout.brings_ids:
            blocks, kept = self._numbered(subjects, payloads, first)
        elif layout.brings_only_ids and self.stored is None and _are_plain_ids(ids):
            blocks, kept = joined(_BEFORE_ID, ids, _BEHIND_ID), None
        else:
            given = [None] * batch.num_rows if ids is None else ids.to_pylist()
            blocks, kept = self._identified(subjects, payloads, self._blocks(batch, first), given, first)
        bundle = RowBundle(range(first + 1, first + 1 + batch.num_rows), subjects, blocks, payloads)
        if kept is not None:
            bundle = bundle.kept(kept)
        if above := bundle.first_above(self._limit):
            at, total = above
            why = f"with its headers it has {total} bytes, more than the {self._limit} allowed"
            raise self._place.wrong(bundle.names[at] - 1, why, bundle.subjects[at].as_py())
        return bundle

    def _numbered(self, subjects: pa.Array, payloads: pa.Array, first: int) -> tuple[pa.Array, list[int] | None]:
        """Return header blocks with generated ids, and the rows that are not stored yet; None for all."""
        stored = self.stored
        starts = map(self._known.__getitem__, subjects.to_pylist())
        checks = array("I", map(crc32, payloads.to_pylist(), starts))
        kept = None
        if stored is not None:
            kept = [
                at
                for at, check in enumerate(checks)
                if not self._is_stored(stored, first + at, check, subjects[at].as_py())
            ]
        rows = pa.array(range(first, first + len(checks)), pa.int64())
        return joined(self._before_row, as_text(rows), _DASH, _hexadecimal(checks), _BEHIND_ID), kept

    def _identified(
        self,
        subjects: pa.Array,
        payloads: pa.Array,
        brought_blocks: Sequence[bytes],
        ids: Sequence[bytes | None],
        first: int,
    ) -> tuple[pa.Array, list[int]]:
        """Return the same as `_numbered`, row by row, for rows that bring headers or ids."""
        known, prefix, stored = self._known, self._prefix, self.stored
        blocks: list[bytes] = []
        kept: list[int] = []
        rows = zip(subjects.to_pylist(), payloads.to_pylist(), brought_blocks, ids, strict=True)
        for row, (subject, payload, block, own) in enumerate(rows, first):
            brought = header_block.read(block, _ID) if _ID_LINE in block else None
            message_id = brought if own is None else self._checked_id(row, subject, own, brought)
            if message_id is None:
                check = crc32(payload, crc32(block, known[subject]))
                new = stored is None or not self._is_stored(stored, row, check, subject)
                message_id = b"%b%d-%08x" % (prefix, row, check)
            else:
                new = stored is None or message_id not in stored.ids
                self.already += not new
            if new:
                kept.append(row - first)
            if not block:
                block = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id
            elif brought is None:
                block = header_block.append(block, [(_ID, message_id)])
            blocks.append(header_block.untraced(block))  # other clients may have written the contents of the rows
        return pa.array(blocks, pa.binary()), kept

    def _checked_id(self, row: int, subject: bytes, own: bytes, brought: bytes | None) -> bytes:
        """Return the id in a row's column. Refuse an invalid one, and a different one in the headers."""
        if not own or b"\r" in own or b"\n" in own or own != own.strip(b" \t"):
            raise self._place.wrong(row, f"'{said(own)}' cannot be a message id", subject)
        if brought is not None and brought != own:
            raise self._place.wrong(
                row, f"its id is '{said(own)}', and its headers say Nats-Msg-Id '{said(brought)}': drop one", subject
            )
        return own

    def _column(self, batch: pa.RecordBatch, index: int, first: int, role: str) -> pa.Array:
        column = batch.column(index)
        if column.null_count:
            row = first + column.is_null().to_pylist().index(True)
            name = batch.schema.field(index).name
            raise self._place.wrong(row, f"{role} is null; leave such rows out: .where('{name} is not null')")
        return _binary(column)

    def _blocks(self, batch: pa.RecordBatch, first: int) -> list[bytes]:
        """Return the header block of each row as given; empty for none."""
        layout = self._layout
        if layout.header_block is not None:
            return [block or b"" for block in _binary(batch.column(layout.header_block)).to_pylist()]
        if layout.headers is None:
            return [b""] * batch.num_rows
        column = batch.column(layout.headers)
        ends = np.cumsum(column.value_lengths().fill_null(0).to_numpy())
        names, values = (_binary(part) for part in column.flatten().flatten())
        named = pc.match_substring_regex(names, _NAME).fill_null(False)
        sound = pc.and_(named, pc.invert(pc.match_substring_regex(values, "[\r\n]")).fill_null(False))
        if (at := pc.index(sound, False).as_py()) >= 0:
            row, name, value = int(np.searchsorted(ends, at, "right")), names[at].as_py(), values[at].as_py()
            if named[at].as_py():
                why = f"header {said(name)}: its value {_quoted(value)} is not one line"
            else:
                why = f"{_quoted(name)} cannot be the name of a header: no spaces, no colon, not empty"
            raise self._place.wrong(first + row, why)
        lines = joined(names, constant(b": "), values, _CRLF)
        bodies = pc.binary_join(pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), lines), b"")
        blocks = joined(constant(header_block.START), bodies, _CRLF)
        found: list[bytes] = pc.if_else(pc.greater(pc.binary_length(bodies), 0), blocks, constant(b"")).to_pylist()
        return found

    def _learn_all(self, subjects: pa.Array, first: int) -> None:
        """Check that the stream stores all subjects, and keep their checksums."""
        known = self._known
        new = [subject for subject in pc.unique(subjects).to_pylist() if subject not in known]
        if len(known) + len(new) > _MOST_SUBJECTS:
            known.clear()
            new = pc.unique(subjects).to_pylist()
        for subject in new:
            self._check_subject(subject, subjects, first)
            known[subject] = crc32(subject)

    def _check_subject(self, subject: bytes, subjects: pa.Array, first: int) -> None:
        target = self._target
        if unpublishable(subject) is not None or b"\x00" in subject:
            why = "a message cannot have this subject: no empty tokens, wildcards, white space or commands"
        elif self._check_subjects and not target.stores(subject):
            patterns = ", ".join(pattern.decode("utf-8", "replace") for pattern in target.subjects[:5])
            why = f"stream '{target.name}' does not store this subject, but {patterns or 'none'}"
        else:
            return
        raise self._place.wrong(first + first_with(subject, subjects), why, subject)

    def _is_stored(self, stored: StoredRows, row: int, check: int, subject: bytes) -> bool:
        found = stored.check_of(row)
        if found is None:
            removed = stored.was_removed(row)
            self.already += removed
            return removed
        if found != check:
            raise self._place.wrong(
                row,
                "an earlier attempt has stored another message as this row: the rows do not come in the same order"
                " each time; sort them, or give ids of their own (a column id, or option idColumn)",
                subject,
            )
        self.already += 1
        return True


def _are_plain_ids(ids: pa.Array) -> bool:
    text = b"".join(ids.to_pylist())
    return pc.min(pc.binary_length(ids)).as_py() > 0 and not any(mark in text for mark in (b"\n", b"\r", b" ", b"\t"))


def _hexadecimal(numbers: "array[int]") -> pa.Array:
    """Each number of four bytes as eight digits."""
    if sys.byteorder == "little":
        numbers.byteswap()
    digits = numbers.tobytes().hex().encode()
    return pa.Array.from_buffers(pa.binary(8), len(numbers), [None, pa.py_buffer(digits)]).cast(pa.binary())


def _binary(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return column.cast(pa.binary())
    # For a slice of more than 2 GiB, a cast would check its position instead of its size.
    return pa.array(column.cast(pa.large_binary()).to_pylist(), pa.binary())


def _quoted(text: bytes | None) -> str:
    return "null" if text is None else f"'{said(text)}'"
