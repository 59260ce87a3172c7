"""Finds out which connections reach the same account: one publishes, another receives.

Theory of operation. Each connection of a pair subscribes to an inbox and publishes on the inbox of the other one, all
pairs at the same time. A message that arrives proves that two connections share an account. On one server, its absence
after a PONG on both connections proves that they do not. Between two servers nothing proves that: a route, gateway or
leafnode may propagate the new subscription a moment later. The first answer waits for the time that propagation may
take, estimated from the round trips; then the connections keep publishing for some seconds, and a late answer is
reported.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from nats_bridge.client import nats_py
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import NOT_ENABLED, STREAM_NOT_FOUND, Json
from nats_bridge.client.tasks import end_tasks, happens
from nats_bridge.client.waiting import ANSWER, ROUND_TRIP
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.errors import ApiError, NotPermittedError

Pair: TypeAlias = frozenset[Connection]
"""Two connections."""

_FORWARDING = 0.05  # seconds for servers to propagate a subscription, in addition to the round trips
_PAUSE, _LATE_PAUSE = 0.01, 0.25  # seconds between two publications


async def same_account(one: Connection, other: Connection, *, patiently: bool = False) -> bool | None:
    """Return whether two connections reach the same account.

    None if the permissions of both users are too narrow to tell.

    Args:
        one, other: the connections.
        patiently: wait for a late answer.
    """
    accounts, pair = SharedAccounts(), frozenset((one, other))
    try:
        await accounts.ask({pair}, patiently=patiently)
        return accounts.answers[pair]
    finally:
        await accounts.close()


async def same_stream(connection: Connection, info: Json) -> bool | None:
    """Return whether a connection reaches the same stream as another one; None if its user may not request it.

    Args:
        info: the stream as `STREAM.INFO` gives it there. Its creation time distinguishes it from others of that name.
    """
    try:
        other = await connection.api.stream_info(info["config"]["name"])
    except NotPermittedError:
        return None
    except ApiError as error:
        if error.err_code not in (STREAM_NOT_FOUND, NOT_ENABLED):
            raise
        return False
    return bool(other["created"] == info["created"])


class SharedAccounts:
    """Remembers which pairs of open connections share an account. Each pair is probed once.

    Attributes:
        answers: for each pair, whether both reach the same account; None if permissions are too narrow to tell.
        on_late: awaited when connections turn out to reach the same account after `ask` answered that they do not.
    """

    def __init__(self) -> None:
        self.on_late: Callable[[], Awaitable[None]] | None = None
        self.answers: dict[Pair, bool | None] = {}
        self._listening: set[asyncio.Task[None]] = set()

    async def ask(self, pairs: Iterable[Pair], *, patiently: bool = False) -> None:
        """Find out about pairs of connections, all at once.

        Args:
            pairs: those that are known already cost nothing.
            patiently: wait for a late answer instead of reporting it with `on_late`.
        """
        self.answers = {pair: answer for pair, answer in self.answers.items() if not _is_closed(pair)}
        probes = [_Probe(pair) for pair in set(pairs) - self.answers.keys()]
        asking = [asyncio.create_task(probe.ask(patiently=patiently)) for probe in probes]
        try:
            await asyncio.gather(*asking)
        except BaseException:
            await end_tasks(*asking)
            for probe in probes:
                await probe.close()
            raise
        for probe in probes:
            self.answers[probe.pair] = probe.answer
            if patiently or not probe.is_doubtful:
                await probe.close()
                continue
            task = asyncio.create_task(self._listen(probe))
            self._listening.add(task)
            task.add_done_callback(self._listening.discard)

    async def close(self) -> None:
        """Stop waiting for late answers."""
        await end_tasks(*self._listening)

    async def _listen(self, probe: _Probe) -> None:
        try:
            if await probe.late():
                self.answers[probe.pair] = True
                if self.on_late is not None:
                    await self.on_late()
        finally:
            await probe.close()


class _Probe:
    """Probes one pair. Its subscriptions are open from `ask` to `close`."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        one, other = pair
        self._ways = {str(one.client.new_inbox()): (one, other), str(other.client.new_inbox()): (other, one)}
        self._subscriptions: list[BatchSubscription] = []
        self._refused: set[str] = set()  # inboxes of either connection
        self._received = False
        self._settled = False  # silence between them is certain
        self._news = asyncio.Event()

    @property
    def answer(self) -> bool | None:
        """Whether both reach the same account; None if both users lack the permission for the other's inbox."""
        if self._received:
            return True
        return None if len(self._refused) == len(self._ways) else False

    @property
    def is_doubtful(self) -> bool:
        """Whether no message has arrived yet and one still could."""
        return self.answer is False and not self._settled and not _is_closed(self.pair)

    async def ask(self, *, patiently: bool) -> None:
        """Publish until there is an answer, or a message should have arrived.

        With `patiently`, also wait for a late one.
        """
        loop = asyncio.get_running_loop()
        for connection in self.pair:
            connection.on_refusal(self._on_refusal)
        for inbox, (listener, _) in self._ways.items():
            self._subscriptions.append(await listener.client.subscribe_batches(inbox, self._on_batch))
        began = loop.time()
        await self._flush()
        now = loop.time()
        end = now + _FORWARDING + 4 * (now - began)
        while self.is_doubtful:
            await self._publish()
            left = end - loop.time()
            if self._settled or left <= 0:
                break
            await self._receive(min(_PAUSE, left))
        if patiently:
            await self.late()

    async def late(self) -> bool:
        """Keep publishing for some seconds. Return whether a message has arrived."""
        loop = asyncio.get_running_loop()
        end = loop.time() + ANSWER
        while self.is_doubtful and loop.time() < end:
            await self._receive(_LATE_PAUSE)
            await self._publish()
        return self._received

    async def close(self) -> None:
        """Unsubscribe."""
        for connection in self.pair:
            connection.forget(self._on_refusal)
        for subscription in self._subscriptions:
            if not subscription.client.is_closed:
                await subscription.unsubscribe()
            await subscription.release()

    async def _publish(self) -> None:
        for inbox, (_, speaker) in self._ways.items():
            if inbox not in self._refused:
                # It can be closed, or its buffer full while its server is away.
                with contextlib.suppress(nats_py.errors.Error):
                    await speaker.client.publish(inbox)
        # A server passes a message on before it answers the PING after it, on every connection.
        flushed = await self._flush() and await self._flush()
        one, other = self.pair
        self._settled = flushed and one.client.server_id == other.client.server_id

    async def _flush(self) -> bool:
        return all(await asyncio.gather(*map(_flush, self.pair)))

    async def _receive(self, limit: float) -> None:
        await happens(self._news, within=limit)
        self._news.clear()

    def _on_batch(self, _: list[Delivered]) -> None:
        self._received = True
        self._news.set()

    def _on_refusal(self, text: str) -> None:
        self._refused.update(inbox for inbox in self._ways if inbox in text)
        self._news.set()


def _is_closed(pair: Pair) -> bool:
    return any(connection.client.is_closed for connection in pair)


async def _flush(connection: Connection) -> bool:
    try:
        async with asyncio.timeout(ROUND_TRIP):
            return await connection.flush()
    except TimeoutError:
        return False
