"""Tracks the lag of a rule: the number of messages that its stream still holds for it.

Theory of operation. Each delivery contains the number of pending messages, so usually nothing has to be polled. A rule
may get no deliveries because there are no messages, because its target is down or full, because its consumer was
deleted, or because it has just taken over from another replica. Then it polls the server every few seconds: its
consumer, which is exact, or the stream if no consumer exists. A lag that cannot be requested is unknown, never zero.

While messages wait, it also polls the first sequence of the stream. If limits remove messages faster than the rule
handles them, the first sequence approaches the position and finally passes it. Messages removed after that are lost to
the rule, so the approach is reported early.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Protocol

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.waiting import EVERY_SECOND, QUIET
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import BridgeError, NotPermittedError
from nats_bridge.observability.log_throttle import Pace
from nats_bridge.observability.rule_metrics import Backlog

_log = structlog.get_logger("bridge.lag")

_AGAIN, _AGAIN_IDLE = 2.0, 5.0  # seconds between two requests; the same while no message waits
_LONGEST_IDLE = 20.0  # the same, after some such answers
_NEAR = 300.0  # seconds until a limit removes unhandled messages, below which this is logged


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The position of a rule in a stream.

    Attributes:
        known: the facts that identify the stream.
        filters: the subjects to count; none for all.
        handled: the stream sequence up to which everything was read.
        direct: whether no other consumer may be created, not even briefly, because the stream would keep messages for
            it.
    """

    stream: str
    known: KnownStream
    filters: tuple[str, ...]
    handled: int
    direct: bool = False


class LagSource(Protocol):
    """A reader of a stream, which has a lag."""

    @property
    def stream_position(self) -> StreamPosition | None:
        """The rule's position; None while it is unknown."""

    async def undelivered(self) -> int | None:
        """Return the number of messages that the consumer still holds for the rule; None without a consumer."""


async def waiting_after(api: JetStreamApi, at: StreamPosition) -> int | None:
    """Return the number of messages that wait in a stream without a consumer of the rule; None if unknown."""
    info = await api.request(f"STREAM.INFO.{at.stream}", patience=0)
    state = info["state"]
    handled = at.handled if await at.known.verdict(api, info) != "recreated" else 0
    first, last = int(state["first_seq"]), int(state["last_seq"])
    if last < handled:
        return None  # a server lost the end of its store: the rule handles that
    if not int(state["messages"]) or last == handled:
        return 0
    if at.filters or int(state.get("num_deleted") or 0):
        return None if at.direct else await Replay(api, at.stream, at.filters).after(handled)
    return last - max(handled, first - 1)


@dataclass(frozen=True, slots=True)
class Edge:
    """A rule's position, and the first message in its stream.

    Attributes:
        at: when, in seconds.
        created: which stream of that name.
        first: the stream's first sequence.
        handled: the stream sequence up to which every message was handled.
    """

    at: float
    created: str
    first: int
    handled: int

    @property
    def headroom(self) -> int:
        """The number of sequences that can still be removed before the rule's next message."""
        return max(self.handled + 1 - self.first, 0)


def time_left(before: Edge, now: Edge) -> float | None:
    """Seconds until the stream's first sequence passes the position, at the rates between two samples.

    Returns:
        None if the first sequence comes no closer, or nothing is removed.
    """
    closer = (now.first - before.first) - (now.handled - before.handled)
    if now.created != before.created or now.first <= before.first or closer <= 0 or now.at <= before.at:
        return None
    return now.headroom * (now.at - before.at) / closer


def pause_after(pause: float, *, idle: bool) -> float:
    """Return the seconds until the next request.

    Args:
        pause: how long the last pause was.
        idle: whether no message waits and none was delivered since.
    """
    return min(max(2 * pause, _AGAIN_IDLE), _LONGEST_IDLE) if idle else _AGAIN


class LagWatch:
    """Keeps a rule's backlog in one stream current while nothing is delivered, and notices limits that overtake it.

    Args:
        rule: the rule's name, for the log.
        connection: the connection that holds the stream.
        reader: the reader of the stream.
        backlog: is updated.
    """

    def __init__(self, rule: str, connection: Connection, reader: LagSource, backlog: Backlog) -> None:
        self._rule = rule
        self._removes = True  # whether limits may remove messages of the stream
        self._edge: Edge | None = None
        self._pace = Pace(60.0)
        self._connection = connection
        self._reader = reader
        self._backlog = backlog
        self._permitted = True
        self._oldest: tuple[StreamPosition, int] | None = None  # when the first message after it was stored

    async def run(self) -> None:
        """Watch, until cancelled."""
        loop, backlog = asyncio.get_running_loop(), self._backlog
        last_batch, batches, asked, looked = loop.time(), backlog.batches, -_AGAIN_IDLE, -_AGAIN_IDLE
        pause = _AGAIN
        while True:
            now = loop.time()
            if backlog.batches != batches:
                last_batch, batches, pause = now, backlog.batches, _AGAIN
            known = backlog.messages is not None
            if (now - last_batch >= QUIET or not known) and now - asked >= pause:
                asked = now
                await self._observe()
                # Five hundred rules that have nothing to do must not keep a server busy.
                pause = pause_after(pause, idle=backlog.messages == 0 and backlog.batches == batches)
            elif not self._connection.client.is_connected and now - last_batch >= QUIET:
                backlog.unknown()
                pause = _AGAIN
            # While nothing waits, nothing that the rule needs can be removed.
            if self._removes and (backlog.messages or self._edge is None) and now - looked >= _AGAIN_IDLE:
                looked = now
                await self._read_first(now)
            await asyncio.sleep(EVERY_SECOND)

    async def _read_first(self, now: float) -> None:
        """Read how far the stream's first sequence is from the position."""
        at = self._reader.stream_position
        if at is None or not self._permitted or not self._connection.client.is_connected:
            return
        with contextlib.suppress(BridgeError):
            info = await self._connection.api.request(f"STREAM.INFO.{at.stream}", patience=0)
            self._removes = info["config"].get("retention", "limits") == "limits"
            at = self._reader.stream_position
            if at is None or not self._removes:
                return
            edge = Edge(now, str(info["created"]), int(info["state"]["first_seq"]), at.handled)
            before, self._edge = self._edge, edge
            self._backlog.headroom = edge.headroom
            left = time_left(before, edge) if before is not None else None
            if left is not None and left < _NEAR and self._backlog.messages and self._pace.due():
                _log.warning(
                    "rule.removal_near",
                    rule=self._rule,
                    stream=at.stream,
                    position=edge.handled,
                    first_sequence=edge.first,
                    seconds=round(left, 1),
                    meaning="the stream's limits remove messages faster than the rule reads them; it will miss some",
                )

    async def _observe(self) -> None:
        backlog, asked_ns = self._backlog, time.time_ns()
        before = backlog.batches
        observed: tuple[int, int] | None = None
        if self._permitted and self._connection.client.is_connected:
            try:
                observed = await self._ask()
            except NotPermittedError:
                self._permitted = False  # the connection has logged it already
            except BridgeError:
                pass  # request again soon
        if backlog.batches != before:
            return  # a delivery since then is newer
        if observed is None:
            backlog.unknown()
        else:
            backlog.asked(*observed, asked_ns)

    async def _ask(self) -> tuple[int, int] | None:
        """Return the number of waiting messages, and the time of the oldest (0 if unknown)."""
        at = self._reader.stream_position
        if at is None:
            return None
        messages = await self._reader.undelivered()
        if messages is None:
            messages = await waiting_after(self._connection.api, at)
        if messages is None:
            return None
        return messages, await self._oldest_behind(at) if messages else 0

    async def _oldest_behind(self, at: StreamPosition) -> int:
        if self._oldest is None or self._oldest[0] != at:
            api = self._connection.api
            observed = [await api.next_message(at.stream, subject, at.handled + 1) for subject in at.filters or (">",)]
            self._oldest = at, min([message for message in observed if message is not None], default=(0, 0))[1]
        return self._oldest[1]
