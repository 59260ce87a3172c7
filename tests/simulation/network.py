"""Connections in memory: bytes arrive later, in pieces, in order; a link can be held, cut, or lose what is in flight.

The bridge's own `FencedSocket` stays in place: below it, instead of the system's socket, is one in memory.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from nats_bridge.client.fenced_socket import FencedSocket
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.server import ConnectedClient
    from tests.simulation.sidecar_loop import SidecarLoop

_LATENCY = 0.0003  # seconds
_PIECES = 0.05  # the part of writes that arrive in two pieces


class Reachable(NamedTuple):
    """An address."""

    host: str
    port: int


class Direction:
    """The bytes from one end of a connection to the other, in order."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.arrived: Callable[[bytes], None] = lambda _: None
        self.finished: Callable[[], None] = lambda: None
        self.held_since: float | None = None
        self.is_broken = False
        self._world = world
        self._waiting: deque[bytes | None] = deque()
        self._last, self._late = 0.0, 0  # bytes that were in flight when it was held come before those sent since

    def send(self, data: bytes | None) -> None:
        """Send bytes; None for the end."""
        if self.is_broken:
            return
        if data is not None and len(data) > 1 and self._world.chance.random() < _PIECES:
            cut = self._world.chance.randrange(1, len(data))
            self._ship(data[:cut])
            data = data[cut:]
        self._ship(data)

    def _ship(self, data: bytes | None) -> None:
        if self.held_since is not None:
            self._waiting.append(data)
            return
        self._last = max(self._last, self._world.now + self._world.moment(_LATENCY, rarely=0.003, longest=0.3))
        self._world.at(self._last, partial(self._arrive, data))

    def _arrive(self, data: bytes | None) -> None:
        if self.is_broken:
            return
        if self.held_since is not None:
            self._waiting.insert(self._late, data)
            self._late += 1
        elif data is None:
            self.is_broken = True
            self.finished()
        else:
            self._world.record(f"{self.name} {len(data)} {zlib.crc32(data):08x}")
            self.arrived(data)

    def hold(self) -> None:
        if self.held_since is None:
            self.held_since, self._late = self._world.now, 0

    def release(self) -> None:
        if self.held_since is None:
            return
        self.held_since, waiting, self._waiting = None, self._waiting, deque()
        for data in waiting:
            self._ship(data)

    def is_stuck(self, seconds: float) -> bool:
        """Whether something has been in flight for so long."""
        return bool(self._waiting) and self.held_since is not None and self._world.now - self.held_since >= seconds

    def drop(self) -> None:
        self.is_broken = True
        self._waiting.clear()


class Wire:
    """One connection between a process and a server."""

    def __init__(self, world: World, number: int, sock: SimulatedSocket, loop: SidecarLoop, place: Reachable) -> None:
        self.number, self.loop, self.place, self.sock = number, loop, place, sock
        self.to_server = Direction(world, f"{loop.name}>{place.host} {number}")
        self.to_client = Direction(world, f"{loop.name}<{place.host} {number}")

    def hold(self, *, to_server: bool = True, to_client: bool = True) -> None:
        if to_server:
            self.to_server.hold()
            self.sock.watch_peer()
        if to_client:
            self.to_client.hold()

    def release(self) -> None:
        self.to_server.release()
        self.to_client.release()

    def reset(self) -> None:
        """Reset the connection at both ends; what is in flight is lost."""
        gone_at_server = self.to_server.is_broken
        self.to_server.drop()
        self.to_client.drop()
        self.sock.reset_by_peer()
        if not gone_at_server:
            self.to_server.finished()


class InMemorySocket(socket.socket):
    """A socket that has no descriptor."""

    def __init__(self, *_: Any) -> None:
        self.number, self._is_closed = 0, False
        self.wire: Wire | None = None
        self.transport: SimulatedTransport | None = None
        self.user_timeout: float | None = None

    def setblocking(self, flag: bool) -> None:
        """All are non-blocking."""

    def setsockopt(self, *arguments: Any) -> None:
        """The TCP user timeout is the only option that acts."""
        self.user_timeout = arguments[2] / 1000

    def send(self, *arguments: Any) -> int:
        """As a kernel that never lacks room."""
        if self._is_closed or self.wire is None:
            raise BrokenPipeError("the connection is closed")
        self.wire.to_server.send(bytes(arguments[0]))
        if self.wire.to_server.held_since is not None:
            self.watch_peer()
        return len(arguments[0])

    def watch_peer(self) -> None:
        """Give the connection up when the peer does not acknowledge for too long."""
        if self.user_timeout is not None and self.wire is not None:
            self.wire.loop._world.after(self.user_timeout, self._give_up)

    def _give_up(self) -> None:
        wire, limit = self.wire, self.user_timeout
        if wire is not None and limit is not None and not self._is_closed and wire.to_server.is_stuck(limit):
            wire.to_server.drop()
            self.reset_by_peer(TimeoutError("timed out"))

    def close(self) -> None:
        """Close: the peer gets what was sent, and the end."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.wire is not None:
            self.wire.to_server.send(None)
            self.wire.to_client.drop()
            self.wire.loop.sockets.discard(self)

    def reset_by_peer(self, error: OSError | None = None) -> None:
        if self.wire is not None:
            self.wire.to_client.drop()
        if self.transport is not None:
            self.transport.lose(error or ConnectionResetError("connection reset by peer"))

    def begin(self, protocol: asyncio.Protocol) -> SimulatedTransport:
        assert self.wire is not None
        self.transport = SimulatedTransport(self, self.wire, protocol)
        return self.transport


class SimulatedSocket(FencedSocket, InMemorySocket):
    """The bridge's socket, in memory."""


class SimulatedTransport(asyncio.Transport):
    """As asyncio's own for sockets: writes at once."""

    def __init__(self, sock: InMemorySocket, wire: Wire, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._sock, self._wire, self._loop, self._protocol = sock, wire, wire.loop, protocol
        self._arrived: deque[bytes] = deque()
        self._closing = self._lost = self._planned = self._ended = False
        wire.to_client.arrived = self._came
        wire.to_client.finished = self._end
        self._loop.call_soon(protocol.connection_made, self)

    def _came(self, data: bytes) -> None:
        self._arrived.append(data)
        self._plan()

    def _end(self) -> None:
        self._ended = True
        self._plan()

    def _plan(self) -> None:
        if not self._planned and not self._closing:
            self._planned = True
            self._loop.readable(self._read)

    def _read(self) -> None:
        self._planned = False
        if self._arrived and not self._closing:
            data = b"".join(self._arrived)
            self._arrived.clear()
            self._loop.has_read(data)
            self._protocol.data_received(data)
            if self._ended:
                self._plan()
        elif self._ended and not self._closing and not self._protocol.eof_received():
            self.close()

    def write(self, data: Any) -> None:
        if self._closing:
            return
        try:
            self._sock.send(data)
        except OSError as error:
            self._lose(error)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._loop.call_soon(self._lose_now, None)

    def abort(self) -> None:
        self._lose(None)

    def lose(self, error: OSError) -> None:
        """The connection is reset: the process learns it as it learns of a read."""
        self._loop.readable(partial(self._lose, error))

    def _lose(self, error: OSError | None) -> None:
        if self._lost:
            return
        self._closing = True
        self._loop.call_soon(self._lose_now, error)

    def _lose_now(self, error: OSError | None) -> None:
        if self._lost:
            return
        self._lost = True
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._sock if name == "socket" else default


class Network:
    """Who listens where, and all connections."""

    def __init__(self, world: World) -> None:
        self.wires: list[Wire] = []
        self.listeners: dict[Reachable, Callable[[Wire], ConnectedClient]] = {}
        self._world = world
        self._held: set[tuple[str, Reachable]] = set()
        self._knocking: list[Callable[[], None]] = []
        self._numbers = 0

    def connect(self, sock: SimulatedSocket, place: Reachable, loop: SidecarLoop, done: asyncio.Future[None]) -> None:
        """Connect a socket; `done` says when, or why not."""
        self._numbers += 1
        sock.number = self._numbers
        wire = sock.wire = Wire(self._world, self._numbers, sock, loop, place)
        self._world.after(self._world.moment(_LATENCY * 2, longest=0.2), partial(self._knock, wire, done))

    def _knock(self, wire: Wire, done: asyncio.Future[None]) -> None:
        if done.done() or wire.loop.is_dead:
            return
        if (wire.loop.name, wire.place) in self._held:
            self._knocking.append(partial(self._knock, wire, done))
            return
        accept = self.listeners.get(wire.place)
        if accept is None:
            wire.loop.readable(partial(_settle, done, ConnectionRefusedError(111, "Connection refused")))
            return
        end = accept(wire)
        wire.to_server.arrived = end.received
        wire.to_server.finished = end.ended
        self.wires.append(wire)
        wire.loop.readable(partial(_settle, done))

    def between(self, process: str | None = None, place: Reachable | None = None) -> list[Wire]:
        """Return the connections that are open at one end at least."""
        self.wires = [each for each in self.wires if not (each.to_server.is_broken and each.to_client.is_broken)]
        return [each for each in self.wires if process in (None, each.loop.name) and place in (None, each.place)]

    def is_whole(self) -> bool:
        return not any(wire.to_server.is_broken or wire.to_client.is_broken for wire in self.between())

    def hold(self, process: str, place: Reachable) -> None:
        self._held.add((process, place))
        for wire in self.between(process, place):
            wire.hold()

    def release(self, process: str, place: Reachable) -> None:
        self._held.discard((process, place))
        for wire in self.between(process, place):
            wire.release()
        knocking, self._knocking = self._knocking, []
        for knock in knocking:
            self._world.after(self._world.draw(0, 1.0), knock)  # a SYN is repeated


def _settle(done: asyncio.Future[None], error: OSError | None = None) -> None:
    if not done.done():
        done.set_result(None) if error is None else done.set_exception(error)
