"""Makes copies from columns: the same as `CopyEncoder`, for all rows of a piece at once.

Only of ordinary rows: those whose outcome depends on nothing but their subject, sequence, time and size. A
piece with any other row goes through the loop, message by message.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from nats_bridge.kinds.copying.writing.encoder import CopyEncoder
from nats_bridge_spark.backfill.rows import Piece
from nats_bridge_spark.row_bundle import RowBundle, as_text, constant, joined
from nats_transforms import copy_id, header_block

_EMPTY: Final = constant(b"")
_START: Final = constant(header_block.START)


def copies_of(piece: Piece, loop: CopyEncoder) -> RowBundle | None:
    """Make the copies of a piece's selected rows, named by their sequences.

    Returns:
        It may hold none. None where the encoder must read each message.
    """
    if loop.is_random or loop.counts or loop.where is not None or not loop.there.isdisjoint(piece.sequences):
        return None
    subjects, sequences, times, blocks, payloads = piece.rows.columns
    blocks, payloads = blocks.fill_null(_EMPTY), payloads.fill_null(_EMPTY)
    bring_ids = _bring_ids(blocks)
    if bring_ids is None:
        return None
    subjects = subjects.cast(pa.binary()).dictionary_encode()
    made = [loop.copied_as(subject) for subject in subjects.dictionary.to_pylist()]
    if any(isinstance(each, str) for each in made):
        return None
    names, indices = piece.sequences, subjects.indices
    if None in made:
        selected = pa.array([each is not None for each in made]).take(indices)
        columns = (indices, sequences, times, blocks, payloads)
        indices, sequences, times, blocks, payloads = (column.filter(selected) for column in columns)
        names = sequences.to_pylist()
    whole = [each if isinstance(each, tuple) else (None, None) for each in made]
    numbers = as_text(sequences)
    parts = [_opened(blocks)]
    if not bring_ids:
        before, between, behind = map(constant, loop.id_line.split(b"%b"))
        parts += [before, numbers, between, as_text(times), behind]
    if loop.record:
        parts += [constant(loop.record), numbers]
    parts.append(pa.array([tail for _, tail in whole], pa.binary()).take(indices))
    bundle = RowBundle(
        names,
        pa.array([head and head[5:-1] for head, _ in whole], pa.binary()).take(indices),  # HPUB SUBJECT and a space
        joined(*parts),
        payloads,
    )
    return bundle if bundle.longest <= loop.limit else None


def _bring_ids(blocks: pa.Array) -> bool | None:
    """True if all rows have a message id of their publisher, False if none has; None where each must be checked."""
    counts = pc.count_substring(blocks, "Nats-")
    fewest, most = pc.min_max(counts).values()
    if not most.as_py():
        return False
    if (fewest.as_py(), most.as_py()) != (1, 1) or not pc.all(pc.match_substring(blocks, "\nNats-Msg-Id:")).as_py():
        return None
    return None if pc.any(pc.match_substring(blocks, copy_id.IN_BLOCK.decode())).as_py() else True


def _opened(blocks: pa.Array) -> pa.Array | pa.Scalar:
    """Header blocks without their end, for more lines to follow."""
    lengths = pc.binary_length(blocks)
    if not pc.max(lengths).as_py():
        return _START
    return pc.if_else(pc.greater(lengths, 2), pc.binary_slice(blocks, 0, -2), _START)
