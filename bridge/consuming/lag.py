"""The lag of a rule: how many messages its stream still holds for it, polled while no delivery says so.

Theory of operation. Each delivery holds the number of pending messages, which costs nothing. A rule may get no
deliveries: because there are no messages, because its target is down or full, because its consumer was deleted, or
    because it has just taken over from another replica. Then it polls the server every few seconds: its consumer, which
    is exact, or the stream where there is no consumer. A lag that cannot be requested is unknown, never zero.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from nats_bridge.bridge.client import nats_py
from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.jetstream_api import JetStreamApi
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.errors import BridgeError, NotPermittedError
from nats_bridge.bridge.observability.rule_metrics import Backlog

__all__ = ["LagWatch", "Reader", "Standpoint", "waiting_behind"]

_LOOK = 1.0  # seconds between two checks whether something was delivered
_QUIET = 2.0  # seconds without a delivery, after which the server is asked
_AGAIN, _AGAIN_IDLE = 2.0, 5.0  # seconds between two requests; the same, where nothing waits


@dataclass(frozen=True, slots=True)
class Standpoint:
    """The position of a rule in a stream.

    Attributes:
        stream: its name.
        created: the stream's creation time, as in `STREAM.INFO`.
        filters: only these subjects; none for all.
        handled: the stream sequence up to which everything was read.
        direct: no other consumer may be created, not even for a moment: the stream would keep messages for it.
    """

    stream: str
    created: str
    filters: tuple[str, ...]
    handled: int
    direct: bool = False


class Reader(Protocol):
    """A reader of a stream, which has a lag."""

    @property
    def standpoint(self) -> Standpoint | None:
        """Its position; None if that is not known yet."""

    async def not_taken(self) -> int | None:
        """The number of messages that its consumer holds for it; None without a consumer."""


async def waiting_behind(api: JetStreamApi, at: Standpoint) -> int | None:
    """The number of messages that wait in a stream that no consumer of ours reads; None if it is unknown.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    info = await api.request(f"STREAM.INFO.{at.stream}", patience=0)
    state = info["state"]
    handled = at.handled if info["created"] == at.created else 0
    first, last = int(state["first_seq"]), int(state["last_seq"])
    if last < handled:
        return None  # a server lost the end of its store: the rule handles that
    if not int(state["messages"]) or last == handled:
        return 0
    if at.filters or int(state.get("num_deleted") or 0):
        return None if at.direct else await Replay(api, at.stream, at.filters).after(handled)
    return last - max(handled, first - 1)


class LagWatch:
    """Updates a rule's backlog in one stream while nothing is delivered.

    Args:
        link: the connection that holds the stream.
        reader: the reader of the stream.
        backlog: is updated.
    """

    def __init__(self, link: Link, reader: Reader, backlog: Backlog) -> None:
        self._link = link
        self._reader = reader
        self._backlog = backlog
        self._permitted = True
        self._oldest: tuple[Standpoint, int] | None = None  # when the first message after it was stored

    async def run(self) -> None:
        """Watch, until cancelled."""
        loop, backlog = asyncio.get_running_loop(), self._backlog
        heard, batches, asked = loop.time(), backlog.batches, -_AGAIN_IDLE
        while True:
            now = loop.time()
            if backlog.batches != batches:
                heard, batches = now, backlog.batches
            known = backlog.messages is not None
            pause = _AGAIN_IDLE if backlog.messages == 0 else _AGAIN
            if (now - heard >= _QUIET or not known) and now - asked >= pause:
                asked = now
                await self._look()
            elif not self._link.client.is_connected and now - heard >= _QUIET:
                backlog.unknown()
            await asyncio.sleep(_LOOK)

    async def _look(self) -> None:
        backlog, asked_ns = self._backlog, time.time_ns()
        before = backlog.batches
        found: tuple[int, int] | None = None
        if self._permitted and self._link.client.is_connected:
            try:
                found = await self._ask()
            except NotPermittedError:
                self._permitted = False  # the connection has logged it already
            except (BridgeError, OSError, nats_py.errors.Error):
                pass  # asked again soon
        if backlog.batches != before:
            return  # a delivery since then is newer
        if found is None:
            backlog.unknown()
        else:
            backlog.asked(*found, asked_ns)

    async def _ask(self) -> tuple[int, int] | None:
        """The number of messages that wait, and when the oldest was stored, 0 if that is unknown."""
        at = self._reader.standpoint
        if at is None:
            return None
        messages = await self._reader.not_taken()
        if messages is None:
            messages = await waiting_behind(self._link.api, at)
        if messages is None:
            return None
        return messages, await self._oldest_behind(at) if messages else 0

    async def _oldest_behind(self, at: Standpoint) -> int:
        if self._oldest is None or self._oldest[0] != at:
            api = self._link.api
            found = [await api.next_message(at.stream, subject, at.handled + 1) for subject in at.filters or (">",)]
            self._oldest = at, min([message for message in found if message is not None], default=(0, 0))[1]
        return self._oldest[1]
