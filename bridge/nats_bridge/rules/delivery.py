"""Publishing: whole batches of `HPUB`, with the promise of the rule's delivery mode.

at_most_once: a batch is written once. If the connection breaks before a PONG confirms it, or the server refuses a
message before that, the messages are counted as in doubt and not written again.

at_least_once: a batch is kept until a PONG confirms it, then its source messages are acknowledged. After a broken
connection everything unconfirmed is written again, in order.

In both modes, the rule's fence is checked before every write. While it is closed, batches wait as they do for a
connection.

After a reconnect, `max_payload` may be lower than before. Larger messages among the waiting or repeated ones are then
dropped and counted, because the server would close the connection again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from nats_bridge.client.connection import Connection
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.wide_transport import LARGE_WRITE
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.observability.rule_metrics import InFlight, RuleMetrics

_MOST_UNSENT = 4 << 20  # bytes in the socket's buffer before reading pauses
_MOST_UNCONFIRMED = 32 << 20  # bytes kept for writing again before reading pauses
_IDLE_CONFIRMATION = 0.05  # seconds between two checks of unconfirmed at_most_once batches


@dataclass(frozen=True, slots=True)
class _Written:
    pieces: Sequence[bytes]  # whole operations; empty if nothing is written again
    size: int  # of the pieces, in bytes
    messages: int
    acknowledge: bytes
    at: float  # the loop's time
    oldest_ns: int  # the time when the oldest message was stored; 0 if none was in a stream


class DeliveryCounters(Protocol):
    """The counters of a delivery; see `RuleCounters`."""

    bytes_out: int
    in_doubt: int
    repeated_out: int
    too_large: int


class CorePublisher:
    """Writes one rule's operations to its target connection.

    Args:
        target: the connection to publish on.
        acknowledge: called with the reply subject of the last source message of each confirmed batch, for
            at_least_once; None for at_most_once.
        fence: checked before anything is written or acknowledged.
    """

    def __init__(
        self,
        target: Connection,
        counters: DeliveryCounters,
        acknowledge: Callable[[bytes], None] | None,
        metrics: RuleMetrics,
        fence: WriteFence = ALWAYS_OPEN,
    ) -> None:
        self._target = target
        self._fence = fence
        self._counters = counters
        self._acknowledge = acknowledge
        self._metrics = metrics
        self._unconfirmed: deque[_Written] = deque()
        self._unconfirmed_bytes = 0
        self._changed = asyncio.Event()
        self._progress = asyncio.Event()
        self._broken = False
        self._limit = 0  # bytes of the largest message that the server has accepted so far
        self._refused = False
        self.held = False  # whether a batch waits for the connection, nothing of it written
        self._held = (0, 0)  # its messages, and when the oldest was stored
        self.acknowledged = b""  # the last reply subject that was handed to `acknowledge`
        self._confirmer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin confirming."""
        self._limit = self._target.client.max_payload
        self._target.on_disconnect(self._disconnected)
        self._target.on_reconnect(self._reconnected)
        self._confirmer = asyncio.create_task(self._confirm())

    def send(self, operations: list[bytes], reply: bytes, oldest_ns: int = 0) -> Awaitable[None] | None:
        """Publish a batch's operations (possibly none). `reply` belongs to the batch's last source message.

        Args:
            operations: what to write.
            reply: the reply subject to acknowledge after confirmation.
            oldest_ns: the time when the batch's oldest message was stored, nanoseconds since 1970; 0 if none was in a
                stream.

        Returns:
            None, or something to await before the next batch is sent.
        """
        if self._broken or not self._target.client.is_connected or not self._fence.is_open:
            return self._send_when_possible(operations, reply, oldest_ns)
        self._write(operations, reply, oldest_ns)
        if self._target.client.unsent_bytes > _MOST_UNSENT or self._unconfirmed_bytes > _MOST_UNCONFIRMED:
            return self._room()
        return None

    @property
    def has_work(self) -> bool:
        """Whether something is to be written or to be confirmed."""
        return self.held or bool(self._unconfirmed)

    @property
    def waiting_for(self) -> str | None:
        """The obstacle to writing; None without one."""
        if self._broken or not self._target.client.is_connected:
            return f"connection '{self._target.name}'"
        if self._target.client.unsent_bytes > _MOST_UNSENT:
            return f"connection '{self._target.name}' to take what is written"
        return None

    @property
    def in_flight(self) -> InFlight:
        """The messages written and not confirmed, and those that wait for the connection."""
        unconfirmed, (held, held_ns) = tuple(self._unconfirmed), self._held
        oldest_ns = next((written.oldest_ns for written in unconfirmed if written.messages), held_ns)
        return InFlight(sum([written.messages for written in unconfirmed]) + held, oldest_ns)

    async def settled(self) -> None:
        """Wait until everything written is confirmed (and acknowledged)."""
        while self._unconfirmed:
            await self._next_progress()

    def acknowledge_again(self) -> None:
        """Repeat the last acknowledgement, which may have been lost with the source connection."""
        if self.acknowledged and self._acknowledge is not None:
            self._acknowledge(self.acknowledged)

    def refused(self) -> None:
        """Handle a refused publication: one of the messages that are not confirmed yet, and never will be."""
        self._refused = True
        self._doubt()

    async def stop(self) -> None:
        """Stop confirming, and write nothing again. Unconfirmed at_most_once messages stay in doubt."""
        self._target.forget(self._disconnected, self._reconnected)
        await end_tasks(self._confirmer)
        self._doubt()

    def give_up(self, messages: int) -> None:
        """Give the rule up to another process: count messages that were received and never written.

        Args:
            messages: taken, and not handed to `send`.
        """
        if self._acknowledge is None:
            self._counters.in_doubt += messages + self._held[0]
            self.held, self._held = False, (0, 0)

    def _write(self, operations: list[bytes], reply: bytes, oldest_ns: int) -> None:
        # Joining large operations would cost more than writing them one by one.
        large = operations and len(operations[0]) > LARGE_WRITE < len(operations[-1])
        pieces = operations if large or not operations else [b"".join(operations)]
        size = sum(map(len, pieces))
        for piece in pieces:
            self._target.client.write_raw(piece, self._fence)
        self._counters.bytes_out += size
        keeps = self._acknowledge is not None
        now = asyncio.get_running_loop().time()
        if keeps:
            written = _Written(pieces, size, len(operations), reply, now, oldest_ns)
            self._unconfirmed_bytes += size
        else:
            written = _Written((), 0, len(operations), b"", now, oldest_ns)
            if pieces:
                self._metrics.arrived(oldest_ns)
        self._unconfirmed.append(written)
        self._changed.set()

    async def _send_when_possible(self, operations: list[bytes], reply: bytes, oldest_ns: int) -> None:
        self.held, self._held = True, (len(operations), oldest_ns)
        await self._writable()
        self.held, self._held = False, (0, 0)
        self._write(self._fitting(operations), reply, oldest_ns)

    async def _writable(self) -> None:
        """Wait until writing is possible and allowed, and interrupted batches are written again."""
        while True:
            await self._target.connected()
            if not self._fence.is_open:
                await self._fence.opened()
            elif self._broken:
                self._write_again()
            else:
                return

    async def _room(self) -> None:
        if self._target.client.is_connected:
            try:
                await self._target.client.drained()
            except ConnectionError:
                return  # the reconnect decides which operations are written again
        while self._unconfirmed_bytes > _MOST_UNCONFIRMED:
            await self._next_progress()

    async def _next_progress(self) -> None:
        self._progress.clear()
        await self._progress.wait()

    async def _confirm(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._broken or not self._target.client.is_connected:
                await self._writable()
                self._changed.set()
                await asyncio.sleep(0)
                continue
            count, asked = len(self._unconfirmed), asyncio.get_running_loop().time()
            # A refusal arrives before the PONG, which then confirms nothing, so nothing after it is acknowledged.
            if await self._target.flush() and not self._refused:
                if self._acknowledge is not None and not self._fence.is_open:
                    await self._fence.opened()
                self._settle(count, asked)
            if self._acknowledge is None:
                # All rules check at the same times, so one PING is enough for all of a connection.
                now = asyncio.get_running_loop().time()
                await asyncio.sleep(_IDLE_CONFIRMATION - now % _IDLE_CONFIRMATION)

    def _settle(self, count: int, asked: float) -> None:
        last, now, metrics = b"", asyncio.get_running_loop().time(), self._metrics
        for _ in range(count):
            written = self._unconfirmed.popleft()
            self._unconfirmed_bytes -= written.size
            last = written.acknowledge or last
            if written.pieces:
                metrics.publish.record(now - written.at)
                metrics.arrived(written.oldest_ns)
        if self._acknowledge is None:
            # Messages written once wait some time for the PING, which does not mean that the server is slow.
            metrics.publish.record(now - asked)
        metrics.progressed()
        if last and self._acknowledge is not None:
            self.acknowledged = last
            self._acknowledge(last)
        if self._unconfirmed:
            self._changed.set()
        self._progress.set()

    def _disconnected(self) -> None:
        self._broken = True
        self._doubt()

    def _doubt(self) -> None:
        """Count messages written once and not confirmed, whose result stays unknown."""
        if self._acknowledge is None:
            self._counters.in_doubt += sum(written.messages for written in self._unconfirmed)
            self._unconfirmed.clear()
            self._progress.set()  # callers that wait for it to be settled have nothing more to wait for

    def _reconnected(self) -> None:
        # While the fence is closed, the caller that waits for it writes again.
        if self._fence.is_open or not self._unconfirmed:
            self._write_again()
        self._changed.set()

    def _write_again(self) -> None:
        self._broken = False
        if self._target.client.max_payload < self._limit:
            self._leave_out()
        self._limit = self._target.client.max_payload
        for written in self._unconfirmed:
            for piece in written.pieces:
                self._target.client.write_raw(piece, self._fence)
            if written.pieces:
                self._counters.repeated_out += written.messages
        self._changed.set()

    def _leave_out(self) -> None:
        """Keep, of the operations to write again, those that the server accepts now."""
        for place, written in enumerate(self._unconfirmed):
            if written.pieces:
                pieces = self._fitting(written.pieces)
                size = sum(map(len, pieces))
                self._unconfirmed_bytes -= written.size - size
                self._unconfirmed[place] = replace(written, pieces=pieces, size=size, messages=len(pieces))

    def _fitting(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Return the operations that fit the server's present limit, one by one. Count the others."""
        limit, fitting = self._target.client.max_payload, []
        for piece in pieces:
            start = 0
            while start < len(piece):
                line_end = piece.index(b"\r\n", start)
                size = int(piece[piece.rindex(b" ", start, line_end) : line_end])
                end = line_end + size + 4
                if size <= limit:
                    fitting.append(piece[start:end])
                else:
                    self._counters.too_large += 1
                start = end
        return fitting
