"""Advisories from a stream that captured them: none is missed while no sidecar runs.

A durable pull consumer of the rule delivers a window at a time, and each advisory is acknowledged once the message made
from it is published. So after a crash at most a window is delivered again, and the ids of advisories keep the dead
letters' stream from storing them twice. Replicas without leases share the consumer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from nats_bridge.client.connection import Connection
from nats_bridge.client.operations import publication
from nats_bridge.client.tasks import end_tasks, happens
from nats_bridge.client.waiting import ANSWER, NO_ANSWER
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.client.write_fence import WriteFence
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.errors import ApiError

_ACK_WAIT: Final = 30.0  # seconds until the server redelivers an advisory that is neither acknowledged nor in progress
_EXPIRES: Final = 20.0  # seconds that a request waits on the server
_NOTHING: Final = (b"NATS/1.0 404", b"NATS/1.0 408")  # statuses: no message, or the request has expired
_BEGINNING: Final = ("deliver_policy", "opt_start_seq", "opt_start_time")
_ACK: Final = b"$JS.ACK."


class CapturedAdvisories:
    """Pulls windows of advisories.

    Args:
        connection: the connection that holds the stream.
        subjects: which advisories.
        description: the description of the consumer, which `clean` recognises.
        most: the maximum number at a time.
        deliver: called with each batch.
        fence: checked before anything is requested or acknowledged.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        subjects: str,
        durable: str,
        description: str,
        most: int,
        deliver: Callable[[list[Delivered]], None],
        fence: WriteFence,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._durable = durable
        self._most = most
        self._deliver = deliver
        self._fence = fence
        self._config = {
            "durable_name": durable,
            "description": description,
            "filter_subject": subjects,
            "ack_policy": "explicit",
            "ack_wait": int(_ACK_WAIT * 1e9),
            "max_ack_pending": 4 * most,
            "deliver_policy": "all",
        }
        self._inbox = b""
        self._subscription: BatchSubscription | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._lost = False  # whether the consumer may no longer exist
        self._done = 0  # the newest acknowledged sequence; windows are finished in order
        self._over = asyncio.Event()  # the present request is answered, or lost
        self._held: dict[int, bytes] = {}  # reply subjects of advisories in flight, by sequence

    async def open(self) -> None:
        """Create the consumer if it does not exist, and begin.

        Raises:
            ApiError: the server refuses.
        """
        await self._create()
        inbox = self._connection.client.new_inbox()
        self._inbox = inbox.encode()
        self._subscription = await self._connection.client.subscribe_batches(inbox, self._arrived)
        await self._connection.flush()
        self._connection.on_disconnect(self._over.set)
        self._wanted.set()
        self._task = asyncio.create_task(self._follow())

    async def _create(self) -> None:
        info = await self._connection.api.consumer_info(self._stream, self._durable)
        begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": self._done + 1} if self._done else {}
        if info is not None:  # the start of a consumer cannot be changed, and need not be
            begin = {name: info["config"][name] for name in _BEGINNING if name in info["config"]}
        if info is None or info["config"].get("filter_subject") != self._config["filter_subject"]:
            self._held.clear()
            await self._connection.api.create_durable(self._stream, self._config | begin, fence=self._fence)

    async def stop(self) -> None:
        """Stop requesting."""
        await end_tasks(self._task)

    async def close(self) -> None:
        """Stop receiving. Unacknowledged advisories are delivered again, to the next replica that requests them."""
        await self.stop()
        self._connection.forget(self._over.set)
        if self._subscription is not None:
            await self._subscription.release()

    def want(self) -> None:
        """Request another window."""
        self._wanted.set()

    def done(self, window: Sequence[Delivered]) -> None:
        """Acknowledge messages that were delivered."""
        sequences = [AckReply.parse(reply).stream_sequence for _, reply, _, _ in window]
        self._done = max(self._done, *sequences)
        replies = [self._held.pop(sequence, message[1]) for sequence, message in zip(sequences, window, strict=True)]
        self._answer(replies, b"+ACK")

    def _answer(self, replies: Iterable[bytes], payload: bytes) -> None:
        if self._connection.client.is_connected and self._fence.is_open:
            written = b"".join(publication(reply, b"", b"", payload) for reply in replies)
            self._connection.client.write_raw(written, self._fence)

    def _arrived(self, batch: list[Delivered]) -> None:
        new: list[Delivered] = []
        for message in batch:
            if message[1].startswith(_ACK):  # otherwise it is a status, such as an expired request
                sequence = AckReply.parse(message[1]).stream_sequence
                if sequence not in self._held:
                    new.append(message)
                self._held[sequence] = message[1]
            elif not message[2].startswith(_NOTHING):
                self._lost = True  # deleted, or its server is away
        if new:
            self._wanted.clear()
            self._deliver(new)
        self._over.set()

    async def _follow(self) -> None:
        while True:
            while not self._wanted.is_set():
                if not await happens(self._wanted, within=_ACK_WAIT / 3) and self._held:
                    self._answer(self._held.values(), b"+WPI")
            await self._connection.connected()
            await self._fence.opened()
            if not self._connection.client.is_connected:
                continue
            if self._lost:
                with contextlib.suppress(ApiError):  # repeated after the next request without an answer
                    await self._create()
                    self._lost = False
            self._over.clear()
            body = b'{"batch":%d,"expires":%d}' % (self._most, int(_EXPIRES * 1e9))
            request = self._connection.api.subject(f"CONSUMER.MSG.NEXT.{self._stream}.{self._durable}").encode()
            self._connection.client.write_raw(publication(request, self._inbox, b"", body), self._fence)
            if not await happens(self._over, within=_EXPIRES + ANSWER):
                self._lost = True
            if self._wanted.is_set():
                await NO_ANSWER.pause()  # a status, or the connection broke
