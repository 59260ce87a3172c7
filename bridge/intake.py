"""Intake: one rule's consumer, from which every message comes once and in order, or is counted as missing.

Theory of operation. The consumer is a push consumer with flow control and heartbeats. A durable rule's consumer
keeps the position on the server (`ack_policy: none` for at_most_once: sent is done; `all` for at_least_once). This
module keeps the stream sequence of the last message handed on, and the consumer sequence that must come next:

* the next number arrives: hand the batch on, nothing else to do (the hot path);
* a message that was handed on before arrives again: drop it, count it;
* numbers are missing, or a heartbeat says that the server has sent more than came: read the missing range again from
  the stream with a replay, hand that on, go on. What the stream no longer holds is counted as lost;
* nothing comes, not even heartbeats: see whether the consumer, or the stream, is still the one that it was.

While something must be waited for (a replay, a slow target, a look-up), arriving batches queue; flow control
requests are answered in turn with the batches, so the server stops sending before the queue grows large.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import structlog

from bridge.connection import Link
from bridge.counters import RuleCounters
from bridge.errors import ApiError, BridgeError, RuleRefusedError
from bridge.jetstream_api import CONSUMER_IN_USE, STREAM_NOT_FOUND, Json
from bridge.replay import Replay, ephemeral_config
from bridge.republish_loop import AckReply
from bridge.wire import BatchSubscription, Delivered
from transforms import header_block

__all__ = ["BatchSink", "Intake", "IntakePlan"]

_log = structlog.get_logger("bridge.intake")

_HEARTBEAT = 2.0  # seconds
_Item: TypeAlias = list[Delivered] | tuple[bytes, bytes]


class BatchSink(Protocol):
    """Where batches go."""

    def accept(self, batch: list[Delivered], jumped: int) -> Awaitable[None] | None:
        """Take a batch; `jumped` sequences before or in it were never seen. What is returned is awaited first."""

    async def stream_recreated(self, info: Json) -> None:
        """The stream is a new one of the same name: nothing known of the old one holds."""


@dataclass(frozen=True, slots=True)
class IntakePlan:
    """How a rule reads its stream.

    Attributes:
        stream: its name.
        filter_subject: only these subjects; None for all (then jumps in the sequences mean removed messages).
        headers_only: leave payloads on the server.
        position: `none` (ephemeral), `sent` (durable, moves as messages are sent) or `confirmed` (durable, moves
            with acknowledgements).
        durable_name: the durable consumer's name.
        description: said in the consumer's description.
        direct: use a consumer that work-queue and interest streams do not count as one of theirs.
    """

    stream: str
    filter_subject: str | None
    headers_only: bool
    position: Literal["none", "sent", "confirmed"]
    durable_name: str
    description: str
    direct: bool = False


class Intake:
    """Reads one stream for one rule.

    Args:
        link: the connection that holds the stream.
        plan: how to read.
        sink: where batches go.
        counters: where to count.
        failed: called once with the error that ends the rule.
    """

    def __init__(
        self,
        link: Link,
        plan: IntakePlan,
        sink: BatchSink,
        counters: RuleCounters,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.link = link
        self.plan = plan
        self.handled = 0  # stream sequence of the last message handed on
        self._sink = sink
        self._counters = counters
        self._failed = failed
        self._created = ""
        self._consumer = ""
        self._next = 1  # consumer sequence that must come next
        self._queue: deque[_Item] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._subscription: BatchSubscription | None = None
        self._inbox = ""
        self._heard = 0.0
        self._look = asyncio.Event()
        self._stopping = False

    async def durable_position(self) -> int | None:
        """The stream sequence up to which an existing durable consumer is done; None if there is none of ours."""
        if self.plan.position == "none":
            return None
        info = await self.link.api.consumer_info(self.plan.stream, self.plan.durable_name)
        return None if info is None else _position_of(info)

    async def open(self, handled: int, created: str) -> None:
        """Start delivering what follows stream sequence `handled`; `created` identifies the stream.

        Raises:
            RuleRefusedError: another process is bound to the durable consumer.
            ApiError: the server refuses.
        """
        self.handled = handled
        self._created = created
        self._inbox = self.link.client.new_inbox()
        self._subscription = await self.link.client.subscribe_batches(self._inbox, self._on_batch, self._on_control)
        # Until the consumer's own numbers are known, whatever arrives has to wait.
        self._work(self._begin())
        assert self._worker is not None
        await asyncio.shield(self._worker)
        self._watcher = asyncio.create_task(self._watch())
        self.link.on_reconnect(self._look.set)

    async def close(self) -> None:
        """Stop the server's delivery, hand on everything that it has sent, leave nothing ephemeral behind."""
        self._stopping = True
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        if self._subscription is None:
            return
        if self.link.client.is_connected:
            await self._subscription.unsubscribe()
            await self.link.flush()
        await self.idle()
        if self.link.client.is_connected and self._consumer:
            if self.plan.position == "sent":
                # Sent counts as done, so whatever was sent and did not arrive is read again before we go.
                info = await self.link.api.consumer_info(self.plan.stream, self._consumer)
                if info is not None:
                    await self._fill(int(info["delivered"]["stream_seq"]))
            elif self.plan.position == "none" and not self.plan.direct:
                await self.link.api.delete_consumer(self.plan.stream, self._consumer)
        await self._subscription.release()

    async def idle(self) -> None:
        """Wait until everything that has arrived is handed on."""
        while self._worker is not None:
            await asyncio.shield(self._worker)

    # -- the hot path ------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: list[Delivered]) -> None:
        self._heard = asyncio.get_running_loop().time()
        if self._worker is not None:
            self._queue.append(batch)
            return
        try:
            waiting = self._take(batch)
        except Exception as error:
            self._failed(error)
            return
        if waiting is not None:
            self._work(waiting)

    def _on_control(self, reply: bytes, block: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        if self._worker is not None:
            self._queue.append((reply, block))
            return
        waiting = self._control(reply, block)
        if waiting is not None:
            self._work(waiting)

    def _take(self, batch: list[Delivered]) -> Awaitable[None] | None:
        first = AckReply.parse(batch[0][1])
        last = AckReply.parse(batch[-1][1])
        steps = len(batch) - 1
        if (
            first.consumer_sequence == self._next
            and last.consumer_sequence - first.consumer_sequence == steps
            and first.stream_sequence > self.handled
            and last.stream_sequence - first.stream_sequence >= steps
            and (self.plan.position != "confirmed" or not _any_redelivered(batch))
        ):
            self._next = last.consumer_sequence + 1
            return self._hand_on(batch, last.stream_sequence)
        return self._sort_out(batch)

    def _hand_on(self, batch: list[Delivered], last: int) -> Awaitable[None] | None:
        jumped = 0 if self.plan.filter_subject else last - self.handled - len(batch)
        self.handled = last
        return self._sink.accept(batch, jumped)

    # -- everything else ---------------------------------------------------------------------------------------------

    def _work(self, first: Awaitable[None]) -> None:
        self._worker = asyncio.create_task(self._run(first))

    async def _run(self, first: Awaitable[None]) -> None:
        try:
            await first
            while self._queue:
                item = self._queue.popleft()
                waiting = self._control(*item) if isinstance(item, tuple) else self._take(item)
                if waiting is not None:
                    await waiting
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(error)
            self._queue.clear()
            raise
        finally:
            self._worker = None

    def _control(self, reply: bytes, block: bytes) -> Coroutine[Any, Any, None] | None:
        stalled = header_block.read(block, b"Nats-Consumer-Stalled")
        answer = reply or stalled
        if answer and self.link.client.is_connected:
            self.link.client.write_raw(b"PUB %b 0\r\n\r\n" % answer)
        delivered = header_block.read(block, b"Nats-Last-Consumer")
        if delivered is not None and int(delivered) >= self._next:
            self._counters.gaps += 1
            upto = int(header_block.read(block, b"Nats-Last-Stream") or 0)
            return self._catch_up(upto, int(delivered) + 1)
        return None

    async def _catch_up(self, upto: int, following: int) -> None:
        await self._fill(upto)
        self._next = following

    async def _sort_out(self, batch: list[Delivered]) -> None:
        """A batch that is not simply the next one: drop what was handled, read again what is missing."""
        run: list[Delivered] = []
        for message in batch:
            ack = AckReply.parse(message[1])
            expected = self._next
            self._next = ack.consumer_sequence + 1
            if ack.stream_sequence <= self.handled:
                self._counters.repeated += 1
                continue
            if ack.consumer_sequence != expected or ack.deliveries > 1:
                await self._hand_on_all(run)
                run = []
                self._counters.gaps += 1
                await self._fill(ack.stream_sequence - 1)
            if ack.stream_sequence > self.handled:
                run.append(message)
                if len(run) > 1 and ack.stream_sequence <= AckReply.parse(run[-2][1]).stream_sequence:
                    run.pop()
                    self._counters.repeated += 1
        await self._hand_on_all(run)

    async def _hand_on_all(self, batch: list[Delivered]) -> None:
        if batch:
            waiting = self._hand_on(batch, AckReply.parse(batch[-1][1]).stream_sequence)
            if waiting is not None:
                await waiting

    async def _fill(self, upto: int) -> None:
        """Read (handled, upto] again from the stream."""
        if upto <= self.handled:
            return
        before = self._counters.received
        plan = self.plan
        replay = Replay(self.link.api, plan.stream, plan.filter_subject, plan.headers_only, plan.direct)
        async for batch in replay.between(self.handled + 1, upto):
            await self._hand_on_all(batch)
        found = self._counters.received - before
        self._counters.recovered += found
        if plan.filter_subject is None and self.handled < upto:
            self._counters.lost += upto - self.handled
        _log.info("intake.recovered", stream=plan.stream, consumer=self._consumer, messages=found, upto=upto)
        self.handled = max(self.handled, upto)

    # -- the consumer's life -----------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Attach to the durable consumer or make a consumer, so that deliveries continue after `handled`."""
        plan = self.plan
        info = None
        if plan.position != "none":
            info = await self.link.api.consumer_info(plan.stream, plan.durable_name)
        if info is not None and info["config"].get("ack_policy") == _ACK_POLICY[plan.position]:
            info = await self._attach(info)
        else:
            if info is not None:
                # The delivery mode changed; the position goes over to a consumer of the other kind.
                self.handled = max(self.handled, _position_of(info))
                await self.link.api.delete_consumer(plan.stream, plan.durable_name)
            info = await self._create()
        self._consumer = info["name"]
        delivered = info["delivered"]
        self._next = int(delivered["consumer_seq"]) + 1
        self._heard = asyncio.get_running_loop().time()
        # What the durable consumer sent to an earlier process, or to us before the connection broke.
        if int(delivered["consumer_seq"]):
            await self._fill(int(delivered["stream_seq"]))

    async def _attach(self, info: Json) -> Json:
        config = dict(info["config"])
        config.pop("metadata", None)
        config["deliver_subject"] = self._inbox
        for name, value in (
            ("filter_subject", self.plan.filter_subject),
            ("headers_only", self.plan.headers_only or None),
        ):
            config.pop(name, None)
            if value:
                config[name] = value
        try:
            return await self.link.api.create_durable(self.plan.stream, config)
        except ApiError as error:
            if error.err_code == CONSUMER_IN_USE:
                raise RuleRefusedError(
                    f"consumer '{self.plan.durable_name}' of stream '{self.plan.stream}' is in use by another process:"
                    " stop that one, or give this sidecar or rule another name"
                ) from None
            raise

    async def _create(self) -> Json:
        plan = self.plan
        config = ephemeral_config(
            self._inbox, filter_subject=plan.filter_subject, headers_only=plan.headers_only, direct=plan.direct
        )
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self.handled + 1}
        if plan.position == "none":
            return await self.link.api.create_ephemeral(plan.stream, config)
        for name in ("inactive_threshold", "mem_storage", "num_replicas", "max_deliver"):
            del config[name]
        config |= {
            "durable_name": plan.durable_name,
            "description": plan.description,
            "ack_policy": _ACK_POLICY[plan.position],
        }
        if plan.position == "confirmed":
            # Missing deliveries are read again at once, so the server's own redelivery is only a last resort.
            config |= {"ack_wait": 3600 * 10**9, "max_ack_pending": 1_000_000}
        return await self.link.api.create_durable(plan.stream, config)

    async def _watch(self) -> None:
        """Look after the consumer when the connection came back or nothing is heard."""
        while True:
            try:
                await asyncio.wait_for(self._look.wait(), _HEARTBEAT)
                self._look.clear()
                self._counters.reconnects += 1
            except TimeoutError:
                silence = asyncio.get_running_loop().time() - self._heard
                if silence < 2.5 * _HEARTBEAT:
                    continue
            await self.link.connected()
            await self.idle()
            try:
                await self._revive()
            except ApiError as error:
                _log.warning("intake.waiting", stream=self.plan.stream, reason=str(error))
            except BridgeError as error:
                self._failed(error)
                return

    async def _revive(self) -> None:
        api, plan = self.link.api, self.plan
        try:
            stream = await api.stream_info(plan.stream)
        except ApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                _log.warning("intake.stream_missing", stream=plan.stream)
                return
            raise
        if stream["created"] != self._created:
            self._counters.recreated_streams += 1
            _log.warning("intake.stream_recreated", stream=plan.stream, created=stream["created"])
            self._created = stream["created"]
            self.handled = 0
            await self._sink.stream_recreated(stream)
        else:
            info = None if plan.direct else await api.consumer_info(plan.stream, self._consumer)
            if info is not None:
                if info["config"].get("deliver_subject") != self._inbox:
                    raise RuleRefusedError(
                        f"consumer '{self._consumer}' of stream '{plan.stream}' was taken over by another process"
                    )
                self._heard = asyncio.get_running_loop().time()
                return
            self._counters.recreated_consumers += 1
            _log.warning("intake.consumer_recreated", stream=plan.stream, consumer=self._consumer, after=self.handled)
        self._work(self._begin())
        assert self._worker is not None
        await asyncio.shield(self._worker)


_ACK_POLICY = {"none": "none", "sent": "none", "confirmed": "all"}


def _position_of(info: Json) -> int:
    """The stream sequence up to which a durable consumer of ours is done."""
    config = info["config"]
    state = info["delivered"] if config.get("ack_policy") == "none" else info["ack_floor"]
    if int(state["consumer_seq"]):
        return int(state["stream_seq"])
    return int(config.get("opt_start_seq") or 1) - 1


def _any_redelivered(batch: list[Delivered]) -> bool:
    """Whether a message's delivery count is not 1; the numbers before it are the same in the whole batch."""
    reply = batch[0][1]
    tokens = reply.split(b".")
    opening = b".".join(tokens[: 4 if len(tokens) == 9 else 6]) + b".1."
    return not all(message[1].startswith(opening) for message in batch)
