"""Whether a stream lost its end: a server that loses power forgets what it had not written to disk.

Then its next messages get sequences that were read before, of other messages. The stream can be shorter than what was
read, or already longer again; their times show it: all of them are later than that of the last message read.
"""

from __future__ import annotations

from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.transforms.timestamp import rfc3339_nano


async def kept_until(replay: Replay, sequence: int, time_ns: int, last: int) -> int | None:
    """The sequence up to which a stream holds what was read; None if it has lost nothing of that.

    A message that was removed since it was read proves nothing: then a stream that is long enough has lost nothing.

    Args:
        replay: how the stream is read.
        sequence: the last message that was read.
        time_ns: when the stream stored it, in nanoseconds since 1970; 0 if unknown.
        last: the stream's last sequence.

    Raises:
        ApiError: the server cannot be asked.
    """
    if last >= sequence:
        message = await replay.api.stored_message(replay.stream, sequence) if time_ns else None
        if message is None or message.time_ns == time_ns:
            return None
    if replay.direct or not time_ns:
        return min(last, sequence)
    later = await replay.before(rfc3339_nano(time_ns + 1).decode())
    return min(later, last, sequence - 1)
