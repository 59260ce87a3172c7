"""Reads one replica of a stream: what the store of one server holds.

A consumer with one replica runs on one of the servers that hold the stream, which the meta leader draws at random, and
delivers from that server's own store; the answer to its creation names the server (2.9 to 2.15). So consumers are
created until each server has one. Nothing else names the server that it reads from: direct gets are answered by any
replica, and `STREAM.MSG.GET` and snapshots by the leader.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from typing import Final

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.bridge.client.operations import publication
from nats_bridge.bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.errors import ApiError, ConnectionLostError, NotPermittedError
from nats_bridge.bridge.jobs.replica_diff.comparing import Held
from nats_bridge.bridge.permissions.need import Need, api_subject, write

_NEXT: Final = "$JS.API.CONSUMER.MSG.NEXT"
_DRAWS: Final = 30  # consumers for each server: of three, one is never drawn in one of 10**15 runs
_FAILURES: Final = 5
_EXPIRES: Final = 2.0  # seconds that a server keeps a request
_SILENT: Final = 10.0  # seconds more without an answer, after which it is away
_UNUSED: Final = 60.0  # seconds after which a server removes a consumer that was not deleted
_FIRST_PORTION, _LARGEST_PORTION = 16, 4096  # messages
_PORTION_SIZE: Final = 4 << 20  # bytes, about


async def placed_consumers(api: JetStreamApi, stream: str, servers: Collection[str], first: int) -> dict[str, str]:
    """Create one consumer on each server.

    Args:
        api: the API of a connection to the cluster.
        stream: a stream that keeps its messages whatever consumers do.
        servers: the names of servers that hold it.
        first: the sequence with which the consumers begin.

    Returns:
        Their names, by server; a server that was never drawn is left out.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    config: Json = {
        "ack_policy": "none",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(first, 1),
        "replay_policy": "instant",
        "max_deliver": 1,
        "inactive_threshold": int(_UNUSED * 1e9),
        "mem_storage": True,
        "num_replicas": 1,
    }
    placed: dict[str, str] = {}
    failures = 0
    for _ in range(_DRAWS * len(servers)):
        try:
            created = await api.request(
                f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}, patience=0
            )
        except ApiError as error:
            failures += 1
            if not error.retriable or failures > _FAILURES:
                raise
            continue  # drawn was a server that has just gone away
        server = (created.get("cluster") or {}).get("leader", "")
        if server in servers and server not in placed:
            placed[server] = created["name"]
        else:
            await api.forget_ephemeral(stream, created["name"])
        if len(placed) == len(servers):
            break
    return placed


class ReplicaReader:
    """Reads one replica from its beginning to a sequence.

    Args:
        connection: a connection to the cluster.
        stream: the stream's name.
        consumer: of a consumer on the replica's server.
        last: the sequence to which it is read.

    Attributes:
        messages: how many were read.
        first: the sequence of the first of them; 0 if there was none.
        at: that of the last.
        is_over: whether all was read, or no more can be.
        stopped: why no more can be; empty if it can.
    """

    def __init__(self, connection: Connection, stream: str, consumer: str, last: int) -> None:
        self.messages = self.first = self.at = 0
        self.is_over = False
        self.stopped = ""
        self._connection = connection
        self._stream, self._consumer, self._last = stream, consumer, last
        self._seen = self._size = self._idle = 0
        self._portion = _FIRST_PORTION
        self._reconnects = connection.reconnects
        self._arrived: asyncio.Queue[list[Delivered] | ApiError] = asyncio.Queue()
        self._inbox = connection.client.new_inbox()
        self._subscription: BatchSubscription | None = None

    async def open(self) -> None:
        """Subscribe to what is delivered."""
        self._subscription = await self._connection.client.subscribe_batches(
            self._inbox, self._arrived.put_nowait, lambda *_: None
        )
        self._connection.on_refusal(self._refused)
        await self._connection.flush()  # what is written in raw overtakes it until then

    async def close(self) -> None:
        """Unsubscribe; the consumer stays."""
        self._connection.forget(self._refused)
        if self._subscription is not None:
            await self._subscription.release()

    def _refused(self, text: str) -> None:
        subject = f"{_NEXT}.{self._stream}."
        if subject in text:
            self._arrived.put_nowait(NotPermittedError(f"connection '{self._connection.name}'", f"{subject}*"))

    async def read(self) -> list[tuple[int, Held]]:
        """Read the next messages, with their sequences; none where that takes longer than a request is kept.

        Raises:
            ConnectionLostError: what was delivered may be lost with it.
            NotPermittedError: the user may not ask for messages.
        """
        request = json.dumps({"batch": self._portion, "expires": int(_EXPIRES * 1e9)}).encode()
        subject = f"{_NEXT}.{self._stream}.{self._consumer}"
        self._connection.client.write_raw(publication(subject.encode(), self._inbox.encode(), b"", request))
        found: list[tuple[int, Held]] = []
        is_answered = False
        asked = self._portion
        while not is_answered and not self.is_over:
            batch = await self._next()
            if batch is None:
                self._stop("its server gives no answer")
                break
            is_answered = self._take(batch, found) or len(found) >= asked
        if found:
            self.first = self.first or found[0][0]
            self.at, self._idle = found[-1][0], 0
            self.messages += len(found)
            self._portion = max(1, min(_LARGEST_PORTION, _PORTION_SIZE * self.messages // max(self._size, 1)))
        elif not self.is_over:
            await self._check()
        return found

    def _take(self, batch: list[Delivered], found: list[tuple[int, Held]]) -> bool:
        """Take delivered messages; whether the server has ended the request."""
        for subject, reply, block, payload in batch:
            if not reply:
                return True
            ack = AckReply.parse(reply)
            self._seen += 1
            if ack.consumer_sequence != self._seen:
                raise self._lost()
            if ack.stream_sequence > self._last:
                self.is_over = True
                return True
            found.append((ack.stream_sequence, Held(subject, block, payload, ack.time_ns)))
            self._size += len(block) + len(payload)
            if not ack.pending or ack.stream_sequence == self._last:
                self.is_over = True
                return True
        return False

    async def _next(self) -> list[Delivered] | None:
        try:
            async with asyncio.timeout(_EXPIRES + _SILENT):
                item = await self._arrived.get()
        except TimeoutError:
            if not self._connection.client.is_connected or self._connection.reconnects != self._reconnects:
                raise self._lost() from None
            return None
        if isinstance(item, ApiError):
            raise item
        return item

    async def _check(self) -> None:
        """See why a request was not served: nothing is left, or the server cannot deliver what it counts."""
        try:
            info = await self._connection.api.consumer_info(self._stream, self._consumer, patience=0)
        except NotPermittedError:
            raise
        except ApiError as error:
            self._stop(f"its server gives no answer: {error.description}")
            return
        if info is None:
            self._stop("its server has started again, or the consumer there was deleted")
        elif not info["num_pending"]:
            self.is_over = True
        elif self._idle:
            self._stop(f"its server delivers nothing after {self.at:,}, and counts {info['num_pending']:,} more")
        self._idle += 1

    def _stop(self, why: str) -> None:
        self.is_over, self.stopped = True, why

    def _lost(self) -> ConnectionLostError:
        return ConnectionLostError(
            f"connection '{self._connection.name}' was lost while stream '{self._stream}' was read: run it again"
        )


def replica_diff_needs(stream: str, connection: str) -> Iterator[Need]:
    """The needs of `nats-bridge replica-diff STREAM`.

    Args:
        stream: the stream.
        connection: the connection that holds it.
    """
    yield write(connection, api_subject("STREAM.INFO", stream), "names the servers that hold the stream")
    yield write(connection, api_subject("CONSUMER.CREATE", stream), "creates a consumer on each of them")
    yield write(connection, f"{_NEXT}.{stream}.*", "reads what each holds")
    yield write(connection, api_subject("CONSUMER.INFO", stream, "*"), "sees whether a server can deliver more")
    yield write(
        connection,
        api_subject("CONSUMER.DELETE", stream, "*"),
        "removes its consumers at once",
        without="they stay on the servers for a minute more",
    )
