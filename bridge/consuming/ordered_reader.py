"""Intake: one rule's consumer, from which every message comes once and in order, or is counted as missing.

Theory of operation. The consumer (`rule_consumer`) is a push consumer with flow control and heartbeats. This module
keeps the stream sequence of the last message handed on, and the consumer sequence that must come next:

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
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

import structlog

from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.bridge.client.permission_violations import refused_publication
from nats_bridge.bridge.client.settled_stream import settled_stream
from nats_bridge.bridge.client.tasks import end_tasks, task_over
from nats_bridge.bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.bridge.client.write_fence import ALWAYS_OPEN, Gate
from nats_bridge.bridge.consuming import replay
from nats_bridge.bridge.consuming.ack_reply import AckReply
from nats_bridge.bridge.consuming.counters import IntakeCounters
from nats_bridge.bridge.consuming.lag import Standpoint
from nats_bridge.bridge.consuming.replay import Replay
from nats_bridge.bridge.consuming.rule_consumer import TAKEOVER, RuleConsumer
from nats_bridge.bridge.errors import ApiError, RuleRefusedError
from nats_bridge.bridge.observability.log_throttle import Pace
from nats_bridge.transforms import header_block

__all__ = ["BatchSink", "Intake"]

_log = structlog.get_logger("bridge.intake")

_SILENT_BEATS = 2.5  # heartbeats missing until something must be wrong
_POLL = 0.05  # seconds until a request that the server could not answer is made again
_LONGEST_POLL = 1.0  # the same, after some tries
_LEAVING_POLL = 0.005  # seconds between two looks at whether the server has noticed that we are gone
_Item: TypeAlias = list[Delivered] | tuple[bytes, bytes]


class BatchSink(Protocol):
    """Where batches go."""

    def accept(self, batch: list[Delivered], gap_after: int | None) -> Awaitable[None] | None:
        """Take a batch. What is returned is awaited first.

        Args:
            batch: messages in order.
            gap_after: where sequences before or in it never came, the last one before them; None where all came, or
                where a filter lets nobody tell.
        """

    def vanished(self, messages: int) -> None:
        """So many sequences were gone before the consumer reached them."""

    def confirm(self, reply: bytes) -> Awaitable[None] | None:
        """Acknowledge `reply` as soon as everything accepted so far is confirmed."""

    async def settled(self) -> None:
        """Wait until everything accepted so far is confirmed."""

    async def stream_recreated(self, info: Json) -> None:
        """The stream is a new one of the same name: nothing known of the old one holds."""


class Intake:
    """Reads one stream for one rule.

    Args:
        link: the connection that holds the stream.
        consumer: what to read through.
        sink: where batches go.
        counters: where to count.
        failed: called once with the error that ends the rule.
        gate: asked before the durable consumer is touched: it may be another replica's by now.
    """

    def __init__(
        self,
        link: Link,
        consumer: RuleConsumer,
        sink: BatchSink,
        counters: IntakeCounters,
        failed: Callable[[BaseException], None],
        gate: Gate = ALWAYS_OPEN,
    ) -> None:
        self.link = link
        self._gate = gate
        self.consumer = consumer
        self.plan = consumer.plan
        self.handled = 0  # stream sequence of the last message handed on
        self.attached = False  # whether the consumer is known to be there and to deliver to us
        self.waits_for = ""  # what a server does not answer at this moment
        self._log = _log.bind(rule=self.plan.rule, stream=self.plan.stream)
        self._sink = sink
        self._counters = counters
        self._failed = failed
        self._created = ""
        self._next = 1  # consumer sequence that must come next
        self._queue: deque[_Item] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._subscription: BatchSubscription | None = None
        self._heard = 0.0
        self._pace = Pace()
        self._look = asyncio.Event()
        self._opening = False
        self._filling = False
        self._gap_after: int | None = None  # sequences behind this one are missing, and nothing was handed on since
        self._closing = False
        self._done = 0
        self._tells_arrival = False  # whether the consumer waits for that
        self._newest = b""  # what the newest message of such a consumer is acknowledged by

    async def open(self, handled: int, created: str) -> None:
        """Start delivering what follows stream sequence `handled`; `created` identifies the stream.

        Raises:
            RuleRefusedError: another process is bound to the durable consumer.
            ApiError: the server refuses.
        """
        self.handled = handled
        self._created = created
        await self._listen()
        # Until the consumer's own numbers are known, whatever arrives has to wait.
        self._opening = True
        begun = asyncio.Event()
        self._work(self._open(begun))
        assert self._worker is not None
        worker, waiting = self._worker, asyncio.create_task(begun.wait())
        # Not for the worker's end: what has arrived meanwhile may have to wait for the target.
        await asyncio.wait({worker, waiting}, return_when=asyncio.FIRST_COMPLETED)
        await end_tasks(waiting)
        if not begun.is_set():
            await worker
        self.attached = True
        self._watcher = asyncio.create_task(self._watch())
        self.link.on_disconnect(self._disconnected)
        self.link.on_reconnect(self._reconnected)
        self.link.on_refusal(self._refused)

    async def _listen(self) -> None:
        """Hear from a new inbox, and no more from the one before."""
        earlier, client = self._subscription, self.link.client
        inbox = self.consumer.inbox = client.new_inbox()
        self._subscription = await client.subscribe_batches(inbox, self._on_batch, self._on_control)
        if earlier is not None:
            await earlier.release()

    async def _listen_again(self) -> None:
        """Let the server see that nobody listens at the inbox, and then that somebody does.

        Where a connection breaks while a server (2.9 to 2.15) sends, and the subscription is back before it has noticed
        that it could not deliver, it takes the listener for gone and is told of no change: it would never send again.
        """
        assert self._subscription is not None
        await self._subscription.release()
        self._subscription = await self.link.client.subscribe_batches(
            self.consumer.inbox, self._on_batch, self._on_control
        )

    async def _open(self, begun: asyncio.Event) -> None:
        await self._begin(seeded=True)
        self._opening = False
        begun.set()

    async def close(self) -> None:
        """Stop the server's delivery, hand on everything that it has sent, leave nothing ephemeral behind."""
        self._closing = True
        self.link.forget(self._disconnected, self._reconnected, self._refused)
        await end_tasks(self._watcher)
        if self._subscription is None:
            return
        if self.link.client.is_connected:
            if self.plan.position == "none":
                await self.consumer.delete()
            await self._subscription.unsubscribe()
            await self.link.flush()
        await self.idle()
        if self.plan.position == "sent":
            if self.link.client.is_connected:
                await self._hand_on_sent()
            else:
                self._log.error(
                    "rule.drain_incomplete",
                    reason="the server is away: what it had sent and what did not arrive is not published",
                )
        await self._subscription.release()

    async def _hand_on_sent(self) -> None:
        """Sent counts as done, so whatever was sent and did not arrive is read again before we go."""
        deadline = asyncio.get_running_loop().time() + TAKEOVER
        # The server goes on sending to nobody until the consumer has noticed that we are gone.
        while info := await self.consumer.info():
            if not info.get("push_bound") or asyncio.get_running_loop().time() > deadline:
                delivered = info["delivered"]
                await self._fill(int(delivered["stream_seq"]), int(delivered["consumer_seq"]))
                return
            await asyncio.sleep(_LEAVING_POLL)

    async def abandon(self, *, held: bool) -> None:
        """Stop with work in hand, because the target is away; the position goes back to what was written.

        Args:
            held: the last batch handed on has not been written.
        """
        self.link.forget(self._disconnected, self._reconnected, self._refused)
        await end_tasks(self._watcher, self._worker)
        self._queue.clear()
        position, consumer = self.plan.position, self.consumer
        if self._subscription is not None:
            await self._subscription.release()
        if position == "none" and self.link.client.is_connected:
            await consumer.delete()
        if position == "sent" and self.link.client.is_connected and self._gate.is_open:
            info = await consumer.info()
            if info is None or not consumer.delivers_here(info):
                return  # it is no longer ours
            self.handled = self._done if held else self.handled
            await consumer.delete()
            await consumer.create(self.handled)

    async def end_at_once(self) -> int:
        """Stop and leave the consumer as it is: somebody else may read through it by now.

        Returns:
            How many messages have arrived, or are missing behind one that has, and were not handed on.
        """
        self.link.forget(self._disconnected, self._reconnected, self._refused)
        await end_tasks(self._watcher, self._worker)
        batches = [item for item in self._queue if isinstance(item, list)]
        left = 0
        if batches and self._opening:
            left = sum(map(len, batches))  # its own numbers are not known yet
        elif batches:
            left = max(AckReply.parse(batches[-1][-1][1]).consumer_sequence + 1 - self._next, 0)
        self._queue.clear()
        if self._subscription is not None:
            await self._subscription.release()
        return left

    @property
    def has_work(self) -> bool:
        """Whether something that has arrived is not handed on."""
        return self._worker is not None or bool(self._queue)

    @property
    def standpoint(self) -> Standpoint:
        """Where it stands in the stream; see `bridge.consuming.lag`."""
        plan = self.plan
        return Standpoint(plan.stream, self._created, plan.filters, self.handled, plan.direct)

    async def not_taken(self) -> int | None:
        """How many messages were not handed on, whether they are here or with the server; see `bridge.consuming.lag`.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        if not self.attached:
            return None  # the consumer may be another's, or have numbers that we do not know
        info = await self.consumer.info(patience=0)
        if info is None or not self.consumer.delivers_here(info):
            return None
        return int(info["num_pending"]) + max(int(info["delivered"]["consumer_seq"]) + 1 - self._next, 0)

    async def idle(self) -> None:
        """Wait until everything that has arrived is handed on."""
        while self._worker is not None:
            await asyncio.shield(self._worker)

    # -- the hot path ------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: list[Delivered]) -> None:
        self._heard = asyncio.get_running_loop().time()
        if self._tells_arrival:
            self._newest = batch[-1][1]
            self._tell_arrival()
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
        if self._tells_arrival:
            self._tell_arrival()  # once more: it may have gone with a connection
        if self._worker is not None:
            self._queue.append((reply, block))
            return
        try:
            waiting = self._control(reply, block)
        except Exception as error:
            self._failed(error)
            return
        if waiting is not None:
            self._work(waiting)

    def _tell_arrival(self) -> None:
        """Let the server send more; what a consumer without a position is told says no more than that."""
        if self._newest and self.link.client.is_connected:
            self.link.client.write_raw(b"PUB %b 0\r\n\r\n" % self._newest)

    def _take(self, batch: list[Delivered]) -> Awaitable[None] | None:
        first = AckReply.parse(batch[0][1])
        steps = len(batch) - 1
        last = AckReply.parse(batch[-1][1]) if steps else first
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
        gap_after = None
        if not self.plan.filters:
            if jumped := last - self.handled - len(batch):
                gap_after = self.handled
                if not self._filling:
                    self._sink.vanished(jumped)
            if self._gap_after is not None:
                gap_after, self._gap_after = self._gap_after, None
        self._done = self.handled  # whoever hands on has awaited the batch before
        self.handled = last
        return self._sink.accept(batch, gap_after)

    # -- everything else ---------------------------------------------------------------------------------------------

    def _work(self, first: Awaitable[None]) -> None:
        self._worker = task_over(self._run, first)

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
            self._queue.clear()
            if self._opening:
                raise  # to whoever opens
            self._failed(error)
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
        await self._fill(upto, following - 1)
        self._next = following

    async def _sort_out(self, batch: list[Delivered]) -> None:
        """A batch that is not simply the next one: drop what was handled, read again what is missing."""
        run: list[Delivered] = []
        repeated = b""
        for message in batch:
            ack = AckReply.parse(message[1])
            last = AckReply.parse(run[-1][1]).stream_sequence if run else self.handled
            if ack.stream_sequence <= last:
                self._counters.repeated += 1
                repeated = message[1]
            elif ack.consumer_sequence != self._next or ack.deliveries > 1:
                await self._hand_on_all(run)
                self._counters.gaps += 1
                await self._fill(ack.stream_sequence - 1, ack.consumer_sequence - 1)
                run = [message]
            else:
                run.append(message)
            self._next = ack.consumer_sequence + 1
        await self._hand_on_all(run)
        if repeated and not run and self.plan.position == "confirmed":
            # Its first acknowledgement may not have reached the server.
            await self._confirm(repeated)

    async def _hand_on_all(self, batch: list[Delivered]) -> None:
        if batch:
            waiting = self._hand_on(batch, AckReply.parse(batch[-1][1]).stream_sequence)
            if waiting is not None:
                await waiting

    async def _confirm(self, reply: bytes) -> None:
        waiting = self._sink.confirm(reply)
        if waiting is not None:
            await waiting

    async def _fill(self, upto: int, delivered: int) -> None:
        """Read (handled, upto] again from the stream.

        Args:
            upto: the last stream sequence of what is missing.
            delivered: the consumer sequence that its delivery had; those from `_next` on are the missing ones.
        """
        if upto <= self.handled:
            return
        before, start, first = self._counters.received, self.handled, self._next
        plan = self.plan
        missing = Replay(self.link.api, plan.stream, plan.filters, plan.headers_only, plan.direct)
        self._filling = True
        attached, pause = self.attached, _POLL
        try:
            while self.handled < upto:
                try:
                    async with contextlib.aclosing(missing.between(self.handled + 1, upto)) as batches:
                        async for batch in batches:
                            if plan.position == "confirmed":
                                done = self._counters.received - before + len(batch)
                                batch = self.consumer.numbered(batch, min(first - 1 + done, delivered))
                            await self._hand_on_all(batch)
                except ApiError as error:
                    if error.err_code == STREAM_NOT_FOUND:
                        break
                    if not error.passing:
                        raise
                    self.attached = False
                    self._say_waiting(error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_POLL)
                    await self.link.connected()
                else:
                    break
        finally:
            self._filling, self.waits_for = False, ""
        self.attached = attached
        found = self._counters.received - before
        self._counters.recovered += found
        lost = max(min(delivered - first + 1, upto - start) - found, 0)
        self._counters.lost += lost
        self._log.info("intake.recovered", consumer=self.consumer.name, messages=found, upto=upto)
        if not plan.filters:
            self._sink.vanished(upto - start - found - lost)
            if self.handled < upto and self._gap_after is None:
                self._gap_after = self.handled
        self.handled = max(self.handled, upto)
        if plan.position == "confirmed":
            await self._confirm(self.consumer.reply(upto, delivered))

    # -- the consumer's life -----------------------------------------------------------------------------------------

    async def _begin(self, *, seeded: bool = False) -> None:
        """Attach to the durable consumer or make a consumer, so that deliveries continue after `handled`."""
        info = await self.consumer.take_over(self.handled if seeded else None)
        if info is not None:
            state = info["delivered"] if self.plan.position == "sent" else info["ack_floor"]
            self._next = int(state["consumer_seq"]) + 1
            delivered = info["delivered"]
        else:
            self._newest = b""
            await self.consumer.create(self.handled)
            self._tells_arrival = self.plan.position == "none" and self.consumer.limit is not None
            self._next = 1
            delivered = {"consumer_seq": 0, "stream_seq": 0}
        self._heard = asyncio.get_running_loop().time()
        # What the durable consumer sent to an earlier process. What it sends now waits in the queue.
        if int(delivered["consumer_seq"]) >= self._next:
            await self._fill(int(delivered["stream_seq"]), int(delivered["consumer_seq"]))
        self._next = int(delivered["consumer_seq"]) + 1

    def _disconnected(self) -> None:
        self.attached = False
        if self.plan.position == "none" and self._subscription is not None and not self.consumer.is_within_limit:
            # Or the old consumer would send too much again as soon as the connection is back.
            self._subscription.forget()
            self._subscription = None

    def _reconnected(self) -> None:
        self._counters.reconnects += 1
        self._look.set()

    def _refused(self, text: str) -> None:
        """Without an answer to flow control, or with a position that cannot move, nothing would ever come again."""
        subject = refused_publication(text)
        prefixes = [f"$JS.FC.{self.plan.stream}."]
        if self.plan.position == "confirmed":
            prefixes.append(f"$JS.ACK.{self.plan.stream}.")
        for prefix in prefixes:
            if subject.startswith(prefix.lower().encode()):
                self._failed(
                    RuleRefusedError(
                        f"stream '{self.plan.stream}': the server refuses a publication ({text}):"
                        f" allow the user to publish to '{prefix}>'"
                    )
                )

    async def _watch(self) -> None:
        """Look after the consumer when the connection came back or nothing is heard."""
        while True:
            try:
                async with asyncio.timeout(replay.HEARTBEAT):
                    await self._look.wait()
            except TimeoutError:
                self.link.api.delivery_limit.look(asyncio.get_running_loop().time())
                if not self._is_silent and self.consumer.is_within_limit:
                    continue
            self._look.clear()
            await self.link.connected()
            # As the worker, so that what arrives meanwhile waits; no await may come between these two lines.
            await self.idle()
            self._work(self._revive())
            await self.idle()

    @property
    def _is_silent(self) -> bool:
        """Whether heartbeats are missing."""
        return asyncio.get_running_loop().time() - self._heard >= _SILENT_BEATS * replay.HEARTBEAT

    async def _revive(self) -> None:
        """Whether consumer and stream are still the ones they were; if not, go on with what is there."""
        self.attached = False
        while True:
            try:
                await self._look_after()
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND and self._closing:
                    return  # with the stream, everything that it had for us is gone
                if error.err_code != STREAM_NOT_FOUND and not error.passing:
                    raise
                self._say_waiting(error)
                await asyncio.sleep(replay.HEARTBEAT / 4)
                await self.link.connected()
            else:
                self.attached, self.waits_for = True, ""
                return

    def _say_waiting(self, error: ApiError) -> None:
        self.waits_for = f"an answer about stream '{self.plan.stream}' ({error})"
        if self._pace.due():
            self._log.warning("intake.waiting", reason=str(error))

    async def _look_after(self) -> None:
        plan, consumer = self.plan, self.consumer
        # Another replica may have taken over; then this one is ended, and must not call it a fault.
        await self._gate.opened()
        if self._subscription is None:
            await self._listen()
        stream = await settled_stream(self.link.api, plan.stream, self.handled, self._created)
        last = int(stream["state"]["last_seq"])
        if stream["created"] != self._created:
            self._counters.recreated_streams += 1
            self._log.warning("intake.stream_recreated", created=stream["created"])
            await self._sink.settled()
            await self._sink.stream_recreated(stream)
            self._created = stream["created"]
            self.handled, self._gap_after = 0, None
        else:
            info = None
            if plan.direct:
                await consumer.delete()  # an old one would keep messages
            else:
                info = await self._consumer_info()
            if last < self.handled:
                # A server lost the end of its store; its next messages have numbers that we have seen.
                self._log.warning("intake.stream_shorter", position=self.handled, last_sequence=last)
                if info is not None:
                    await consumer.delete()
                self.handled, self._gap_after = last, None
            elif info is not None:
                if not consumer.delivers_here(info):
                    if not self._gate.is_open:
                        await self._look_after()
                        return
                    raise RuleRefusedError(
                        f"consumer '{consumer.name}' of stream '{plan.stream}' was taken over by another process"
                    )
                if self._is_silent and not info.get("push_bound"):
                    self._log.warning("intake.unbound", consumer=consumer.name)
                    await self._listen_again()
                if not consumer.is_within_limit:
                    await consumer.keep_limit(info)
                self._heard = asyncio.get_running_loop().time()
                return
            self._counters.recreated_consumers += 1
            self._log.warning("intake.consumer_recreated", consumer=consumer.name, after=self.handled)
            # The new consumer begins after `handled`, which must not be less than what is confirmed.
            await self._sink.settled()
        await self._begin()

    async def _consumer_info(self) -> Json | None:
        """What the consumer is; None if it is gone, or if it is better to make another one."""
        consumer = self.consumer
        if self.plan.position != "none":
            return await consumer.info()
        # An ephemeral consumer lives on one server of a cluster.
        try:
            info = await consumer.info(patience=0)
            if info is not None and not (consumer.is_within_limit and consumer.delivers_here(info)):
                reason = "it sends more or less ahead than the connection takes"
            elif info is None or int(info["delivered"]["consumer_seq"]) >= self._next - 1:
                return info
            else:
                reason = "its server has started again, and it begins where it began before"
            await consumer.delete()
        except ApiError as error:
            reason = str(error)  # nobody answers for it while that server is away, though the stream goes on elsewhere
        self._log.warning("intake.consumer_away", consumer=consumer.name, reason=reason)
        # What the old one may yet send must not mix with what its successor sends.
        await self._listen()
        self._queue.clear()
        return None


def _any_redelivered(batch: list[Delivered]) -> bool:
    """Whether a message's delivery count is not 1; the numbers before it are the same in the whole batch."""
    reply = batch[0][1]
    tokens = reply.split(b".")
    opening = b".".join(tokens[: 4 if len(tokens) == 9 else 6]) + b".1."
    return not all(message[1].startswith(opening) for message in batch)
