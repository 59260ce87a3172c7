"""Limits of the listener: its number of connections, and the time for a first request.

All connections share the process's file descriptors, and silent clients must not use up those of probes and NATS
connections. So their number is limited. When a new one exceeds the limit, the one that has been silent longest is
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

AT_ONCE = 64
"""Connections that are kept open."""

_HEAD = 10.0  # seconds for the head of a connection's first request
_HEAD_END = b"\r\n\r\n"


class Connections:
    """Makes the protocols of a server, each around one of HTTP's.

    Args:
        handler: makes the protocol that answers.
    """

    def __init__(self, handler: Callable[[], asyncio.Protocol]) -> None:
        self._handler = handler
        self._open: dict[_Connection, None] = {}  # the longest silent one first

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of the next connection."""
        return _Connection(self._handler(), self)

    def received(self, connection: _Connection) -> None:
        """Note that a connection is new, or has sent something."""
        self._open.pop(connection, None)
        self._open[connection] = None
        if len(self._open) > AT_ONCE:
            silent = next(iter(self._open))
            del self._open[silent]
            silent.abort()

    def lost(self, connection: _Connection) -> None:
        """Note that a connection has ended."""
        self._open.pop(connection, None)


class _Connection(asyncio.Protocol):
    """Passes everything on, and ends requests that take too long."""

    def __init__(self, handler: asyncio.Protocol, connections: Connections) -> None:
        self._handler = handler
        self._connections = connections
        self._end = b""  # the last bytes of the first request's head so far
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._late = asyncio.get_running_loop().call_later(_HEAD, self.abort)
        self._handler.connection_made(transport)
        self._connections.received(self)

    def data_received(self, data: bytes) -> None:
        if self._late is not None:
            seen = self._end + data
            self._end = seen[-len(_HEAD_END) :]
            if _HEAD_END in seen:
                self._be_patient()
        self._connections.received(self)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient()
        self._connections.lost(self)
        self._handler.connection_lost(exc)

    def abort(self) -> None:
        """End the connection without another word."""
        assert isinstance(self._transport, asyncio.WriteTransport)
        self._transport.abort()

    def _be_patient(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
