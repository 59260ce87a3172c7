"""A nats-py connection that delivers whole reads as batches of raw messages.

nats-py stays the connection (servers, authentication, TLS, reconnecting, requests). Two things are ours, and only
this module touches nats-py's internals to put them in place (`tests/live/test_wire.py` guards that they still fit):

* the parser. nats-py builds an object and a dict of headers for every message; the dict loses duplicates, order and
  spacing, and the objects cost most of the time. Here a read is cut into plain tuples of bytes, and everything that
  one read holds for one subscription is handed over as one list.
* the read size. Larger reads make larger batches when there is much to do, and change nothing when there is not.

A read with messages for a hundred rules becomes a hundred batches, not one whenever the subscription changes; and
what the rules then write leaves in one write, behind the last of these batches.

A message that comes alone is read, handed on and written again within one turn of the event loop: no task wakes for it.
nats-py's own reading task gets only what begins with something to wait for. With TLS it gets all.

A subscription made with `subscribe_batches` gets its messages that way; all others go through nats-py untouched.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from nats_bridge.bridge.client.fenced_socket import FencedSocket
from nats_bridge.bridge.client.nats_py import Client, TcpTransport, errors
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.bridge.settings.tls_context import RenewedContext

if TYPE_CHECKING:
    from urllib.parse import ParseResult

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

__all__ = ["LARGE_WRITE", "BatchSubscription", "ClearTextError", "Delivered", "WireClient"]

Delivered: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""One delivered message: subject, reply subject (empty if none), raw header block (empty if none), payload."""

READ_SIZE = 256 * 1024
LARGE_WRITE = 16 * 1024
"""Bytes from which joining writes costs more than a system call for each."""
_LONGEST_MESSAGE = 256 * 1024 * 1024
"""Bytes; servers accept no larger messages. A longer size is a protocol error, and is not waited for."""
_LONGEST_LINE = 4 * 1024 * 1024
"""Bytes without a line end; INFO can be long in large clusters, nothing is that long."""
_SMALL = 300  # bytes after its first line within which a small message ends; larger ones are not searched for ends
_SKIPPED = 8  # reads for which the plain parser is not tried, after one that it could not parse
_DELIVERY_SPACES = 4  # in the first line of a message with a reply subject
_UNREADABLE = (ValueError, IndexError, RecursionError)
"""What parsing raises. nats-py ends the connection for a `ProtocolError`; on others it would silently stop reading."""
_CONTROL_STATUS = b"NATS/1.0 100"
_ACK_PREFIX = b"$JS.ACK."
_RECONNECT = re.compile("authorization violation|authentication (expired|revoked|timeout)|maximum payload violation")
"""Errors before the server closes a connection that can be reconnected: the user's time is over or the user is unknown,
and the next connect reads the credentials again; or a reload has lowered `max_payload`, which servers (2.9.10, 2.10.27,
2.15.1) announce only in the INFO of the next connection."""


@dataclass(frozen=True, slots=True)
class _Route:
    """The receiver of one subscription's messages."""

    on_batch: Callable[[list[Delivered]], None]
    on_control: Callable[[bytes, bytes], None] | None


@dataclass(frozen=True, slots=True)
class BatchSubscription:
    """A subscription whose messages arrive in batches; `unsubscribe` ends it."""

    client: WireClient
    sid: bytes
    subscription: Subscription

    async def unsubscribe(self) -> None:
        """Ask the server to stop; messages already in flight still arrive until `release`."""
        if not self.client.is_closed:
            await self.client.stop_delivery(int(self.sid))

    def forget(self) -> None:
        """While the connection is down: do not subscribe again when it is back."""
        self.client.release_route(self.sid)
        self.client._remove_sub(int(self.sid))
        self.subscription._stop_processing()

    async def release(self) -> None:
        """Forget the subscription; drop what still arrives for it."""
        self.client.release_route(self.sid)
        if not self.client.is_closed and not self.subscription._closed:
            await self.subscription.unsubscribe()


class _WholeReads(asyncio.StreamReader):
    """Returns reads of the socket as they are; `asyncio`'s own reader copies them in and out of a buffer.

    Args:
        limit: as of an `asyncio.StreamReader`.
        loop: the event loop.
        take: gets what is read while a reader waits, handles what it can, and returns what is left for the reader.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], bytes]) -> None:
        super().__init__(limit=limit, loop=loop)
        self._take = take
        self._next: asyncio.Future[bytes] | None = None  # what a reader waits for
        self._events = loop

    async def read(self, n: int = -1) -> bytes:
        # The buffer holds bytes that came while no reader waited, or before whole lines had been read.
        if self._buffer or self.at_eof() or self.exception() is not None:  # type: ignore[attr-defined]
            return await super().read(n)
        self._next = self._events.create_future()
        try:
            return await self._next
        finally:
            self._next = None

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        if self._next is None or self._next.done():
            super().feed_data(data)
            return
        try:
            rest = self._take(bytes(data))  # no copy: transports give bytes
        except errors.ProtocolError as error:
            self._next.set_exception(error)
            return
        if rest:
            self._next.set_result(rest)

    def feed_eof(self) -> None:
        super().feed_eof()
        if self._next is not None and not self._next.done():
            self._next.set_result(b"")

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        if self._next is not None and not self._next.done():
            self._next.set_exception(exc)


class _WideTransport(TcpTransport):
    """nats-py's TCP transport, with larger reads, and with one write for what is written in a turn of the loop.

    Args:
        take: gets each read; see `_WholeReads`.
    """

    def __init__(self, take: Callable[[bytes], bytes]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._take = take
        self.holds = False  # whether what is gathered waits for `send_gathered`
        self._gathered: list[bytes] = []
        self._gathered_size = 0
        self.writes = 0  # so far, of whatever size
        self._socket: FencedSocket | None = None
        self._drops = False  # whether the socket has a TCP user timeout
        self.is_left = False  # closing: write errors no longer matter

    def __bool__(self) -> bool:
        # nats-py treats a transport that is not connected yet as missing, and would install its own.
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        self.release()
        self._gathered, self._gathered_size = [], 0  # of the connection before
        async with asyncio.timeout(connect_timeout):
            self._socket, self._drops = None, False
            fenced = self._socket = await FencedSocket.connect_to(uri.hostname, uri.port)
            try:
                loop = asyncio.get_running_loop()
                reader = _WholeReads(max(buffer_size, READ_SIZE), loop, self._take)
                protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
                transport, _ = await loop.create_connection(lambda: protocol, sock=fenced)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            except BaseException:
                fenced.close()
                raise
        # As nats-py does: TLS replaces the second of each pair.
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def read(self, buffer_size: int) -> bytes:
        data: bytes = await super().read(max(buffer_size, READ_SIZE))
        return data

    def write(self, payload: bytes) -> None:
        self.writes += 1
        self.send_gathered()
        self._forget_fences()
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: list[bytes]) -> None:
        self.writes += 1
        self.send_gathered()
        self._forget_fences()
        if self._io_writer is None or self._io_writer.is_closing():
            return  # the connection is lost: Python 3.12.1 and 3.13.0 raise AttributeError then
        super().writelines(payload)  # type: ignore[no-untyped-call]

    def gather(self, payload: bytes, fence: WriteFence) -> None:
        """Write behind the read that is being handled, else at the event loop's next turn; or before another write.

        Args:
            payload: what to write.
            fence: the bytes are discarded if it closes before they are sent.
        """
        self.writes += 1
        if not self._gathered:
            self._forget_fences()
            if not self.holds:
                asyncio.get_running_loop().call_soon(self.send_gathered)
        self._gathered.append(payload)
        self._gathered_size += len(payload)
        if fence is ALWAYS_OPEN:
            return
        fenced = self._socket
        if fenced is not None:
            fenced.fences.add(fence)
            if fence.unsent_for is not None and not self._drops:
                self._drops = True
                fenced.drop_after(fence.unsent_for)

    def send_gathered(self) -> None:
        """Write what was gathered."""
        if not self._gathered:
            return
        gathered, size = self._gathered, self._gathered_size
        self._gathered, self._gathered_size = [], 0
        if self._io_writer is None or self._io_writer.is_closing():
            return  # the connection is lost, and what was written with it
        for payload in gathered if size > LARGE_WRITE * len(gathered) else (b"".join(gathered),):
            super().write(payload)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self.send_gathered()
        super().close()  # type: ignore[no-untyped-call]

    async def drain(self) -> None:
        self.send_gathered()
        try:
            await super().drain()  # type: ignore[no-untyped-call]
        except ConnectionError:
            if not self.is_left:
                raise

    def release(self) -> None:
        """Close the socket: after a failed authentication, nats-py leaves it to the garbage collector."""
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                writer.close()

    @property
    def encrypted(self) -> bool:
        """Whether TLS protects the connection."""
        return self._io_writer is not None and self._io_writer.get_extra_info("ssl_object") is not None

    @property
    def unsent_bytes(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        writer = self._io_writer
        return 0 if writer is None else self._gathered_size + writer.transport.get_write_buffer_size()

    def _forget_fences(self) -> None:
        """Forget the fences of writes that have been sent."""
        fenced, bare = self._socket, self._bare_io_writer
        if fenced is None or not fenced.fences or bare is None:
            return
        # With TLS, what is encrypted already waits below.
        if not self.unsent_bytes and not bare.transport.get_write_buffer_size():
            fenced.fences.clear()


_Step: TypeAlias = tuple[Callable[[], Awaitable[None]], bytes, int, int]
"""What a read has to wait for: what to call; the bytes that it is in, and where it begins there; and where what follows
these bytes begins in the read."""


class _BatchParser:
    """Cuts reads into messages; stands in for nats-py's `Parser` (same `parse` and `reset`).

    The line formats are the server's: one space between fields, `MSG subject sid [reply] size` and
    `HMSG subject sid [reply] header-size total-size`. A stored subject may hold spaces (2.10 lets an ingress transform
    make such); then the fields are counted from the end, where a consumer's delivery always has its reply subject.
    """

    def __init__(self, nc: Client) -> None:
        self.nc = nc
        self.routes: dict[bytes, _Route] = {}
        self.bulk: Callable[[bytes], int] | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what was read so far; the connection restarts."""
        self._unread: list[bytes] = []
        self._unread_size = 0
        self._wanted = 0
        self._sorted: dict[bytes, tuple[_Route, list[Delivered]]] = {}
        self._skips = 0
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
            What is left for `parse`, beginning with that; empty where all is handled.

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
        """Handle one read; yield what has to be waited for. A caller that does not wait hands the rest in again."""
        if not chunk:
            return
        epoch, position, data = self._epoch, 0, chunk
        if self._unread:
            missing = self._wanted - self._unread_size
            self._unread.append(chunk)
            self._unread_size += len(chunk)
            if self._unread_size < self._wanted:
                return
            unread, self._unread = self._unread, []
            if missing > 0 and self.bulk is None:
                # The rest of one message is complete: only that one is joined.
                unread[-1] = chunk[:missing]
                yield from self._cut(b"".join(unread), epoch, 0, missing)
                position = missing
            else:
                data = b"".join(unread)
        if epoch != self._epoch:
            return
        if self.bulk is not None:
            position = self.bulk(data)
        position = yield from self._cut(data, epoch, position, len(chunk))
        self._hand_over()
        if epoch == self._epoch and position < len(data):
            rest = data[position:]
            self._unread = [rest]
            self._unread_size = len(rest)

    def _hand_over(self) -> None:
        """Deliver to each subscription the messages that were read for it."""
        batches, self._sorted = self._sorted, {}
        for route, batch in batches.values():
            route.on_batch(batch)

    def _cut_plain(self, data: bytes, position: int) -> int:
        """Sort common messages: small, without headers, and no line end in the payload.

        Cutting a whole read at its line ends takes a third less time than going from message to message. The first
        message of another kind ends it; the first one shows whether there are reply subjects: deliveries of consumers
        have them, answers do not.

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
        """Sort every whole message in `data` from a position on into batches; the position after the last one.

        Args:
            data: read, and joined.
            epoch: of the connection.
            position: where the first message begins.
            behind: how much of the read is in `data`.
        """
        position = self._cut_plain(data, position)
        find = data.find
        end = len(data)
        last = end - 2
        self._wanted = 0
        current: bytes = b""
        route: _Route | None = None
        batch: list[Delivered] = []
        while position < end:
            line_end = find(b"\r\n", position)
            if line_end < 0:
                if end - position > _LONGEST_LINE:
                    raise ValueError(f"a line of more than {_LONGEST_LINE} bytes")
                break
            fields = data[position:line_end].split(b" ")
            kind = fields[0]
            count = len(fields)
            start = line_end + 2
            if kind == b"MSG":
                stop = start + int(fields[-1])
                if not start <= stop <= last:
                    self._wanted = _size(stop - start) + start + 2 - position
                    break
                if count > 5:
                    fields = _spaced_subject(fields, 3)
                sid = fields[2]
                reply = fields[3] if count > 4 else b""
                block = b""
                payload = data[start:stop]
            elif kind == b"HMSG":
                stop = start + int(fields[-1])
                if not start <= stop <= last:
                    self._wanted = _size(stop - start) + start + 2 - position
                    break
                if count > 6:
                    fields = _spaced_subject(fields, 4)
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
                else:
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
                # The others' batches may wait; this one's messages come before the control message after them.
                del self._sorted[sid]
                current = b""
                if batch:
                    route.on_batch(batch)
                route.on_control(reply, block)
            else:
                batch.append((fields[1], reply, block, payload))
        return position

    def _pong(self) -> None:
        """Do what nats-py does, which would end the connection where the PING's caller has given up."""
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
            text = line[5:].decode("utf-8", "replace").lower()
            if _RECONNECT.search(text):  # nats-py would not reconnect
                refused = errors.Error(f"nats: {text.strip(chr(39))}")
                await nc._error_cb(refused)
                await nc._process_op_err(refused)
            else:
                await nc._process_err(text)
        elif kind != b"+OK":
            raise errors.ProtocolError(f"nats: unknown protocol line {line[:80]!r}")


def _size(size: int) -> int:
    """The size that a message claims, if it can be one."""
    if not 0 <= size <= _LONGEST_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    return size


def _spaced_subject(fields: list[bytes], behind: int) -> list[bytes]:
    """The fields of a delivery whose subject holds spaces; `behind` is the number of fields after the subject."""
    return [fields[0], b" ".join(fields[1:-behind]), *fields[-behind:]]


class ClearTextError(errors.Error):
    """TLS was asked for and the server does not offer it."""

    def __str__(self) -> str:
        return "the server offers no TLS"


async def _discard(_: Msg) -> None:
    """Callback of subscriptions whose messages the parser hands on itself."""


class WireClient(Client):
    """A nats-py client that can also deliver raw batches and write raw protocol bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._batches = _BatchParser(self)
        self._ps = self._batches  # type: ignore[assignment]
        self._asked: tuple[asyncio.Future[bool] | None, int] = None, 0  # the last PONG, and the writes before it
        self._wide = _WideTransport(self._take)
        self._transport = self._wide

    def _take(self, chunk: bytes) -> bytes:
        """Handle a read at once, and write what is written because of it; what is left is for nats-py's own task."""
        if not self.is_connected:
            return chunk
        self._wide.holds = True
        try:
            return self._batches.take(chunk)
        finally:
            self._wide.holds = False
            self._wide.send_gathered()

    async def subscribe_batches(
        self,
        subject: str,
        on_batch: Callable[[list[Delivered]], None],
        on_control: Callable[[bytes, bytes], None] | None = None,
        *,
        queue: str = "",
    ) -> BatchSubscription:
        """Subscribe; each read's messages arrive as one list, in order.

        Args:
            subject: what to subscribe to.
            on_batch: gets the messages of one read; must not raise and must not wait.
            on_control: gets (reply subject, header block) of flow control requests and heartbeats, in order with
                the messages around them; must not raise. None where the messages come from publishers, not from a
                consumer: then all are messages.
            queue: the queue group to share the messages with; empty for none.
        """
        # The route is put in place before SUB is sent: nothing that the server sends back can miss it.
        sid = b"%d" % (self._sid + 1)
        self._batches.routes[sid] = _Route(on_batch, on_control)
        subscription = await self.subscribe(subject, queue, cb=_discard)
        return BatchSubscription(self, sid, subscription)

    async def close(self) -> None:
        """Close permanently, also in the middle of a reconnect, whose socket nats-py would leave open."""
        reconnect = self._reconnection_task
        if reconnect is not asyncio.current_task():
            await end_tasks(reconnect)
        # nats-py writes what is left; a loss of the connection just then would end its close() half way.
        self._wide.is_left = True
        await super().close()
        self._wide.release()

    def _connect_command(self) -> bytes:
        # CONNECT carries the credentials. nats-py would send them in clear where the server offers no TLS.
        server = self._current_server
        if public_key := getattr(self._signature_cb, "public_key", ""):
            self._public_nkey = public_key  # read again, like the seed that signs
        asked_for = self.options.get("tls") is not None or (server is not None and server.uri.scheme == "tls")
        if asked_for and not self._wide.encrypted:
            raise ClearTextError
        return super()._connect_command()

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context, which nats-py requests before every handshake."""
        context = super().ssl_context
        if isinstance(context, RenewedContext):
            context.renew()
        return context

    def read_in_bulk(self, take: Callable[[bytes], int] | None) -> None:
        """Install a bulk handler that gets each read before it is parsed.

        Args:
            take: handles whole protocol operations at the front of what it is given, as many as it likes, and returns
                how many bytes they are; must not raise and must not wait. None ends it.
        """
        self._batches.bulk = take

    @property
    def server_id(self) -> str:
        """The connected server's id, which is unique."""
        return str(self._server_info.get("server_id", ""))

    def release_route(self, sid: bytes) -> None:
        """Stop handing on messages of a subscription."""
        self._batches.routes.pop(sid, None)

    def fail_requests(self) -> None:
        """Fail every pending request with a timeout: its answer went with the connection."""
        for future in self._resp_map.values():
            if not future.done():
                future.set_exception(errors.TimeoutError())

    async def stop_delivery(self, sid: int) -> None:
        """Send UNSUB and keep passing on what is still in flight."""
        await self._send_unsubscribe(sid)

    def write_raw(self, data: bytes, fence: WriteFence = ALWAYS_OPEN) -> None:
        """Write protocol bytes (whole operations) in this turn of the event loop, past nats-py's buffer.

        Only when `is_connected`. What is written afterwards in any other way is sent later.

        Args:
            data: the bytes.
            fence: open now. If it closes before all bytes have left the process, the rest is not sent, and the
                connection is broken instead.
        """
        self._wide.gather(data, fence)

    @property
    def unsent_bytes(self) -> int:
        """Bytes written to the socket's buffer that the kernel has not taken yet."""
        return self._wide.unsent_bytes

    async def drained(self) -> None:
        """Wait until the socket's buffer is below its low-water mark."""
        await self._wide.drain()

    def flushed(self) -> asyncio.Future[bool]:
        """Send PING; the future is done at its PONG: by then the server has handled all that was written before.

        Calls with nothing written in between get the same one.
        """
        self._write_pending()
        asked, writes = self._asked
        if asked is None or asked.done() or writes != self._wide.writes:
            asked = asyncio.get_running_loop().create_future()
            self._pongs.append(asked)
            self._wide.gather(b"PING\r\n", ALWAYS_OPEN)
            self._asked = asked, self._wide.writes
        return asked

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # nats-py's `flush` waits for them, too.
        self._write_pending()
        await super()._send_ping(future)

    def _write_pending(self) -> None:
        """nats-py keeps SUB and UNSUB until its flusher runs; a PING must not overtake them."""
        if self._pending:
            self._wide.writelines(self._pending)
            self._pending = []
            self._pending_data_size = 0
