"""Parses the wire's bytes into columns: all messages of one read at once, without a loop.

Theory of operation. A message is a line (`MSG subject sid reply size`, or `HMSG subject sid reply header-size size`),
the number of bytes in that line, and a line end. Every line of a read that begins like one is a candidate, but payloads
may contain such lines as well. The first candidate is real, because each read is parsed from the end of a message on,
and the size in each real one shows where the next begins. Usually all candidates are real, and one comparison proves
it. Real messages are sliced with Arrow's offsets, without a copy for each message. Everything else, including an
incomplete message, is left to `nats_bridge.client.wire`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nats_bridge_spark.source.record_batches import Arrived

_MOST_DIGITS: Final = 10
_PIECES: Final = 8
"""Parts of a message: the kind, the subject, ` sid `, the reply subject, the sizes, the header block, the payload, the
line end."""

_Places = npt.NDArray[np.int64]
_NONE: Final[_Places] = np.empty((0, 6), np.int64)


@dataclass(frozen=True, slots=True)
class BulkParser:
    """Takes the deliveries of a subscription from the front of reads; see `nats_bridge.client.batch_parser.InBulk`.

    Attributes:
        worth: the minimum bytes of a read; for less, cutting message by message is as fast.
    """

    on_arrived: Callable[[Arrived], None]
    worth: int = 32 * 1024

    def __call__(self, data: bytes, position: int, sid: bytes) -> int:
        """Pass on the complete deliveries at a position of a read. Return the position after them."""
        if len(data) - position < self.worth:
            return position
        read = np.frombuffer(data, np.uint8, offset=position)
        messages = _messages(read)
        found = _deliveries(read, messages, sid) if len(messages) else messages
        count = len(found)
        if not count:
            return position
        found += position
        offsets = np.append(found, found[-1, -1] + 2).astype(np.int32)
        pieces = pa.Array.from_buffers(pa.binary(), count * _PIECES, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        self.on_arrived(
            Arrived(
                subjects=pieces[1::_PIECES],
                replies=pieces[3::_PIECES],
                blocks=pieces[5::_PIECES],
                payloads=pieces[6::_PIECES],
            )
        )
        return int(offsets[-1])


def _deliveries(data: npt.NDArray[np.uint8], messages: _Places, sid: bytes) -> _Places:
    """Return the positions of the parts of the messages at the front that are deliveries to the subscription."""
    starts, subjects, fields_end = messages[:, 0], messages[:, 1], messages[:, 2]
    spaces = np.flatnonzero(data[: int(fields_end[-1])] == ord(" "))
    behind = np.searchsorted(spaces, fields_end)
    # Each line has a space before the subject, so there are two even without a reply subject, as in heartbeats.
    sids, replies = spaces[behind - 2] + 1, spaces[behind - 1] + 1
    own = (sids > subjects) & (replies < fields_end) & (replies - sids == len(sid) + 1)
    for place, letter in enumerate(sid):
        own &= data.take(sids + place, mode="clip") == letter
    own &= data.take(replies + len("$JS."), mode="clip") == ord("A")  # `$JS.ACK.`, not flow control's `$JS.FC.`
    count = len(messages) if own.all() else int(np.argmin(own))
    pieces = (starts, subjects, sids - 1, replies, *messages[:, 2:].T)
    return np.stack([piece[:count] for piece in pieces], axis=1)


def _messages(data: npt.NDArray[np.uint8]) -> _Places:
    """Return for each complete message the start, subject, sizes, header block, payload and line end."""
    ends = np.flatnonzero(data == ord("\n"))
    if not len(ends):
        return _NONE
    starts = np.append(0, ends[:-1] + 1)
    firsts = data[starts]
    likely = np.flatnonzero(((firsts == ord("M")) | (firsts == ord("H"))) & (ends - starts > 8))
    starts, ends = starts[likely], ends[likely]
    headed = (data[starts] == ord("H")).astype(np.int64)
    named = data[ends - 1] == ord("\r")
    for place, letter in enumerate(b"MSG "):
        named &= data[starts + headed + place] == letter
    starts, ends, headed = starts[named], ends[named], headed[named]
    if not len(starts) or starts[0]:
        return _NONE
    size, fields_end = _number_before(data, ends - 1)
    header_size = np.zeros_like(size)
    with_header = np.flatnonzero(headed)
    header_size[with_header], fields_end[with_header] = _number_before(data, fields_end[with_header])
    stops = ends + 1 + size
    found = np.stack([starts, starts + 4 + headed, fields_end, ends + 1, ends + 1 + header_size, stops], axis=1)
    sound = (stops + 2 <= len(data)) & (header_size <= size) & (fields_end > starts)
    return found[_chain(starts, stops + 2, sound)]


def _number_before(data: npt.NDArray[np.uint8], at: _Places) -> tuple[_Places, _Places]:
    """Return the decimal numbers that end before each place, and the places of the spaces before them (0 for none)."""
    value = np.zeros_like(at)
    place = at - 1
    scale = 1
    open_ = np.ones(len(at), np.bool_)
    for _ in range(_MOST_DIGITS):
        digit = data[place] - np.uint8(ord("0"))
        open_ &= digit < 10
        if not open_.any():
            break
        value += digit.astype(np.int64) * open_ * scale
        place -= open_
        scale *= 10
    spaced = (data[place] == ord(" ")) & (place < at - 1)
    return value, np.where(spaced, place, 0)


def _chain(starts: _Places, following: _Places, sound: npt.NDArray[np.bool_]) -> _Places | slice:
    """Return the real candidates: the first, and each that begins where the previous real one ends."""
    count = len(starts)
    if sound[: count - 1].all() and (following[: count - 1] == starts[1:]).all():
        return slice(0, count if sound[-1] else count - 1)
    real = []
    nexts = np.searchsorted(starts, following).tolist()
    places, ends, good = starts.tolist(), following.tolist(), sound.tolist()
    at = 0
    while good[at]:
        real.append(at)
        end, at = ends[at], nexts[at]
        if at == count or places[at] != end:
            break
    return np.array(real, np.int64)
