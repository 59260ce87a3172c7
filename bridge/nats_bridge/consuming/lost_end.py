"""Finds out whether a stream has lost its end since it was read.

The problem: a server that loses power forgets messages that it had not written to disk. New messages then get sequences
that were already read as other messages. The stream can be shorter than the read part, or already longer again.

The idea: times reveal this, because all new messages are later than the last message read (`intact_until`). After a
lost connection, the last message read is compared with the stream's.

A new leader of a replicated stream can forget messages as well. A durable consumer may keep its position then, and the
connection to another server stays, so that deliveries seem to go on:

    reads 13257 to 13280                      acknowledged at 761 s
    the leader that has them is restarted     no deliveries for six seconds
    the new leader stores other messages      13257 to 13300, at 768 s
    delivers 13281, 13282                     the next sequences: nothing looks wrong

No leader is elected without a pause. So `BeforePauses` remembers the last message before each pause, 13280 here, and
compares its time with the stream's at the next heartbeat. The lost range is 13257 to 13280.

A reader uses it in this order: for each batch `ends_with_batch`, and if a pause ends, `remember` the message before the
batch. At a heartbeat `is_replaced`. If so, it settles the stream and asks for the `lost_range`. After it has dealt with
a range, it must `forget`.
"""

import contextlib
from collections import deque
from typing import NamedTuple

from nats_bridge.client import waiting
from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.stream_identity import MessageStamp
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError
from nats_transforms.timestamp import rfc3339_nano

_PAUSED_BEATS = 1.0  # heartbeats between two batches, after which the stream may have another leader
_PAUSES = 16  # of which the last message is remembered


class LostRange(NamedTuple):
    """Sequences after `after`, up to `upto`, that the stream gave to other messages after they were read."""

    after: int
    upto: int


class BeforePauses:
    """The last messages read before pauses, since the stream was last compared with them."""

    def __init__(self) -> None:
        self._last_batch = 0.0
        self._messages: deque[MessageStamp] = deque(maxlen=_PAUSES)

    def ends_with_batch(self, now: float) -> bool:
        """Note that a batch has arrived, at this time of the loop. Return whether a pause ends with it."""
        ends = now - self._last_batch >= _PAUSED_BEATS * waiting.HEARTBEAT
        self._last_batch = now
        return ends

    def remember(self, read: MessageStamp) -> None:
        """Remember the last message before a pause."""
        self._messages.append(read)

    def forget(self) -> None:
        """Forget all messages, because the stream was compared, or is another one."""
        self._messages.clear()

    async def is_replaced(self, api: JetStreamApi, stream: str) -> bool:
        """Return whether another message has the sequence of a remembered one; False if the server does not answer.

        Messages that the stream still has, or that were removed, are forgotten.
        """
        with contextlib.suppress(ApiError):  # requested again at the next heartbeat
            for read in tuple(self._messages):
                message = await api.stored_message(stream, read.sequence)
                if message is not None and message.time_ns != read.time_ns:
                    return True
                if read in self._messages:
                    self._messages.remove(read)
        return False

    async def lost_range(self, replay: Replay, last: int) -> LostRange | None:
        """Return the range that the stream lost; None if it holds all messages, which are then forgotten.

        Args:
            replay: how the stream is read.
            last: the stream's last sequence.

        Raises:
            ApiError: the server does not answer.
        """
        lost: LostRange | None = None
        for read in tuple(self._messages):
            after = await intact_until(replay, read.sequence, read.time_ns, last)
            if after is not None:
                lost = LostRange(lost.after if lost else after, read.sequence)
        if lost is None:
            self.forget()
        return lost


async def intact_until(replay: Replay, sequence: int, time_ns: int, last: int) -> int | None:
    """Return the sequence up to which a stream has the messages read from it; None if it has lost none of them.

    If the message was removed, perhaps as another one under its sequence, the newest message before it decides: it is
    younger only if the end was lost. A message whose time is unknown proves nothing. Then a stream that is long enough
    counts as complete. A shorter one, or one that is read by direct consumers, cannot be searched by that time. Then
    the result is the lower of `sequence` and `last`, and new messages up to there are not read.

    Args:
        replay: how the stream is read.
        sequence: the last message that was read.
        time_ns: the time of the message in nanoseconds since 1970; 0 if unknown.
        last: the stream's last sequence.
    """
    if last >= sequence:
        if not time_ns:
            return None
        message = await replay.api.stored_message(replay.stream, sequence)
        if message is None and await time_before(replay.api, replay.stream, sequence) <= time_ns:
            return None
        if message is not None and message.time_ns == time_ns:
            return None
    if replay.direct or not time_ns:
        return min(last, sequence)
    later = await replay.before(rfc3339_nano(time_ns + 1).decode())
    return min(later, last, sequence - 1)


async def message_at(api: JetStreamApi, stream: str, sequence: int) -> MessageStamp | None:
    """Return a sequence with the time by which `intact_until` recognises it; None if no message is at or before it.

    The time is that of the newest message before it, if the message was removed.
    """
    message = await api.stored_message(stream, sequence) if sequence else None
    time_ns = message.time_ns if message is not None else await time_before(api, stream, sequence)
    return MessageStamp(sequence, time_ns) if time_ns else None


async def time_before(api: JetStreamApi, stream: str, sequence: int) -> int:
    """Return the time of the newest message before a sequence, in nanoseconds since 1970; 0 if there is none."""
    first, span = sequence, 1
    while first > 1:
        upto, first, span = first - 1, max(first - span, 1), 2 * span
        found = await api.next_message(stream, ">", first)
        if found is not None and found[0] <= upto:
            newest = await api.newest_before(stream, ">", found[0], upto)
            _, time_ns = await api.next_message(stream, ">", newest) or found
            return time_ns
    return 0
