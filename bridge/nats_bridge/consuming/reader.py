"""Reads one stream through a consumer: deliveries arrive, queue, and reach the sink in order.

Theory of operation. The consumer (`rule_consumer`) is a push consumer with flow control and heartbeats. A reader keeps
the stream sequence of the last message delivered to the sink, and the next consumer sequence. A batch that follows both
is delivered at once (the hot path). A subclass handles deliveries that are missing or repeated, and checks the consumer
after a reconnect: `ordered_reader` reads the stream again, `acknowledging_reader` begins another round.

One worker at a time: arriving batches queue while the reader waits for a slow target, a request, or a check; flow
control requests are answered in order with the batches, so the server stops sending before the queue grows large.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import structlog

from nats_bridge.client import waiting
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.permission_violations import not_allowed, refused_publication
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge.client.tasks import end_tasks, task_over
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.consuming.ack_reply import ACK, AckReply, asks_for_flow_control, fields_behind
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.consuming.rule_consumer import Edit, RuleConsumer
from nats_bridge.errors import ApiError
from nats_bridge.observability.counters import ReaderCounters
from nats_bridge.observability.log_throttle import Pace
from nats_transforms import header_block

_log = structlog.get_logger("bridge.reader")

_SILENT_BEATS = 2.5  # missing heartbeats after which the consumer is checked
_COMPARED_BEATS = 10  # heartbeats after which a consumer's configuration is compared, if nothing else asks for it
_Item: TypeAlias = list[Delivered] | tuple[bytes, bytes]


class BatchSink(Protocol):
    """Receives batches."""

    def accept(self, batch: list[Delivered], gap_after: int | None) -> Awaitable[None] | None:
        """Handle a batch; the reader awaits the result before the next one.

        Args:
            batch: messages in order.
            gap_after: the last sequence before missing ones, where some before or in the batch never came; None
                where all came, or where a filter makes that unknown.
        """

    def vanished(self, messages: int) -> None:
        """Count sequences that were removed before the consumer reached them."""

    def confirm(self, reply: bytes) -> Awaitable[None] | None:
        """Acknowledge `reply` as soon as everything accepted so far is confirmed."""

    async def settled(self) -> None:
        """Wait until everything accepted so far is confirmed."""

    async def stream_recreated(self, info: Json) -> None:
        """Forget the old stream: it was recreated under the same name."""

    async def read_on(self, info: Json, after: int) -> None:
        """Forget what was read: what follows a sequence comes next, and before it some messages were left out."""

    async def stream_shortened(self, info: Json, resume_after: int) -> None:
        """Forget what was read after that sequence: the stream has lost it, and may hold other messages there."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """Deliveries since the consumer was last known to be as it was created: another client may have changed it since.

    Attributes:
        after: the stream sequence up to which it was.
        messages: how many were delivered.
        jumped: how many sequences were missing where no filter explains it: removed, or selected out by that client.
    """

    after: int
    messages: int = 0
    jumped: int = 0


class Reader(ABC):
    """Reads one stream for one rule.

    Args:
        connection: the connection that holds the stream.
        consumer: what to read through.
        sink: where batches go.
        counters: the rule's counters.
        failed: called once with the error that ends the rule.
    """

    def __init__(
        self,
        connection: Connection,
        consumer: RuleConsumer,
        sink: BatchSink,
        counters: ReaderCounters,
        failed: Callable[[BaseException], None],
    ) -> None:
        self.connection = connection
        self.consumer = consumer
        self._fence = consumer.fence  # another replica may use the durable consumer by now
        self.plan = consumer.plan
        self.handled = 0  # stream sequence of the last message delivered to the sink
        self.attached = False  # whether the consumer is known to exist and to deliver to our inbox
        self.waits_for = ""  # the request that a server does not answer at this moment
        self._log = _log.bind(rule=self.plan.rule, stream=self.plan.stream)
        self._sink = sink
        self._counters = counters
        self._failed = failed
        self._seen = KnownStream("")  # the stream when its identity was last decided
        self._lives = 0  # how often streams of its name were created since
        self._creations: BatchSubscription | None = None
        self._next = 1  # next consumer sequence
        self._sent = 0  # the last consumer sequence known to be sent, of what is being sorted out or read again
        self._queue: deque[_Item | None] = deque()  # None: what follows arrived after the connection was lost
        self._context: Context | None = None  # that of the rule, also for what a delivery makes it do
        self._worker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._subscription: BatchSubscription | None = None
        self._last_read = 0.0
        self._pace = Pace()
        self._check_due = asyncio.Event()
        self._unverified = False  # whether batches wait until it is known that the stream is still what was read
        self._last_reply = b""  # the reply subject of the last message delivered to the sink
        self._opening = False
        self._filling = False  # whether a range is read again: what is missing in it is counted afterwards
        self._gap_after: int | None = None  # sequences after this one are missing, and nothing was delivered since
        self._closing = False
        self._done = 0
        self._unproven = Unproven(0)
        self._messages = self._jumped = 0  # since then
        self._compared_at = 0.0
        self._reports_arrival = False  # whether the consumer waits for that
        self._newest = b""  # what the newest message of such a consumer is acknowledged by

    async def open(self, handled: int, info: Json) -> None:
        """Start delivering what follows stream sequence `handled` of the stream with this `STREAM.INFO`.

        Raises:
            RuleRefusedError: another process is bound to the durable consumer.
            ApiError: the server refuses.
        """
        self.handled, self._context = handled, copy_context()
        self._seen = KnownStream.of(info)
        created = f"$JS.EVENT.ADVISORY.STREAM.CREATED.{self.plan.stream}"
        self._creations = await self.connection.client.subscribe_batches(created, self._on_creations, lambda *_: None)
        await self._listen()
        # Until the consumer's own sequences are known, batches have to wait.
        self._opening = True
        begun = asyncio.Event()
        self._work(self._open(begun))
        assert self._worker is not None
        worker, waiting = self._worker, asyncio.create_task(begun.wait())
        # Not for the worker's end: batches that have arrived since may have to wait for the target.
        await asyncio.wait({worker, waiting}, return_when=asyncio.FIRST_COMPLETED)
        await end_tasks(waiting)
        if not begun.is_set():
            await worker
        self.attached = True
        self._watcher = asyncio.create_task(self._watch())
        self.connection.on_disconnect(self._disconnected)
        self.connection.on_reconnect(self._reconnected)
        self.connection.on_refusal(self._refused)

    async def _listen(self) -> None:
        """Switch to a new delivery inbox."""
        earlier, client = self._subscription, self.connection.client
        inbox = self.consumer.inbox = client.new_inbox()
        self._subscription = await self._subscribe(inbox)
        if earlier is not None:
            await earlier.release()

    def _subscribe(self, inbox: str) -> Awaitable[BatchSubscription]:
        return self.connection.client.subscribe_batches(inbox, self._on_batch, self._on_control)

    async def _open(self, begun: asyncio.Event) -> None:
        await self._begin(seeded=True)
        self._opening = False
        begun.set()

    async def close(self) -> None:
        """Stop the server's delivery, and deliver everything that it has sent."""
        self._closing = True
        self.connection.forget(self._disconnected, self._reconnected, self._refused)
        await end_tasks(self._watcher)
        self._sure()
        if self._subscription is None:  # the limit changed with the last connection: the worker would create a consumer
            await end_tasks(self._worker)
            await self._release()
            return
        if self.connection.client.is_connected:
            if self.plan.position == "none":
                await self.consumer.delete()
            await self._subscription.unsubscribe()
            await self.connection.flush()
        await self.idle()
        await self._release()

    async def abandon(self, *, held: bool) -> None:
        """Stop with messages in flight, because the target is down; they are delivered again to who reads next.

        Args:
            held: the last batch delivered has not been written.
        """
        await self._halt()
        await self._release()

    async def end_at_once(self) -> int:
        """Stop and leave the consumer as it is: another replica may read through it by now.

        Returns:
            How many messages the server is known to have sent, and were not delivered to the sink.
        """
        await self._halt()
        if self._opening:  # its own numbers are not known yet
            pending = sum([len(item) for item in self._queue if isinstance(item, list)])
        else:
            sent = [_sent_by(item) for item in self._queue if item is not None]
            pending = max(self._sent, *sent, self._next - 1) + 1 - self._next
        await self._release()
        return pending

    async def _halt(self) -> None:
        self.connection.forget(self._disconnected, self._reconnected, self._refused)
        await end_tasks(self._watcher, self._worker)

    async def _release(self) -> None:
        self._queue.clear()
        self._prove(self.handled, self._messages, self._jumped)
        for subscription in (self._subscription, self._creations):
            if subscription is not None:
                await subscription.release()

    @property
    def has_work(self) -> bool:
        """Whether messages have arrived that the sink has not received."""
        return self._worker is not None or bool(self._queue)

    @property
    def known(self) -> KnownStream:
        """The stream that is read, with the last message that was."""
        if not self._last_reply:
            return self._seen
        ack = AckReply.parse(self._last_reply)
        return self._seen.also(MessageStamp(ack.stream_sequence, ack.time_ns))

    @property
    def stream_position(self) -> StreamPosition:
        """Its position in the stream; see `nats_bridge.consuming.lag`."""
        plan = self.plan
        return StreamPosition(plan.stream, self.known, plan.filters, self.handled, plan.direct)

    async def not_taken(self) -> int | None:
        """The number of messages not delivered, queued here or on the server; see `nats_bridge.consuming.lag`.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        if not self.attached:
            return None  # the consumer may be another replica's, or have sequences that are unknown here
        info = await self._info()
        if info is None or not self.consumer.delivers_here(info):
            return None
        return int(info["num_pending"]) + max(int(info["delivered"]["consumer_seq"]) + 1 - self._next, 0)

    async def idle(self) -> None:
        """Wait until everything that has arrived is delivered."""
        while self._worker is not None:
            await asyncio.shield(self._worker)

    # -- the hot path ------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: list[Delivered]) -> None:
        self._last_read = asyncio.get_running_loop().time()
        if self._reports_arrival and batch[-1][1].startswith(ACK):
            self._newest = batch[-1][1]
            self._report_arrival()
        if self._worker is not None or self._unverified:
            self._queue.append(batch)
            return
        try:
            waiting = self._deliver(batch)
        except Exception as error:
            self._failed(error)
            return
        if waiting is not None:
            self._work(waiting)

    def _on_control(self, reply: bytes, block: bytes) -> None:
        self._last_read = asyncio.get_running_loop().time()
        if self._reports_arrival:
            self._report_arrival()  # again: it may be lost with a connection
        if self._worker is not None or self._unverified:
            self._queue.append((reply, block))
            return
        try:
            waiting = self._control(reply, block)
        except Exception as error:
            self._failed(error)
            return
        if waiting is not None:
            self._work(waiting)

    def _report_arrival(self) -> None:
        """Let the server send more: a consumer without a position uses the acknowledgement for nothing else."""
        if self._newest and self.consumer.has_sent(self._newest):
            self.connection.client.answer(self._newest)

    def _deliver(self, batch: list[Delivered]) -> Awaitable[None] | None:
        steps = len(batch) - 1
        if not (batch[0][1].startswith(ACK) and batch[-1][1].startswith(ACK)):
            return self._deliver_own(batch)
        first = AckReply.parse(batch[0][1])
        last = AckReply.parse(batch[-1][1]) if steps else first
        if (
            first.consumer_sequence == self._next
            and last.consumer_sequence - first.consumer_sequence == steps
            and first.stream_sequence > self.handled
            and last.stream_sequence - first.stream_sequence >= steps
            and (self.plan.position in ("none", "sent") or not _any_redelivered(batch))
        ):
            self._next = last.consumer_sequence + 1
            return self._hand_on(batch, last.stream_sequence)
        return self._sort_out(batch) if _is_own(batch) else self._deliver_own(batch)

    def _deliver_own(self, batch: list[Delivered]) -> Awaitable[None] | None:
        """Take a batch without messages that another client has published to the inbox.

        Servers (2.9 to 2.15) let no client publish with such a reply subject as deliveries have.
        """
        own = [message for message in batch if message[1].startswith(ACK)]
        self._say_forged(f"{len(batch) - len(own)} messages that are no deliveries")
        return self._deliver(own) if own else None

    def _say_forged(self, what: str) -> None:
        self._log.warning("reader.foreign_publisher", reason=what, meaning="another client publishes to the inbox")

    def _hand_on(self, batch: list[Delivered], last: int) -> Awaitable[None] | None:
        gap_after = None
        if not self.plan.filters:
            if jumped := last - self.handled - len(batch):
                gap_after = self.handled
                if not self._filling:
                    self._jumped += jumped
            if self._gap_after is not None:
                gap_after, self._gap_after = self._gap_after, None
        self._messages += len(batch)
        self._done = self.handled  # the caller has awaited the batch before
        self.handled = last
        self._last_reply = batch[-1][1]
        return self._sink.accept(batch, gap_after)

    # -- the worker --------------------------------------------------------------------------------------------------

    def _work(self, first: Awaitable[None]) -> None:
        self._worker = task_over(self._run, first, self._context)

    async def _run(self, first: Awaitable[None]) -> None:
        try:
            await first
            while self._queue:
                item = self._queue.popleft()
                if item is None:
                    if self.connection.client.is_connected and not self._closing:
                        await self._revive()
                    continue
                waiting = self._control(*item) if isinstance(item, tuple) else self._deliver(item)
                if waiting is not None:
                    await waiting
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._queue.clear()
            if self._opening:
                raise  # to the caller of `open`
            self._failed(error)
        finally:
            self._worker = None

    def _control(self, reply: bytes, block: bytes) -> Coroutine[Any, Any, None] | None:
        answer = reply or header_block.read(block, b"Nats-Consumer-Stalled") or b""
        if asks_for_flow_control(answer, self.plan.stream.encode()):
            self.connection.client.answer(answer)
        delivered = header_block.read(block, b"Nats-Last-Consumer")
        if delivered is not None and int(delivered) < self._next - 1:
            self._check_due.set()  # the consumer has begun again, perhaps with its stream
        if delivered is not None and int(delivered) >= self._next:
            self._counters.gaps += 1
            upto = int(header_block.read(block, b"Nats-Last-Stream") or 0)
            return self._catch_up(upto, int(delivered) + 1)
        return None

    async def _hand_on_all(self, batch: list[Delivered]) -> None:
        if batch:
            waiting = self._hand_on(batch, AckReply.parse(batch[-1][1]).stream_sequence)
            if waiting is not None:
                await waiting

    # -- the consumer's life -----------------------------------------------------------------------------------------

    def _disconnected(self) -> None:
        self.attached, self._unverified = False, True
        if self._worker is not None:
            self._queue.append(None)
        if self.plan.position == "none" and self._subscription is not None and not self.consumer.is_within_limit:
            # Or the old consumer would send too much again as soon as the connection is back.
            self._subscription.forget()
            self._subscription = None

    def _reconnected(self) -> None:
        self._counters.reconnects += 1
        self._check_due.set()

    def _on_creations(self, batch: list[Delivered]) -> None:
        """Check at once: what a stream holds that is soon deleted again would be lost silently."""
        self._lives += sum(self.connection.api.reports(payload) for _, _, _, payload in batch)
        self._check_due.set()

    def _refused(self, text: str) -> None:
        """Fail the rule: without an answer to flow control, or with a fixed position, deliveries would never resume."""
        subject = refused_publication(text)
        prefixes = [f"$JS.FC.{self.plan.stream}."]
        if self.plan.position == "confirmed":
            prefixes.append(f"$JS.ACK.{self.plan.stream}.{self.plan.durable_name}.")
        for prefix in prefixes:
            if subject.startswith(prefix.encode()):
                self._failed(not_allowed(f"stream '{self.plan.stream}'", text, f"publish to '{prefix}>'"))

    async def _watch(self) -> None:
        """Check the consumer after a reconnect, or when heartbeats are missing."""
        while True:
            try:
                async with asyncio.timeout(waiting.HEARTBEAT):
                    await self._check_due.wait()
            except TimeoutError:
                now = asyncio.get_running_loop().time()
                self.connection.api.delivery_limit.look(now)
                is_due = (
                    self._jumped > self._unproven.jumped
                    or now - self._compared_at >= _COMPARED_BEATS * waiting.HEARTBEAT
                )
                if not self._is_silent and self.consumer.is_within_limit and not (is_due and await self._is_edited()):
                    continue
            self._check_due.clear()
            await self.connection.connected()
            # As the worker, so that batches that arrive now wait; no await may come between these lines.
            await self.idle()
            self._unverified = False
            self._work(self._revive())
            await self.idle()

    def _prove(self, upto: int, until: int, jumped: int) -> None:
        """Note that up to a stream sequence all is delivered that there was, and count what had been removed.

        Args:
            upto: the sequence.
            until: how many messages were delivered up to it, as `_messages` counts.
            jumped: how many sequences were missing up to it, as `_jumped` counts.
        """
        self._sink.vanished(jumped - self._unproven.jumped)
        self._unproven = Unproven(upto, until, jumped)
        self._compared_at = asyncio.get_running_loop().time()

    async def _info(self) -> Json | None:
        """`CONSUMER.INFO`; None without a consumer, or if another client has changed it. The watcher repairs that."""
        earlier, before = self._unproven, (self.handled, self._messages, self._jumped)
        info = await self.consumer.info(patience=0)
        if info is None or earlier is not self._unproven:
            return info
        if self.consumer.edits(info):
            self._check_due.set()
            return None
        self._prove(*before)
        return info

    def _say_edited(self, edits: Iterable[Edit], **more: Any) -> None:
        for edit in edits:
            span = {"after": self._unproven.after, "upto": self.handled, **more}
            self._log.warning("reader.consumer_edited", consumer=self.consumer.name, **edit._asdict(), **span)

    async def _is_edited(self) -> bool:
        """Whether another client is known to have changed the consumer."""
        with contextlib.suppress(ApiError):  # asked again at the next heartbeat
            await self._info()
        return self._check_due.is_set()

    def _sure(self) -> None:
        """Deliver what has waited since a reconnect."""
        if self._unverified:
            self._unverified = False
            if self._queue and self._worker is None:
                self._work(asyncio.sleep(0))

    @property
    def _is_silent(self) -> bool:
        """Whether heartbeats are missing."""
        return asyncio.get_running_loop().time() - self._last_read >= _SILENT_BEATS * waiting.HEARTBEAT

    async def _revive(self) -> None:
        """Check until the server answers."""
        self.attached = False
        while True:
            try:
                await self._check()
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND and self._closing:
                    return  # the deleted stream held everything that was to come
                if error.err_code != STREAM_NOT_FOUND and not error.passing:
                    raise
                self._say_waiting(error)
                await asyncio.sleep(waiting.HEARTBEAT / 4)
                await self.connection.connected()
            else:
                self.attached, self.waits_for = True, ""
                return

    def _say_waiting(self, error: ApiError) -> None:
        self.waits_for = f"an answer about stream '{self.plan.stream}' ({error})"
        if self._pace.due():
            self._log.warning("reader.waiting", reason=str(error))

    # -- what readers differ in --------------------------------------------------------------------------------------

    @abstractmethod
    async def _begin(self, *, seeded: bool = False) -> None:
        """Attach to the durable consumer or create a consumer, so that deliveries continue after `handled`."""

    @abstractmethod
    async def _sort_out(self, batch: list[Delivered]) -> None:
        """Handle a batch that is not simply the next one."""

    @abstractmethod
    async def _catch_up(self, upto: int, following: int) -> None:
        """Handle that what was sent up to a stream sequence, and before a consumer sequence, did not arrive."""

    @abstractmethod
    async def _check(self) -> None:
        """Check whether consumer and stream are still the same; if not, continue with the new ones.

        Raises:
            ApiError: the server does not answer, or refuses.
        """


def _sent_by(item: _Item) -> int:
    """The last consumer sequence that a batch or a heartbeat shows to be sent."""
    if isinstance(item, list):
        own = [reply for _, reply, _, _ in item if reply.startswith(ACK)]
        return AckReply.parse(own[-1]).consumer_sequence if own else 0
    return int(header_block.read(item[1], b"Nats-Last-Consumer") or 0)


def _is_own(batch: list[Delivered]) -> bool:
    return all(message[1].startswith(ACK) for message in batch)


def _any_redelivered(batch: list[Delivered]) -> bool:
    """Whether a message's delivery count is not 1; the numbers before it are the same in the whole batch."""
    reply = batch[0][1]
    opening = reply.rsplit(b".", fields_behind(reply) + 1)[0] + b".1."
    return not all(message[1].startswith(opening) for message in batch)
