"""Remembers what a target has confirmed, and finds out whether it has lost some of that.

Usually a lost end shows in the first answer after it: the next copy gets a sequence that the target had already
reached. But other entries or clients may store as many messages as were lost before that, so that the next copy seems
to follow the confirmed ones:

```text
entry A copies 1 2             as 1 2     confirmed
the target loses 1 and 2                  entry A has nothing in flight, and its connection stays
entry B copies 1 2 3           as 1 2 3
entry A copies 3               as 4       after 2: nothing looks wrong
```

No server loses power without a pause. So the last copy before each pause, 2 of A here, is compared with the target
after the pause (`round`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from nats_bridge.client.stream_identity import Verdict
from nats_bridge.kinds.copying.position.entry_streams import EntryStreams

Placed: TypeAlias = tuple[int, int]
"""The source's and the target's sequence of a copy; the first is 0 if none is known."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The confirmed position of an entry in its target.

    Attributes:
        sequence: the source's sequence up to which everything is stored; 0 for nothing.
        target_last: the target's last sequence when that was confirmed.
        placed: the newest copy. Its name may be that of a later duplicate of the same group.
        before_pauses: the last copies before pauses that were not found in the target since.
        is_shorter: whether an answer has shown that the target lost its end. Copies that were sent again since may have
            taken the places of lost ones.
    """

    sequence: int = 0
    target_last: int = 0
    placed: Placed = (0, 0)
    before_pauses: tuple[Placed, ...] = ()
    is_shorter: bool = False

    async def lost_from(self, streams: EntryStreams) -> int:
        """Return the source's sequence of a copy that the target has lost, the lowest one known; 0 if none is."""
        for placed in self.before_pauses:
            if not await holds(streams, placed):
                return placed[0]
        is_shorter = self.is_shorter or streams.last < self.target_last
        return self.sequence if is_shorter or not await holds(streams, self.placed) else 0


async def holds(streams: EntryStreams, placed: Placed) -> bool:
    """Return whether a confirmed copy is or was at its place: no other message has its sequence.

    A copy of an earlier message counts too, because the last message of a confirmed group can be a duplicate.
    """
    sequence, place = placed
    stored = await streams.target_api.stored_message(streams.target.name, place) if sequence else None
    if stored is None:
        return True
    record = streams.sourcing.own_record(stored.header_block)
    return record is not None and record.sequence <= sequence


async def verdict_by_place(streams: EntryStreams, placed: Placed) -> Verdict:
    """Decide whether the target is the stream that stored a copy at a place, when all other known messages are gone.

    If the copy is not there, the stream is another one, unless the place is below its first sequence: then it is
    unknown. If a stream is wrongly taken for another one, the rule copies only messages that the stream lacks.
    """
    sequence, place = placed
    stored = await streams.target_api.stored_message(streams.target.name, place) if sequence else None
    if stored is None:
        return "unknown" if 0 < place < int(streams.target_info["state"]["first_seq"]) else "recreated"
    record = streams.sourcing.own_record(stored.header_block)
    return "same" if record is not None and record.sequence == sequence else "recreated"
