"""nats-py's TCP transport with whole reads, one write in a turn of the event loop, and fenced writes.

Theory of operation. Larger reads make larger batches when there is much to do, and change nothing otherwise. Operations
that the rules write during a read are gathered, and leave in one write after it. A message that comes alone is read,
delivered and written again within one turn of the event loop: no task wakes for it. nats-py's own reading task only
gets reads from the first operation that must be awaited on. With TLS it gets everything.

Worked example: three turns of the event loop.

    turn 1  the socket has 900 bytes: one read, with four messages of two rules
            `take` cuts them; each rule gathers 300 bytes of operations
            the read is handled: 600 bytes leave in one system call
    turn 2  a timer of a rule gathers 100 bytes, without a read
    turn 3  they leave
            the socket has a PING and two messages: `take` returns all of it, and nats-py's task wakes in turn 4

Operations of more than `LARGE_WRITE` bytes on average are not joined: to copy them would take longer than a system call
for each.

Invariants:

* Bytes leave in the order of the calls: every other write first sends what was gathered.
* Bytes gathered under a fence are not sent after the fence has closed; see `fenced_socket`.
* Nothing that was gathered for one connection is sent on the next one.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import SupportsIndex
from urllib.parse import ParseResult

from nats_bridge.client.fenced_socket import FencedSocket
from nats_bridge.client.nats_py import TcpTransport, errors
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence

_READ_SIZE = 256 * 1024
LARGE_WRITE = 16 * 1024
"""Size in bytes above which joining writes costs more than a system call for each."""


class _WholeReads(asyncio.StreamReader):
    """Returns reads of the socket directly; `asyncio`'s own reader copies them in and out of a buffer.

    Args:
        limit: as of an `asyncio.StreamReader`.
        take: a function that gets each read while a reader waits, handles as much as it can, and returns the rest for
            the reader.
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop, take: Callable[[bytes], bytes]) -> None:
        super().__init__(limit=limit, loop=loop)
        self._take = take
        self._next: asyncio.Future[bytes] | None = None  # the future that a reader waits for
        self._events = loop

    async def read(self, n: int = -1) -> bytes:
        # The buffer has bytes that came while no reader waited, or before complete lines had been read.
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


class WideTransport(TcpTransport):
    """nats-py's TCP transport, but with larger reads, and with one write for each turn of the loop.

    Args:
        take: gets each read; see `_WholeReads`.
    """

    def __init__(self, take: Callable[[bytes], bytes]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._take = take
        self.holds = False  # whether gathered operations wait for `send_gathered`
        self._gathered: list[bytes] = []
        self._gathered_size = 0
        self.writes = 0  # number of writes so far, of any size
        self._socket: FencedSocket | None = None
        self.is_left = False  # closing: write errors no longer matter

    def __bool__(self) -> bool:
        # nats-py treats a transport that is not connected yet as missing, and would install its own.
        return True

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Connect by a socket that can be fenced."""
        self.release()
        self._gathered, self._gathered_size = [], 0  # of the connection before
        async with asyncio.timeout(connect_timeout):
            self._socket = None
            fenced = self._socket = await FencedSocket.connect_to(uri.hostname, uri.port)
            try:
                loop = asyncio.get_running_loop()
                reader = _WholeReads(max(buffer_size, _READ_SIZE), loop, self._take)
                protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
                transport, _ = await loop.create_connection(lambda: protocol, sock=fenced)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            except BaseException:
                fenced.close()
                raise
        # As in nats-py, TLS replaces the second of each pair.
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def connect_tls(
        self, uri: str | ParseResult, ssl_context: ssl.SSLContext, buffer_size: int, connect_timeout: int
    ) -> None:
        """Encrypt the connection, and close it if that fails."""
        try:
            await super().connect_tls(uri, ssl_context, buffer_size, connect_timeout)
        except BaseException:
            # TLS has replaced the protocol of the bare writer: it never learns that it is closed, and nats-py waits.
            self.release()
            self._io_writer = self._bare_io_writer = None
            raise

    async def read(self, buffer_size: int) -> bytes:
        """Return a whole read of the socket."""
        data: bytes = await super().read(max(buffer_size, _READ_SIZE))
        return data

    def write(self, payload: bytes) -> None:
        """Send the gathered operations, then these bytes."""
        self.writes += 1
        self.send_gathered()
        self._forget_fences()
        super().write(payload)  # type: ignore[no-untyped-call]

    def writelines(self, payload: list[bytes]) -> None:
        """Send the gathered operations, then these pieces."""
        self.writes += 1
        self.send_gathered()
        self._forget_fences()
        if self._io_writer is None or self._io_writer.is_closing():
            return  # the connection is lost: Python 3.12.1 and 3.13.0 raise AttributeError then
        super().writelines(payload)  # type: ignore[no-untyped-call]

    def gather(self, payload: bytes, fence: WriteFence) -> None:
        """Write after the present read, or at the next turn of the event loop, but before any other write.

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
        if fence is not ALWAYS_OPEN and self._socket is not None:
            self._socket.hold_by(fence)

    def send_gathered(self) -> None:
        """Write the gathered operations."""
        if not self._gathered:
            return
        gathered, size = self._gathered, self._gathered_size
        self._gathered, self._gathered_size = [], 0
        if self._io_writer is None or self._io_writer.is_closing():
            return  # the connection is lost, and with it everything written to it
        for payload in gathered if size > LARGE_WRITE * len(gathered) else (b"".join(gathered),):
            super().write(payload)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Write the gathered operations, then close."""
        self.send_gathered()
        super().close()  # type: ignore[no-untyped-call]

    async def drain(self) -> None:
        """Wait until the socket's buffer is below its low-water mark."""
        self.send_gathered()
        try:
            await super().drain()  # type: ignore[no-untyped-call]
        except OSError:  # a connection that was reset, or that timed out (which is not a ConnectionError)
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
        # With TLS, bytes that are already encrypted wait in the transport below.
        if not self.unsent_bytes and not bare.transport.get_write_buffer_size():
            fenced.fences.clear()
