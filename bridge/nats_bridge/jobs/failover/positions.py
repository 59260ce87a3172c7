"""Finds where consumers begin in a copy of their stream.

The target is read backwards from its end, until all copies in a long enough row are of messages that every consumer has
acknowledged. The row must be longer than the copies that an interruption may have left out and made later. Then the
target is read forward from the first position, to see the messages that each consumer will receive there. If the
source's server answers, the source is read as well, to see the messages that it will not receive.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeVar

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.stream_range import backwards, read_piece
from nats_bridge.jobs.failover.copied_stream import CopiedStream
from nats_bridge.kinds.copying.position.entry_streams import StoredCopy, is_of_this_source
from nats_bridge.kinds.copying.writing.in_flight import CHECKED_COPIES
from nats_transforms import header_block
from nats_transforms.source_record import last_record
from nats_transforms.subject import matcher

_PIECE = 65_536  # sequences
_NO_CONSUMER = 2**64  # above every floor


@dataclass(slots=True)
class TargetPosition:
    """The position of one consumer in the target.

    Attributes:
        floor: the source's sequence up to which everything is acknowledged.
        delivered: the source's sequence up to which messages were delivered.
        reads: whether the consumer reads a subject of the source.
        selects: whether it will read a subject of the target.
        again: acknowledged messages that it will receive again, because their copies follow others.
        redelivered: messages that were delivered, and are not below the floor.
        ahead: the number of undelivered messages that follow.
        foreign: the number of messages it will receive that are not copies of the source.
        acknowledged: acknowledged messages that have not arrived.
        missing: messages above the floor that are not in the target.
        lowest: the lowest sequence above the floor that was copied; 0 without one.
    """

    floor: int
    delivered: int
    reads: Callable[[bytes], object]
    selects: Callable[[bytes], object]
    again: list[int] = field(default_factory=list)
    redelivered: list[int] = field(default_factory=list)
    ahead: int = 0
    foreign: int = 0
    acknowledged: list[int] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    lowest: int = 0
    _first: int = 0  # the first copy above the floor
    _before: int = 0  # the newest copy up to the floor before that

    @classmethod
    def of(cls, consumer: Json, filters: Sequence[str], moved: Sequence[str]) -> Self:
        """That of a consumer.

        Args:
            consumer: its `CONSUMER.INFO`.
            filters: the consumer's filters; none for everything.
            moved: the same in the target.
        """
        floor, delivered = int(consumer["ack_floor"]["stream_seq"]), int(consumer["delivered"]["stream_seq"])
        if not consumer.get("num_ack_pending"):
            floor = delivered
        # After a restart, 2.9 reports a floor of 0 until the first acknowledgement.
        floor = max(floor, int(consumer["config"].get("opt_start_seq") or 1) - 1)
        return cls(floor, max(delivered, floor), _selecting(filters), _selecting(moved))

    @property
    def begins(self) -> int:
        """The target's sequence where it begins; 0 if the target has no copies."""
        return self._before + 1 if self._before else self._first

    @property
    def has_all_before(self) -> bool:
        """Whether the target has a copy from below the floor. Otherwise its own limits may have removed some above."""
        return self._before > 0

    def see_before(self, at: int, sequence: int, subject: bytes) -> None:
        """Add a copy that is stored before all copies added so far."""
        if sequence > self.floor:
            self.lowest = min(self.lowest or sequence, sequence)
            if self.selects(subject):
                self._first, self._before = at, 0
        elif not self._before:
            self._before = at

    def see_after(self, at: int, sequence: int, subject: bytes) -> None:
        """Add a message of the target, in order. `sequence` is 0 if it is not a copy."""
        if at < self.begins or not self.selects(subject):
            return
        if not sequence:
            self.foreign += 1
        elif sequence <= self.floor:
            self.again.append(sequence)
        elif sequence <= self.delivered:
            self.redelivered.append(sequence)
        else:
            self.ahead += 1

    def lack(self, sequence: int, subject: bytes, newest: int) -> None:
        """Add a message of the source that is not in the target. `newest` is the newest copy of its entry."""
        if not self.reads(subject):
            return
        if sequence > self.floor:
            self.missing.append(sequence)
        elif sequence > newest:
            self.acknowledged.append(sequence)


def _selecting(filters: Sequence[str]) -> Callable[[bytes], object]:
    return matcher([each.encode() for each in filters]) or (lambda _: True)


@dataclass(slots=True)
class Copies:
    """The copies of the source that the target contains.

    Attributes:
        newest: of each entry, the highest sequence of the source that was copied.
        newest_at: the target's sequence of the last copy; 0 without one.
        last: the target's last sequence.
    """

    newest: list[int]
    newest_at: int
    last: int

    @property
    def reached(self) -> int:
        """The source's sequence up to which every entry has copied."""
        return min(self.newest)


async def find_places(
    copied: CopiedStream, target: JetStreamApi, source: JetStreamApi | None, places: Sequence[TargetPosition]
) -> Copies:
    """Find the places of all consumers of a stream.

    Args:
        copied: the stream and its copy, after `identify`.
        target: the API of the copy's connection.
        source: the connection of the source; None if it does not answer.
        places: the positions of the consumers, which are filled in.
    """
    copies = await _backwards(copied, target, places)
    arrived = await _forward(copied, target, places, copies)
    if source is not None and places:
        await _lacking(copied, source, places, copies, arrived)
    return copies


class _InTarget:
    """Some messages of the target, in order: each as `_read` gives it, with its subject."""

    def __init__(self, copied: CopiedStream) -> None:
        self.messages: list[tuple[int, int, int, bytes]] = []
        self._copied = copied

    def take(self, batch: list[Delivered]) -> None:
        self.messages += [(*self._read(message), message[0]) for message in batch]

    def _read(self, message: Delivered) -> tuple[int, int, int]:
        """Return the target's sequence, the source's sequence, and the number of the entry.

        The last two are 0 if it is not a copy.
        """
        subject, reply, block, _ = message
        stored = AckReply.parse(reply)
        if self._copied.keeps_sequence:
            return stored.stream_sequence, stored.stream_sequence, 0
        record = last_record(block) if b"-Source:" in block else None
        for number, entry in enumerate(self._copied.entries if record is not None else ()):
            if record is None or not entry.is_own(record):
                continue
            copy = StoredCopy(subject, stored.time_ns, record, header_block.read(block, b"Nats-Msg-Id"))
            key, since_ns = entry.identity.key, entry.identity.since_ns
            if is_of_this_source(copy, key, since_ns) if entry.key else stored.time_ns > since_ns:
                return stored.stream_sequence, record.sequence, number
        return stored.stream_sequence, 0, 0


class _InSource:
    """Copied messages of the source, as sequence, subject, and number of the entry."""

    def __init__(self, copied: CopiedStream) -> None:
        self.messages: list[tuple[int, bytes, int]] = []
        self._entries = [entry.sourcing for entry in copied.entries]

    def take(self, batch: list[Delivered]) -> None:
        for subject, reply, block, _ in batch:
            entry = next((n for n, each in enumerate(self._entries) if each.selects(subject, block)), None)
            if entry is not None:
                self.messages.append((AckReply.parse(reply).stream_sequence, subject, entry))


async def _backwards(copied: CopiedStream, target: JetStreamApi, places: Sequence[TargetPosition]) -> Copies:
    state = copied.target["state"]
    first, last = max(int(state["first_seq"]), 1), int(state["last_seq"])
    enough = 1 if copied.keeps_sequence else CHECKED_COPIES
    floor = min((place.floor for place in places), default=_NO_CONSUMER)
    found = Copies([0] * len(copied.entries), 0, last)
    settled = [0] * len(copied.entries)  # copies in a row that no consumer needs
    replay = _replay(target, copied.target)
    async for piece in backwards(replay, first, last, partial(_InTarget, copied)):
        for at, sequence, entry, subject in reversed(piece.taker.messages):
            if not sequence:
                continue
            found.newest_at = found.newest_at or at
            found.newest[entry] = max(found.newest[entry], sequence)
            settled[entry] = 0 if sequence > floor else settled[entry] + 1
            for place in places:
                place.see_before(at, sequence, subject)
        if min(settled) >= enough:
            break
    return found


async def _forward(
    copied: CopiedStream, target: JetStreamApi, places: Sequence[TargetPosition], copies: Copies
) -> set[int]:
    """Add the messages that follow to the positions. Return the source's sequences found."""
    arrived: set[int] = set()
    first = min((place.begins for place in places if place.begins), default=copies.last + 1)
    async for piece in _pieces(_replay(target, copied.target), first, copies.last, partial(_InTarget, copied)):
        for at, sequence, _, subject in piece.messages:
            arrived.add(sequence)
            for place in places:
                if place.begins:
                    place.see_after(at, sequence, subject)
    return arrived


async def _lacking(
    copied: CopiedStream, source: JetStreamApi, places: Sequence[TargetPosition], copies: Copies, arrived: set[int]
) -> None:
    """Add the messages missing in the target to the positions."""
    state = copied.source["state"]
    first = max(min([copies.reached, *(place.floor for place in places)]) + 1, int(state["first_seq"]))
    # A consumer may have received messages stored after STREAM.INFO was requested.
    last = max([int(state["last_seq"]), *(place.delivered for place in places)])
    async for piece in _pieces(_replay(source, copied.source), first, last, partial(_InSource, copied)):
        for sequence, subject, entry in piece.messages:
            if sequence not in arrived:
                for place in places:
                    place.lack(sequence, subject, copies.newest[entry])


_Taker = TypeVar("_Taker", _InTarget, _InSource)


async def _pieces(replay: Replay, first: int, last: int, make: Callable[[], _Taker]) -> AsyncIterator[_Taker]:
    for low in range(first, last + 1, _PIECE):
        yield (await read_piece(replay, low, min(low + _PIECE - 1, last), make)).taker


def _replay(api: JetStreamApi, info: Json) -> Replay:
    direct = info["config"].get("retention", "limits") != "limits"
    return Replay(api, str(info["config"]["name"]), headers_only=True, direct=direct)
