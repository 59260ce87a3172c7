"""Reads a range of sequences at full speed, through its own pull consumer, in portions.

Requests in portions, of messages and of bytes, limit the messages in flight. So a slow reader costs neither memory nor
the connection, and few messages beyond the end of the range are sent. A consumer without acks does not know which
messages arrived. Its own count of deliveries, compared with the reader's, shows whether any were lost. Then a new
consumer resumes after the last message that arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.waiting import HEARTBEAT, SILENT_BEATS
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.replay import filter_members
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge_spark.source.bulk_parsing import BulkParser
from nats_bridge_spark.source.record_batches import Arrived

_QUIET_BEATS: Final = 5  # heartbeats and nothing else, after which another consumer may do better
_EXPIRES: Final = 30.0  # seconds that the server keeps a request
_OVER: Final = (b"404", b"408", b"409 Batch Completed")
"""Reasons for the end of a request: no messages, its time is up, or (from 2.10 on, with a limit of bytes) it is
complete."""
_TOO_LARGE: Final = b"MaxBytes"
"""The server's status, with 409, if the next message is larger than the rest of the request."""
_STATUS: Final = b"NATS/1.0 "


_Item: TypeAlias = Arrived | list[Delivered] | bytes | Exception
"""Messages, in bulk or singly with the statuses of requests; or a heartbeat; or the reason why no more will come."""


class _LostError(Exception):
    """Deliveries were lost, or the consumer was; a new one can resume."""


@dataclass(frozen=True, slots=True)
class Pull:
    """Reads a stream through a pull consumer.

    Attributes:
        filters: the subjects to read; none for all. Only servers from 2.10 on support more than one.
        headers_only: leave payloads on the server, which appends a header with their size.
        portion: the number of messages in a request.
        size: the bytes of a request; a larger message is requested alone.
    """

    connection: Connection
    stream: str
    filters: tuple[str, ...] = ()
    headers_only: bool = False
    portion: int = 10_000
    size: int = 16 * 1024 * 1024

    async def between(self, first: int, last: int) -> AsyncGenerator[Arrived, None]:
        """Batches of the messages with first <= sequence <= last that still exist, in order.

        If the iteration may end early, close it (`contextlib.aclosing`), so that the consumer is deleted.

        Raises:
            ApiError: retriable if the connection broke. The messages yielded before it are valid.
        """
        client = self.connection.client
        arrived: asyncio.Queue[_Item] = asyncio.Queue()
        inbox = client.new_inbox()

        def disconnected() -> None:
            arrived.put_nowait(_LostError("the connection was lost"))

        def refused(text: str) -> None:
            if self._next_subject("").lower() in text.lower():
                arrived.put_nowait(NotPermittedError(f"connection '{self.connection.name}'", self._next_subject("*")))

        subscription = await client.subscribe_batches(
            f"{inbox}.*",
            arrived.put_nowait,
            lambda _, block: arrived.put_nowait(block),
            in_bulk=BulkParser(arrived.put_nowait).take,
        )
        self.connection.on_disconnect(disconnected)
        self.connection.on_refusal(refused)
        name = ""
        try:
            consumer = await self.connection.api.create_ephemeral(self.stream, self._config(first), "read")
            name = str(consumer["name"])
            if not consumer["num_pending"]:
                return
            async with contextlib.aclosing(self._read(arrived, inbox, name, first, last)) as batches:
                async for batch in batches:
                    yield batch
        except _LostError as error:
            raise ApiError(
                f"stream '{self.stream}': {error}",
                http_code=408,
                err_code=0,
                description="pull broken",
                retriable=True,
            ) from None
        finally:
            self.connection.forget(disconnected, refused)
            await subscription.release()
            if name and client.is_connected:
                with contextlib.suppress(ApiError):  # the server removes it when it is inactive
                    await self.connection.api.forget_ephemeral(self.stream, name)

    def _config(self, first: int) -> Json:
        return {
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "replay_policy": "instant",
            "max_deliver": 1,
            "inactive_threshold": int(_EXPIRES * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
            "headers_only": self.headers_only,
            **filter_members(self.filters),
        }

    async def _read(
        self, arrived: asyncio.Queue[_Item], inbox: str, name: str, first: int, last: int
    ) -> AsyncGenerator[Arrived, None]:
        requests = _Requests()
        seen = quiet = 0
        at = first - 1
        while True:
            # Messages in flight may reach the end if there are no gaps, so never request more than that.
            if requests.open <= self.portion // 2 and (want := min(self.portion, last - at - requests.open)) > 0:
                self._ask(requests, inbox, name, want)
            item = await self._next(arrived)
            if isinstance(item, Exception):
                raise item
            if isinstance(item, bytes):
                if await self._through(name, seen) and arrived.empty():
                    return
                quiet += 1
                if quiet == _QUIET_BEATS:
                    raise _LostError("the consumer gives nothing more, and counts on more")
                continue
            quiet = 0
            if isinstance(item, list):
                singles = requests.reported(item)
                if not singles:
                    continue
                item = Arrived.of(singles)
            else:
                requests.came(len(item))
            reply = item.last
            if reply.consumer_sequence != seen + len(item):
                raise _LostError("deliveries were lost")
            seen, at = reply.consumer_sequence, reply.stream_sequence
            if at > last:
                item = item.first(int(np.searchsorted(item.numbers()[0], last, "right")))
            if len(item):
                yield item
            if at >= last or reply.pending == 0:
                return

    def _next_subject(self, consumer: str) -> str:
        return self.connection.api.subject(f"CONSUMER.MSG.NEXT.{self.stream}.{consumer}")

    def _ask(self, requests: _Requests, inbox: str, name: str, count: int) -> None:
        if not self.connection.client.is_connected:
            raise _LostError("the connection was lost")
        request = {"expires": int(_EXPIRES * 1e9), "idle_heartbeat": int(HEARTBEAT * 1e9)}
        if requests.too_large:
            request["batch"] = count = 1
        else:
            request |= {"batch": count, "max_bytes": self.size}
        body = json.dumps(request).encode()
        reply = f"{inbox}.{requests.ask(count)}".encode()
        subject = self._next_subject(name).encode()
        self.connection.client.write_raw(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body))

    async def _through(self, name: str, seen: int) -> bool:
        """Return whether an idle consumer has no more messages to send.

        Messages that it counted on may have been deleted.
        """
        info = await self.connection.api.consumer_info(self.stream, name)
        if info is None:
            raise _LostError("the consumer was deleted")
        if int(info["delivered"]["consumer_seq"]) < seen:
            raise _LostError("the consumer restarted")
        return int(info["delivered"]["consumer_seq"]) == seen and not info["num_pending"]

    async def _next(self, arrived: asyncio.Queue[_Item]) -> _Item:
        try:
            async with asyncio.timeout(SILENT_BEATS * HEARTBEAT):
                return await arrived.get()
        except TimeoutError:
            raise _LostError("nothing arrives: the server or the stream's leader is away") from None


class _Requests:
    """The open requests, which the server serves one after the other.

    Attributes:
        too_large: whether the next message is larger than the limit of bytes.
    """

    def __init__(self) -> None:
        self.open = 0
        self.too_large = False
        self._number = 0
        self._waiting: deque[tuple[int, int]] = deque()  # number, messages

    def ask(self, count: int) -> int:
        """Note a new request. Return its number."""
        self._number += 1
        self._waiting.append((self._number, count))
        self.open += count
        self.too_large = False
        return self._number

    def came(self, count: int) -> None:
        """Note that `count` messages have arrived."""
        while count and self._waiting:
            number, waiting = self._waiting.popleft()
            served = min(count, waiting)
            count -= served
            self.open -= served
            if served < waiting:
                self._waiting.appendleft((number, waiting - served))

    def reported(self, batch: list[Delivered]) -> list[Delivered]:
        """Return the messages of a batch, without the server's statuses of requests."""
        messages = []
        for message in batch:
            subject, reply, block, _ = message
            if reply:
                messages.append(message)
                self.came(1)
                continue
            status = block[len(_STATUS) : block.find(b"\r\n")]
            if _TOO_LARGE in status:
                self.too_large = True
            elif not status.startswith(_OVER):
                raise _LostError(f"the server ended a request: {status.decode('utf-8', 'replace')}")
            self._ended(int(subject.rpartition(b".")[2]))
        return messages

    def _ended(self, request: int) -> None:
        while self._waiting and self._waiting[0][0] <= request:
            self.open -= self._waiting.popleft()[1]
