"""Finds out which connections reach the same account: one publishes, another receives.

Theory of operation. Each connection subscribes to an inbox, and each publishes on the inboxes of the others, all at the
same time. A message that arrives proves that two connections share an account. On one server, its absence after a PONG
on both connections proves that they do not. Between two servers nothing proves that: a route, gateway or leafnode may
propagate the new subscription a moment later. The first answer waits for the time that propagation may take, estimated
from the two round trips; then the connections keep publishing for some seconds, and a late answer is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeAlias

from nats_bridge.bridge.client import nats_py
from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import NOT_ENABLED, STREAM_NOT_FOUND, Json
from nats_bridge.bridge.client.tasks import end_tasks, happens
from nats_bridge.bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.bridge.errors import ApiError, NotPermittedError

Pair: TypeAlias = frozenset[Connection]
"""Two connections."""

_FORWARDING = 0.05  # seconds for servers to propagate a subscription, in addition to the round trips
_ANSWER_LIMIT = 10.0  # seconds for a server to answer a PING
_LATE = 5.0  # seconds in which a late answer still counts
_PAUSE, _LATE_PAUSE = 0.01, 0.25  # seconds between two publications


async def same_account(one: Connection, other: Connection, *, patiently: bool = False) -> bool | None:
    """Whether two connections reach the same account; None if neither user may find out.

    Args:
        one, other: the connections.
        patiently: wait for a late answer.
    """
    accounts, pair = SharedAccounts(), frozenset((one, other))
    try:
        await accounts.ask({pair}, patiently=patiently)
        return accounts.answer(pair)
    finally:
        await accounts.close()


async def same_stream(connection: Connection, info: Json) -> bool | None:
    """Whether a connection reaches the stream that another one reaches; None if its user may not ask.

    Args:
        connection: the connection.
        info: the stream as `STREAM.INFO` gives it there. Its creation time distinguishes it from others of that name.

    Raises:
        ApiError: the server does not answer.
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
    """The known pairs of open connections; each pair is asked about once.

    Attributes:
        on_late: awaited when connections turn out to reach the same account after `ask` answered that they do not.
    """

    def __init__(self) -> None:
        self.on_late: Callable[[], Awaitable[None]] | None = None
        self._answers: dict[Pair, bool | None] = {}
        self._listening: set[asyncio.Task[None]] = set()

    def answer(self, pair: Pair) -> bool | None:
        """Whether two connections reach the same account; None if neither user may find out. After `ask`."""
        return self._answers[pair]

    async def ask(self, pairs: Iterable[Pair], *, patiently: bool = False) -> None:
        """Find out about pairs of connections, all at once.

        Args:
            pairs: those that are known already cost nothing.
            patiently: wait for a late answer instead of reporting it with `on_late`.
        """
        self._answers = {pair: answer for pair, answer in self._answers.items() if not _is_closed(pair)}
        unknown = {pair for pair in pairs if pair not in self._answers}
        if not unknown:
            return
        asking = _Asking(unknown)
        try:
            await asking.open()
            await asking.until_likely()
            if patiently:
                async for _ in asking.late():
                    pass
        except BaseException:
            await asking.close()
            raise
        self._answers |= asking.answers()
        if patiently or not asking.doubtful:
            await asking.close()
            return
        task = asyncio.create_task(self._listen(asking))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def close(self) -> None:
        """Stop waiting for late answers."""
        await end_tasks(*self._listening)

    async def _listen(self, asking: _Asking) -> None:
        try:
            async for pairs in asking.late():
                self._answers |= dict.fromkeys(pairs, True)
                if self.on_late is not None:
                    await self.on_late()
        finally:
            await asking.close()


class _Asking:
    """One round of probes; its subscriptions are open from `open` to `close`."""

    def __init__(self, pairs: set[Pair]) -> None:
        self._pairs = pairs
        self._connections = {connection.name: connection for pair in pairs for connection in pair}
        self._inboxes = {name: str(connection.client.new_inbox()) for name, connection in self._connections.items()}
        self._round_trips: dict[str, float] = {}
        self._subscriptions: list[BatchSubscription] = []
        self._received: set[tuple[str, str]] = set()  # listener, speaker
        self._refused: set[tuple[str, str]] = set()
        self._settled: set[Pair] = set()  # silence between them is certain
        self._news = asyncio.Event()
        self._refusal_listeners = {name: self._on_refusal(name) for name in self._connections}

    @property
    def doubtful(self) -> set[Pair]:
        """Pairs without an answer that could still come."""
        unsettled = self._pairs - self._settled
        return {pair for pair in unsettled if self._answer(pair) is False and not _is_closed(pair)}

    def answers(self) -> dict[Pair, bool | None]:
        """By pair; None if both users lack the permission for the other's inbox."""
        return {pair: self._answer(pair) for pair in self._pairs}

    async def open(self) -> None:
        """Subscribe on every connection, and measure the round trips."""
        for name, connection in self._connections.items():
            connection.on_refusal(self._refusal_listeners[name])
        await asyncio.gather(*(self._subscribe(name, connection) for name, connection in self._connections.items()))

    async def close(self) -> None:
        """Unsubscribe."""
        for name, connection in self._connections.items():
            connection.forget(self._refusal_listeners[name])
        for subscription in self._subscriptions:
            if not subscription.client.is_closed:
                await subscription.unsubscribe()
            await subscription.release()

    async def until_likely(self) -> None:
        """Publish until each pair has an answer, or its message should have arrived."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while waiting := self.doubtful:
            await self._publish(waiting)
            left = began + max(map(self._patience, waiting)) - loop.time()
            if not (waiting := self.doubtful) or left <= 0:
                return
            await self._receive(min(_PAUSE, left))

    async def late(self) -> AsyncIterator[set[Pair]]:
        """Keep publishing for some seconds; return the pairs whose messages arrived."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _LATE
        while (waiting := self.doubtful) and loop.time() < end:
            await self._receive(_LATE_PAUSE)
            await self._publish(waiting)
            if matched := {pair for pair in waiting if self._answer(pair)}:
                yield matched

    def _answer(self, pair: Pair) -> bool | None:
        if any(way in self._received for way in _ways(pair)):
            return True
        return None if all(way in self._refused for way in _ways(pair)) else False

    def _patience(self, pair: Pair) -> float:
        return _FORWARDING + 2 * sum(self._round_trips[connection.name] for connection in pair)

    async def _subscribe(self, name: str, connection: Connection) -> None:
        def on_batch(batch: list[Delivered]) -> None:
            self._received |= {(name, speaker.decode()) for _, _, _, speaker in batch}
            self._news.set()

        self._subscriptions.append(await connection.client.subscribe_batches(self._inboxes[name], on_batch))
        began = asyncio.get_running_loop().time()
        await _flush(connection)
        self._round_trips[name] = asyncio.get_running_loop().time() - began

    async def _publish(self, pairs: set[Pair]) -> None:
        ways = [way for pair in pairs for way in _ways(pair) if way not in self._refused]
        for listener, speaker in ways:
            try:
                await self._connections[speaker].client.publish(self._inboxes[listener], speaker.encode())
            except nats_py.errors.Error:
                continue  # the connection is closed, or its buffer is full while its server is away
        flushed = {name for way in ways for name in way}
        for _ in range(2):  # a server passes a message on before it answers the PING after it, on every connection
            names = tuple(flushed)
            answers = await asyncio.gather(*(_flush(self._connections[name]) for name in names))
            flushed = {name for name, answer in zip(names, answers, strict=True) if answer}
        for pair in pairs:
            one, other = pair
            if one.client.server_id == other.client.server_id and {one.name, other.name} <= flushed:
                self._settled.add(pair)

    async def _receive(self, limit: float) -> None:
        self._news.clear()
        await happens(self._news, within=limit)

    def _on_refusal(self, name: str) -> Callable[[str], None]:
        def on_refusal(text: str) -> None:
            lowered = text.lower()
            for listener, inbox in self._inboxes.items():
                if inbox.lower() not in lowered:
                    continue
                if listener == name:  # it may not subscribe
                    self._refused |= {(listener, speaker) for speaker in self._connections if speaker != listener}
                else:
                    self._refused.add((listener, name))
                self._news.set()

        return on_refusal


def _ways(pair: Pair) -> tuple[tuple[str, str], ...]:
    one, other = (connection.name for connection in pair)
    return (one, other), (other, one)


def _is_closed(pair: Pair) -> bool:
    return any(connection.client.is_closed for connection in pair)


async def _flush(connection: Connection) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_LIMIT):
            return await connection.flush()
    except TimeoutError:
        return False
