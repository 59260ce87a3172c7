"""Whether a copy further back in a target was left out: more of them are checked than it is worth to keep.

A copy can be lost while so many later ones are stored as a window is wide at its widest (`window`), and a start
cannot know how wide it was. The newest few are compared with the source in every detail (`position`). Behind them
stands a plain question: is there a number in the source, between those of the copies, that none of them has? If the
copies' own numbers have no gap, the source need not even be asked.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply, fields_behind
from nats_bridge.consuming.replay import Replay
from nats_bridge.kinds.copying.position import tail_reader as target_tail
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams
from nats_bridge.kinds.copying.position.resume_point import is_of_this_source
from nats_bridge.kinds.copying.position.tail_reader import StoredCopy, first_sequence, pieces_back, read_piece
from nats_bridge.kinds.copying.writing.window import CHECKED_COPIES
from nats_transforms import copy_id, header_block


async def leaves_out(streams: EntryStreams, before: int) -> bool:
    """Whether the source holds a selected message of which no copy is among the newest `CHECKED_COPIES`.

    Args:
        streams: the entry's.
        before: only of messages before this one in the source is it asked.

    Raises:
        ApiError: a server cannot be asked.
    """
    sequences = [each for each in await _sequences(streams) if each <= before]
    held = set(sequences)
    if len(held) < len(sequences):
        return True  # a source that lost its end has given numbers twice
    holes = gaps(sequences)
    if not holes:
        return False
    async with contextlib.aclosing(streams.source.between(holes[0][0] + 1, holes[-1][1] - 1)) as batches:
        async for batch in batches:
            for subject, reply, block, _ in batch:
                if AckReply.parse(reply).stream_sequence not in held and streams.sourcing.selects(subject, block):
                    return True
    return False


async def _sequences(streams: EntryStreams) -> list[int]:
    """The numbers in the source of the newest copies, those that are much older than the newest one left out."""
    first = await first_sequence(streams.target_api, streams.target.name)
    found: list[int] = []
    newest_ns = 0
    replay = Replay(streams.target_api, streams.target.name, headers_only=True)
    for low, high in pieces_back(first, streams.last, found, CHECKED_COPIES):
        piece, _ = await read_piece(replay, low, high, partial(_Numbers, streams), newest=high == streams.last)
        newest_ns = newest_ns or max(piece.times_ns, default=0)
        since_ns = newest_ns - target_tail.TOGETHER_NS
        young = [number for number, time_ns in zip(piece.numbers, piece.times_ns, strict=True) if time_ns >= since_ns]
        found[:0] = young
        if len(found) >= CHECKED_COPIES or (newest_ns and (not young or len(young) < len(piece.numbers))):
            break
    return found[-CHECKED_COPIES:]


class _Numbers:
    """The numbers in the source of the copies among some messages, and when they were stored."""

    def __init__(self, streams: EntryStreams) -> None:
        self.numbers: list[int] = []
        self.times_ns: list[int] = []
        self._streams = streams
        # Almost all copies end like this: our id, then the record of the same message, then what reading adds.
        self._plain = re.compile(
            rb"\n%b\r\nNats-(?:Stream|Bridge)-Source: [^ \r]+ (?P=sequence)[ \r][^\n]*\n"
            rb"(?:Nats-Msg-Size: [0-9]+\r\n)?\r\n\Z" % copy_id.line_pattern(streams.key)
        )

    def take(self, batch: list[Delivered]) -> None:
        behind = fields_behind(batch[0][1])
        for subject, reply, block, _ in batch:
            time_ns = int(reply.rsplit(b".", behind)[3])
            plain = self._plain.search(block)
            number = int(plain["sequence"]) if plain is not None else self._number(subject, block, time_ns)
            if number:
                self.numbers.append(number)
                self.times_ns.append(time_ns)

    def _number(self, subject: bytes, block: bytes, time_ns: int) -> int:
        """The number in the source of a message that looks different; 0 if it is no copy of the entry."""
        streams = self._streams
        record = streams.sourcing.own_record(block)
        if record is None:
            return 0
        copy = StoredCopy(subject, time_ns, record, header_block.read(block, b"Nats-Msg-Id"))
        return record.sequence if is_of_this_source(copy, streams.key, streams.since_ns) else 0


def gaps(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours between which numbers are missing, in order."""
    ordered = sorted(numbers)
    return [(one, next_one) for one, next_one in pairwise(ordered) if next_one - one > 1]
