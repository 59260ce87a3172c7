"""Cuts reads into raw messages, in batches: stands in for nats-py's parser.

Theory of operation. nats-py builds an object and a dict of headers for every message. The dict loses duplicates, order
and spacing, and the objects cost most of the time. Here a read is cut into plain tuples of bytes, and all messages of
one read for one subscription are delivered as one list. A read with messages for a hundred rules becomes a hundred
batches, not one whenever the subscription changes.

A message that is not complete stays unread, and its first line gives the number of bytes it needs. Later reads are
collected until all of them have arrived, and then joined once. An action that must be awaited, such as the answer to a
PING, is yielded as a step. The caller awaits it, or passes the rest of the read to a task that can.

Worked example: one read, with subscriptions 5 and 9.

    MSG orders.1 5 $JS.ACK.… 2  hi       sorted for 5
    MSG audit.a 9 3  yes                 sorted for 9
    MSG orders.2 5 $JS.ACK.… 2  ho       sorted for 5
    PING                                 5 gets orders.1 and orders.2, 9 gets audit.a; then the PONG is a step
    MSG orders.3 5 $JS.ACK.… 100  …      40 of 100 bytes are there: they wait for the other 60 and the line's end

Invariants:

* Messages of one subscription keep their order. Messages of different subscriptions may not.
* All messages before a control line are delivered before the line has an effect.
* A control message of a subscription (status 100) comes after the messages of this subscription before it.
* After `reset`, nothing of the earlier connection is delivered.
* Bytes that are not NATS protocol raise a `ProtocolError`: the connection ends and is opened again.
"""

import json
import re
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from nats_bridge.client.carried_subject import restored
from nats_bridge.client.nats_py import Client, errors
from nats_bridge.client.operations import LONGEST_LINE, checked_size

Delivered: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""One delivered message: subject, reply subject (empty if none), raw header block (empty if none), payload."""

InBulk: TypeAlias = Callable[[bytes, int, bytes], int]
"""Takes deliveries to one subscription from a read. It gets the read, the position of the first delivery, and the sid
of the subscription, and returns the position after the last delivery that it took. It must neither raise nor wait."""

_SMALL = 300  # bytes after the first line in which a small message must end
_SKIPPED = 8  # reads for which the plain parser is not tried after it has failed once
_BULK_LINE = 4096  # bytes that must contain a message's sid, or it is not taken in bulk
_BULK_FIELDS = 4  # the kind, the subject, the sid, the rest
_DELIVERY_SPACES = 4  # in the first line of a message with a reply subject
_UNREADABLE = (ValueError, IndexError, RecursionError)
"""Errors of parsing. nats-py ends the connection for a `ProtocolError`. After any other error it would silently stop
reading."""
_CONTROL_STATUS = b"NATS/1.0 100"
_ACK_PREFIX = b"$JS.ACK."
_PERMISSIONS = "permissions violation"
_RECONNECT = re.compile("authorization violation|authentication (expired|revoked|timeout)|maximum payload violation")
"""Errors after which the server closes the connection but the client can reconnect. The user may have expired or be
unknown, and the next connect reads the credentials again. Or a reload has lowered `max_payload`, which servers (2.9.10,
2.10.27, 2.15.1) announce only in the INFO of the next connection."""


@dataclass(frozen=True, slots=True)
class Route:
    """The receiver of one subscription's messages, which may also take messages in bulk."""

    on_batch: Callable[[list[Delivered]], None]
    on_control: Callable[[bytes, bytes], None] | None
    in_bulk: InBulk | None = None


_Step: TypeAlias = tuple[Callable[[], Awaitable[None]], bytes, int, int]
"""An action that a read must wait for: the function to call, the bytes that contain the operation, its position in
them, and the position in the read at which these bytes end."""


class BatchParser:
    """Cuts reads into messages, in place of nats-py's `Parser` (with `parse` and `reset`).

    The line formats are the server's: one space between fields, `MSG subject sid [reply] size` and `HMSG subject sid
    [reply] header-size total-size`. A stored subject may contain spaces, because an ingress transform of 2.10 can
    produce them. Fields are then counted from the end, since a consumer's delivery always has a reply subject.
    """

    def __init__(self, nc: Client) -> None:
        self.nc = nc
        self.routes: dict[bytes, Route] = {}
        self.reset()

    def reset(self) -> None:
        """Forget unread bytes, because the connection restarts."""
        self._unread: list[bytes] = []
        self._unread_size = 0
        self._wanted = 0
        self._sorted: dict[bytes, tuple[Route, list[Delivered]]] = {}
        self._skips = 0
        self._has_at = False  # whether a reply subject in this read may contain an `@`
        self._epoch = getattr(self, "_epoch", 0) + 1

    async def parse(self, chunk: bytes = b"") -> None:
        """Handle one read of the socket.

        Raises:
            ProtocolError: the server sent something that is not the NATS protocol.
        """
        try:
            for work, *_ in self._steps(chunk):
                await work()
        except _UNREADABLE as error:
            raise errors.ProtocolError(f"nats: cannot read what the server sent: {error}") from error

    def take(self, chunk: bytes) -> bytes:
        """Handle one read of the socket, up to the first thing that must be waited for.

        Returns:
            Return the bytes left for `parse`, from the first operation that must be awaited; empty if none is left.

        Raises:
            ProtocolError: the server sent something that is not the NATS protocol.
        """
        try:
            for _, data, position, behind in self._steps(chunk):
                return data[position:] + chunk[behind:]
        except _UNREADABLE as error:
            raise errors.ProtocolError(f"nats: cannot read what the server sent: {error}") from error
        return b""

    def _steps(self, chunk: bytes) -> Generator[_Step, None, None]:
        """Handle one read, and yield each action to wait for. A caller that does not wait passes the rest in again."""
        if not chunk:
            return
        epoch, position, data = self._epoch, 0, chunk
        self._has_at = False
        if self._unread:
            missing = self._wanted - self._unread_size
            self._unread.append(chunk)
            self._unread_size += len(chunk)
            if self._unread_size < self._wanted:
                return
            unread, self._unread = self._unread, []
            if missing > 0 and not self._bulk_route(unread[0], 0):
                # The rest of one message is complete: only that one is joined.
                unread[-1] = chunk[:missing]
                yield from self._cut(b"".join(unread), epoch, 0, missing)
                position = missing
            else:
                data = b"".join(unread)
        if epoch != self._epoch:
            return
        position = self._take_bulk(data, position)
        position = yield from self._cut(data, epoch, position, len(chunk))
        self._hand_over()
        if epoch == self._epoch and position < len(data):
            rest = data[position:]
            self._unread = [rest]
            self._unread_size = len(rest)

    def _hand_over(self) -> None:
        batches, self._sorted = self._sorted, {}
        for route, batch in batches.values():
            self._deliver(route, batch)

    def _deliver(self, route: Route, batch: list[Delivered]) -> None:
        if self._has_at:
            inboxes = bytes(self.nc._inbox_prefix) + b"."
            for at, (subject, reply, *rest) in enumerate(batch):
                if b"@" in reply:
                    batch[at] = (*restored(subject, reply, inboxes), *rest)  # type: ignore[assignment]
        route.on_batch(batch)

    def _bulk_route(self, data: bytes, position: int) -> tuple[InBulk, bytes] | None:
        """Return the bulk receiver of the message at a position, and its sid."""
        fields = data[position : position + _BULK_LINE].split(b" ", 3)
        if len(fields) < _BULK_FIELDS:
            return None
        route = self.routes.get(fields[2])
        return None if route is None or route.in_bulk is None else (route.in_bulk, fields[2])

    def _take_bulk(self, data: bytes, position: int) -> int:
        # Everything before `position` was passed on already.
        found = self._bulk_route(data, position)
        return found[0](data, position, found[1]) if found else position

    def _cut_plain(self, data: bytes, position: int) -> int:
        """Sort common messages: small ones without headers and without line ends in the payload.

        Splitting the whole read at its line ends takes a third less time than going from message to message. It stops
        at the first message of another form. The first message shows whether all have reply subjects: consumer
        deliveries do, answers do not.

        Returns:
            The position after the last message that was sorted.
        """
        if self._skips:
            self._skips -= 1
            return position
        line_end = data.find(b"\r\n", position)
        if line_end < 0 or data.find(b"\r\n", line_end + 2, line_end + _SMALL) < 0:
            return position
        pieces = data[position:].split(b"\r\n") if position else data.split(b"\r\n")
        del pieces[-1]  # nothing ends it yet
        began = position
        size, size_text, current = -1, b"", b""
        before = kind = subject = sid = reply = b""
        asks = data.count(b" ", position, line_end) == _DELIVERY_SPACES
        batch: list[Delivered] = []
        in_turn = iter(pieces)
        try:
            for line, payload in zip(in_turn, in_turn, strict=False):
                if line != before:  # else one of many answers to one reply subject
                    if asks:
                        kind, subject, sid, reply, text = line.split(b" ")
                    else:
                        kind, subject, sid, text = line.split(b" ")
                    if text != size_text:
                        size, size_text = int(text), text
                    before = line
                if len(payload) != size or kind != b"MSG":
                    break
                if sid != current:
                    route = self.routes.get(sid)
                    if route is None:
                        break
                    known = self._sorted.get(sid)
                    if known is None:
                        known = self._sorted[sid] = (route, [])
                    batch, current = known[1], sid
                batch.append((subject, reply, b"", payload))
                position += len(line) + size + 4
        except ValueError:  # other fields than these
            pass
        if position - began < (len(data) - began) // 2:
            self._skips = _SKIPPED
        return position

    def _cut(self, data: bytes, epoch: int, position: int, behind: int) -> Generator[_Step, None, int]:
        """Sort every complete message in `data` from a position on into batches.

        Return the position after the last one.

        Args:
            data: read, and joined.
            epoch: of the connection.
            position: the start of the first message.
            behind: the position in the read at which `data` ends.
        """
        # Reads are searched, not reply subjects: most have none, and this costs nothing for each message.
        self._has_at = self._has_at or b"@" in data
        position = self._cut_plain(data, position)
        find = data.find
        end = len(data)
        last = end - 2
        self._wanted = 0
        current: bytes = b""
        route: Route | None = None
        batch: list[Delivered] = []
        while position < end:
            line_end = find(b"\r\n", position)
            if line_end < 0:
                if end - position > LONGEST_LINE:
                    raise ValueError(f"a line of more than {LONGEST_LINE} bytes")
                break
            fields = data[position:line_end].split(b" ")
            kind = fields[0]
            count = len(fields)
            start = line_end + 2
            if kind == b"MSG":
                stop = start + int(fields[-1])
                if not start <= stop <= last:
                    self._wanted = checked_size(stop - start) + start + 2 - position
                    break
                if count > 5:
                    fields = _with_spaced_subject(fields, 3)
                sid = fields[2]
                reply = fields[3] if count > 4 else b""
                block = b""
                payload = data[start:stop]
            elif kind == b"HMSG":
                stop = start + int(fields[-1])
                if not start <= stop <= last:
                    self._wanted = checked_size(stop - start) + start + 2 - position
                    break
                if count > 6:
                    fields = _with_spaced_subject(fields, 4)
                sid = fields[2]
                reply = fields[3] if count > 5 else b""
                body = start + int(fields[-2])
                if not start <= body <= stop:
                    raise ValueError("a header block that is longer than its message")
                block = data[start:body]
                payload = data[body:stop]
            else:
                self._hand_over()
                current = b""
                if kind == b"PONG":
                    self._pong()
                    position = self._take_bulk(data, start)
                    continue
                yield partial(self._control_line, kind, data[position:line_end]), data, position, behind
                if epoch != self._epoch:
                    return end
                position = start
                continue
            began, position = position, stop + 2
            if sid != current:
                current = sid
                route = self.routes.get(sid)
                if route is not None:
                    known = self._sorted.get(sid)
                    if known is None:
                        known = self._sorted[sid] = (route, [])
                    batch = known[1]
            if route is None:
                self._hand_over()
                current = b""
                handle: Any = self.nc._process_msg
                yield partial(handle, int(sid), fields[1], reply, payload, block or None), data, began, behind
                if epoch != self._epoch:
                    return end
            elif (
                block
                and not payload
                and route.on_control is not None
                and block.startswith(_CONTROL_STATUS)
                and not reply.startswith(_ACK_PREFIX)
            ):
                # Other subscriptions' batches may wait. This subscription's messages must come before the control
                # message after them.
                del self._sorted[sid]
                current = b""
                if batch:
                    self._deliver(route, batch)
                route.on_control(reply, block)
            else:
                batch.append((fields[1], reply, block, payload))
        return position

    def _pong(self) -> None:
        """Handle a PONG as nats-py does, but do not end the connection if the caller of the PING has given up."""
        nc = self.nc
        if nc._pongs:
            asked = nc._pongs.pop(0)
            if not asked.done():
                asked.set_result(True)
            nc._pongs_received += 1
            nc._pings_outstanding = 0

    async def _control_line(self, kind: bytes, line: bytes) -> None:
        nc: Any = self.nc
        if kind == b"PING":
            await nc._process_ping()
        elif kind == b"INFO":
            info = json.loads(line[5:])
            if not isinstance(info, dict):
                raise ValueError("INFO without an object")
            await nc._process_info(info)
        elif kind == b"-ERR":
            said = line[5:].decode("utf-8", "replace")
            text = said.lower()
            if _PERMISSIONS in text:  # nats-py would give the subject in lower case
                await nc._error_cb(errors.Error(f"nats: {said.strip(chr(39))}"))
            elif _RECONNECT.search(text):  # nats-py would not reconnect
                refused = errors.Error(f"nats: {text.strip(chr(39))}")
                await nc._error_cb(refused)
                await nc._process_op_err(refused)
            else:
                await nc._process_err(text)
        elif kind != b"+OK":
            raise errors.ProtocolError(f"nats: unknown protocol line {line[:80]!r}")


def _with_spaced_subject(fields: list[bytes], behind: int) -> list[bytes]:
    return [fields[0], b" ".join(fields[1:-behind]), *fields[-behind:]]
