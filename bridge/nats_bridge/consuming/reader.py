"""Reads one stream through a consumer: deliveries arrive, queue, and reach the sink in order.

Theory of operation. The consumer (`rule_consumer`) is a push consumer with flow control and heartbeats. Two cores
without I/O decide. `reader_life` decides whether an item that arrives is delivered at once or joins the queue.
`delivery_order` decides whether a batch is the next one, and which messages are missing if not. This module does the
I/O: it subscribes, delivers, requests and acknowledges. If a batch is the next one, it reaches the sink in one call
(the hot path).

Readers differ in how they handle missing or repeated deliveries, and a consumer that has changed: `ordered_reader`
reads the stream again, `acknowledging_reader` begins another round.

Worked example: a heartbeat every 2 s, and a server that stops without closing its connection.

     0.0 s  the last batch arrives
     4.0 s  no heartbeat: 4.0 s of silence are too few
     6.0 s  2.5 heartbeats or more are missing: an ordered reader checks stream and consumer, once per 5 s
    20.0 s  the server answers; the consumer has sent two more messages, which did not arrive
    20.1 s  its next heartbeat names them: the reader reads them again from the stream

Invariants:

* The sink receives each message once and in order, and the next batch only after it has finished the last one.
* Flow control requests are answered in order with the batches, so the server stops before the queue grows large.
* Messages that arrive after a lost connection are not delivered before consumer and stream have been checked. A reader
  without a position that closes is the exception.
* While the fence is closed nothing is changed on the server, except an ephemeral consumer of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from typing import Any, Protocol

import structlog

from nats_bridge.client import waiting
from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.permission_violations import not_allowed, refused_publication
from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge.client.tasks import end_tasks, task_over
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.consuming.ack_reply import ACK, AckReply, is_flow_control_request
from nats_bridge.consuming.consumer_plan import Edit
from nats_bridge.consuming.delivery_order import (
    CheckStream,
    DeliveryOrder,
    Missing,
    ReaderProgress,
    is_delivery,
    last_named,
    last_sent,
)
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.consuming.lost_end import BeforePauses
from nats_bridge.consuming.reader_life import Queued, ReaderLife
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.errors import ApiError
from nats_bridge.observability.counters import ReaderCounters
from nats_bridge.observability.log_throttle import Pace
from nats_transforms import header_block

_log = structlog.get_logger("bridge.reader")

_SILENT_BEATS = 2.5  # missing heartbeats after which the consumer is checked
_COMPARED_BEATS = 10  # heartbeats after which a consumer's configuration is compared, if nothing else asks for it


class BatchSink(Protocol):
    """Receives batches."""

    def accept(self, batch: list[Delivered], gap_after: int | None) -> Awaitable[None] | None:
        """Handle a batch. The reader awaits the result before the next one.

        Args:
            batch: messages in order.
            gap_after: the last sequence before missing ones, if some before or in the batch never came; None if all
                came, or if a filter hides that.
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
        """Forget the messages read so far. The next one follows `after`, and some before it were left out."""

    async def stream_shortened(self, info: Json, resume_after: int) -> None:
        """Forget the messages read after that sequence. The stream has lost them, and may hold other messages there."""

    def checked(self) -> None:
        """Repeat the last acknowledgement, which may have been lost.

        Stream and consumer are the same as before. If not, this sink was told to forget them.
        """


class Reader(ABC):
    """Reads one stream for one rule.

    Args:
        connection: the connection that holds the stream.
        consumer: what to read through.
        sink: the receiver of the batches.
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
        self.plan = plan = consumer.plan
        self.waits_for = ""  # the request that a server does not answer at this moment
        self._fence = consumer.fence  # another replica may use the durable consumer by now
        self._log = _log.bind(rule=plan.rule, stream=plan.stream)
        self._sink = sink
        self._counters = counters
        self._failed = failed
        self._life = ReaderLife()
        redelivers = plan.position not in ("none", "sent")
        self._order = DeliveryOrder(counters, filtered=bool(plan.filters), redelivers=redelivers)
        self._seen = KnownStream("")  # the stream when its identity was last decided
        self._lives = 0  # how often streams of its name were created since
        self._creations: BatchSubscription | None = None
        self._subscription: BatchSubscription | None = None
        self._context: Context | None = None  # the rule's context, also for actions that a delivery causes
        self._worker: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._check_due = asyncio.Event()
        self._last_read = 0.0
        self._pauses = BeforePauses()
        self._compared_at = 0.0
        self._pace = Pace()
        # The newest delivery, if the consumer waits for acknowledgements; None otherwise.
        self._newest: bytes | None = None

    @property
    def handled(self) -> int:
        """The stream sequence of the last message that was delivered to the sink."""
        return self._order.handled

    @property
    def attached(self) -> bool:
        """Whether the consumer is known to exist and to deliver to the current inbox."""
        known = self._life.state in ("flowing", "busy", "draining", "finishing", "closed")
        return known and not self._life.uncertain and not self.waits_for

    async def open(self, handled: int, info: Json, *, losses: int | None = None) -> None:
        """Start delivering the messages after stream sequence `handled` of the stream with this `STREAM.INFO`.

        Args:
            losses: how often the connection had been lost when `handled` was found; None for as often as now.

        Raises:
            RuleRefusedError: another process is bound to the durable consumer.
            ApiError: the server refuses.
        """
        self._order.handled, self._context = handled, copy_context()
        self._seen = KnownStream.of(info)
        if begins := self.consumer.begins:
            self._seen = self._seen.also(begins)
        created = f"$JS.EVENT.ADVISORY.STREAM.CREATED.{self.plan.stream}"
        self._creations = await self.connection.client.subscribe_batches(created, self._on_creations, lambda *_: None)
        self._life.happened("open")  # until the consumer's own sequences are known, batches have to wait
        if losses is not None and self.connection.is_lost_since(losses):
            self._lost_while_opening()
        self.connection.on_disconnect(self._lost_while_opening)
        try:
            await self._listen()
            await self._begun()
        finally:
            self.connection.forget(self._lost_while_opening)
        self._watcher = asyncio.create_task(self._watch())
        self.connection.on_disconnect(self._disconnected)
        self.connection.on_reconnect(self._reconnected)
        self.connection.on_refusal(self._refused)
        if self._life.uncertain:
            self._check_due.set()

    async def _begun(self) -> None:
        begun = asyncio.Event()
        self._work(self._open(begun))
        assert self._worker is not None
        worker, waiting = self._worker, asyncio.create_task(begun.wait())
        # Not for the worker's end: batches that have arrived since may have to wait for the target.
        try:
            await asyncio.wait({worker, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(waiting)  # also after an interrupted opening
        if not begun.is_set():
            await worker

    def _lost_while_opening(self) -> None:
        self._life.happened("lost")  # the stream may have lost its end since the position was found

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
        self._life.happened("opened")
        begun.set()

    async def close(self) -> None:
        """Stop the server's delivery, and deliver everything that it has sent."""
        self.connection.forget(self._disconnected, self._reconnected, self._refused)
        self._life.happened("close")
        await end_tasks(self._watcher)
        if self._life.queue and self._worker is None:
            self._work(asyncio.sleep(0))  # a worker delivers the items that have waited since a lost connection
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

    async def abandon(self, *, unwritten: bool) -> None:
        """Stop with messages in flight. The next reader gets them again, if the consumer keeps a position.

        Args:
            unwritten: whether the last batch delivered has not been written.
        """
        await self._halt()
        await self._release()

    async def end_at_once(self) -> int:
        """Stop and leave the consumer as it is: another replica may read through it by now.

        Returns:
            The number of messages that the server is known to have sent, but that were not delivered to the sink.
        """
        await self._halt()
        if self._life.state == "opening":  # the consumer's numbers are not known yet
            pending = sum(len(item) for item in self._life.queue if isinstance(item, list))
        else:
            pending = self._order.pending([_last_sent_by(item) for item in self._life.items])
        await self._release()
        return pending

    async def _halt(self) -> None:
        self.connection.forget(self._disconnected, self._reconnected, self._refused)
        await end_tasks(self._watcher, self._worker)

    async def _release(self) -> None:
        self._life.happened("end")
        self._move_checkpoint(self._order.progress)
        for subscription in (self._subscription, self._creations):
            if subscription is not None:
                await subscription.release()

    @property
    def has_work(self) -> bool:
        """Whether messages have arrived that the sink has not received."""
        return self._worker is not None or bool(self._life.items)

    @property
    def known(self) -> KnownStream:
        """The identity of the stream, including the last message read."""
        return self._seen.also(read) if (read := self._newest_read) else self._seen

    @property
    def _newest_read(self) -> MessageStamp | None:
        """The last message that was delivered to the sink; None since the stream or its end was replaced."""
        if not self._order.last_reply:
            return None
        ack = AckReply.parse(self._order.last_reply)
        return MessageStamp(ack.stream_sequence, ack.time_ns)

    @property
    def stream_position(self) -> StreamPosition:
        """The position in the stream; see `nats_bridge.consuming.lag`."""
        plan = self.plan
        return StreamPosition(plan.stream, self.known, plan.filters, self.handled, plan.direct)

    async def undelivered(self) -> int | None:
        """Return the number of undelivered messages, queued here or on the server; see `nats_bridge.consuming.lag`."""
        if not self.attached:
            return None  # the consumer may be another replica's, or have sequences that are unknown here
        info = await self._info()
        if info is None or not self.consumer.delivers_here(info):
            return None
        return int(info["num_pending"]) + max(int(info["delivered"]["consumer_seq"]) + 1 - self._order.next, 0)

    async def idle(self) -> None:
        """Wait until everything that has arrived is delivered."""
        while self._worker is not None:
            await asyncio.shield(self._worker)

    # -- the hot path ------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: list[Delivered]) -> None:
        now = self._last_read = asyncio.get_running_loop().time()
        if self._pauses.ends_with_batch(now):
            self._remember_pause()
        if self._newest is not None and batch[-1][1].startswith(ACK):
            self._newest = batch[-1][1]
            self._report_arrival()
        self._arrived(batch)

    def _remember_pause(self) -> None:
        if self.plan.position in ("sent", "confirmed") and (read := self._newest_read or self.consumer.begins):
            self._pauses.remember(read)

    def _on_control(self, reply: bytes, block: bytes) -> None:
        self._last_read = asyncio.get_running_loop().time()
        self._report_arrival()  # again: it may be lost with a connection
        self._arrived((reply, block))

    def _arrived(self, item: Queued) -> None:
        if self._life.queues:
            self._life.queue.append(item)
            return
        try:
            work = self._take(item)
        except Exception as error:
            self._failed(error)
            return
        if work is not None:
            self._life.happened("wait")
            self._work(work)

    def _take(self, item: Queued) -> Awaitable[None] | None:
        return self._deliver(item) if isinstance(item, list) else self._control(*item)

    def _report_arrival(self) -> None:
        # A consumer without a position uses acknowledgements only to let the server send more.
        if self._newest and self.consumer.has_sent(self._newest):
            self.connection.client.answer(self._newest)

    def _deliver(self, batch: list[Delivered]) -> Awaitable[None] | None:
        if not (batch[0][1].startswith(ACK) and batch[-1][1].startswith(ACK)):
            return self._deliver_own(batch)
        last = self._order.following(batch)
        if last is not None:
            return self._hand_on(batch, last)
        return self._sort_out(batch) if all(map(is_delivery, batch)) else self._deliver_own(batch)

    def _deliver_own(self, batch: list[Delivered]) -> Awaitable[None] | None:
        # Another client has published the others to the inbox. Servers (2.9 to 2.15) let no client publish with such a
        # reply subject as deliveries have.
        own = [message for message in batch if is_delivery(message)]
        self._say_forged(f"{len(batch) - len(own)} messages that are not deliveries")
        return self._deliver(own) if own else None

    def _say_forged(self, what: str) -> None:
        self._log.warning("reader.foreign_publisher", reason=what, meaning="another client publishes to the inbox")

    def _hand_on(self, batch: list[Delivered], last: int, *, again: bool = False) -> Awaitable[None] | None:
        return self._sink.accept(batch, self._order.deliver(batch, last, again=again))

    # -- the worker --------------------------------------------------------------------------------------------------

    def _work(self, first: Awaitable[None]) -> None:
        self._worker = task_over(self._run, first, self._context)

    async def _run(self, first: Awaitable[None]) -> None:
        try:
            await first
            client, durable = self.connection.client, self.plan.position in ("sent", "confirmed")
            while (item := self._life.next_item(connected=client.is_connected, durable=durable)) is not None:
                if item == "check":
                    await self._revive()
                    continue
                work = self._take(item)
                if work is not None:
                    await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if self._life.state == "opening":
                self._life.discard()
                raise  # to the caller of `open`
            self._life.failed()
            self._failed(error)
        finally:
            self._worker = None

    def _control(self, reply: bytes, block: bytes) -> Coroutine[Any, Any, None] | None:
        answer = reply or header_block.read(block, b"Nats-Consumer-Stalled") or b""
        if is_flow_control_request(answer, self.plan.stream.encode()):
            self.connection.client.answer(answer)
        match self._order.heartbeat(block):
            case Missing() as missing:
                return self._catch_up(missing)
            case CheckStream():
                self._check_due.set()
            case None:
                pass
        return None

    async def _hand_on_all(self, batch: list[Delivered], *, again: bool = False) -> None:
        if batch:
            waiting = self._hand_on(batch, AckReply.parse(batch[-1][1]).stream_sequence, again=again)
            if waiting is not None:
                await waiting

    # -- the consumer's life -----------------------------------------------------------------------------------------

    def _disconnected(self) -> None:
        self._life.happened("lost")
        if self.plan.position == "none" and self._subscription is not None and not self.consumer.is_within_limit:
            # Or the old consumer would send too much again as soon as the connection is back.
            self._subscription.forget()
            self._subscription = None

    def _reconnected(self) -> None:
        self._counters.reconnects += 1
        self._check_due.set()

    def _on_creations(self, batch: list[Delivered]) -> None:
        # Checked at once: messages of a stream that is soon deleted again would be lost silently.
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
        """Check stream and consumer whenever something shows that one of them may have changed."""
        while True:
            try:
                async with asyncio.timeout(waiting.HEARTBEAT):
                    await self._check_due.wait()
            except TimeoutError:
                now = asyncio.get_running_loop().time()
                self.connection.api.delivery_limit.look(now)
                is_flowing = not self._is_silent and self.consumer.is_within_limit
                if (
                    is_flowing
                    and not await self._is_edited(now)
                    and not await self._pauses.is_replaced(self.connection.api, self.plan.stream)
                ):
                    continue
            self._check_due.clear()
            await self.connection.connected()
            # Run as the worker, so that arriving batches wait. No await may come between these lines.
            await self.idle()
            self._life.happened("check")
            self._work(self._revive())
            await self.idle()

    def _move_checkpoint(self, to: ReaderProgress) -> None:
        self._sink.vanished(self._order.move_checkpoint(to))
        self._compared_at = asyncio.get_running_loop().time()

    async def _info(self) -> Json | None:
        """Return `CONSUMER.INFO`, and move the checkpoint.

        None without a consumer, or if another client has changed it. The watcher repairs that.
        """
        order = self._order
        checkpoint, progress = order.checkpoint, order.progress
        info = await self.consumer.info(patience=0)
        if info is None or order.checkpoint is not checkpoint:
            return info
        if self.consumer.edits(info):
            self._check_due.set()
            return None
        self._move_checkpoint(progress)
        return info

    def _say_edited(self, edits: Iterable[Edit], **more: Any) -> None:
        for edit in edits:
            span = {"after": self._order.checkpoint.handled, "upto": self.handled, **more}
            self._log.warning("reader.consumer_edited", consumer=self.consumer.name, **edit._asdict(), **span)

    async def _is_edited(self, now: float) -> bool:
        """Return whether another client is known to have changed the consumer; asks the server if that is due."""
        is_due = (
            self._order.jumped > self._order.checkpoint.jumped
            or now - self._compared_at >= _COMPARED_BEATS * waiting.HEARTBEAT
        )
        if not is_due:
            return False
        with contextlib.suppress(ApiError):  # requested again at the next heartbeat
            await self._info()
        return self._check_due.is_set()

    @property
    def _is_silent(self) -> bool:
        return asyncio.get_running_loop().time() - self._last_read >= _SILENT_BEATS * waiting.HEARTBEAT

    @property
    def may_acknowledge(self) -> bool:
        """Whether stream and consumer are known to be the ones that messages were read from.

        After a lost connection they are not known until a check, because the server may have lost the end of the
        stream. An acknowledgement of a lost message would apply to the next message with that sequence.
        """
        return self._life.state != "checking" and not self._life.uncertain

    async def _revive(self) -> None:
        """Check until the server answers."""
        self._life.happened("check")
        while True:
            try:
                await self._check()
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND and self._life.closes:
                    return  # the deleted stream held everything that was to come
                if error.err_code != STREAM_NOT_FOUND and not error.passing:
                    raise
                self._say_waiting(error)
                await asyncio.sleep(waiting.HEARTBEAT / 4)
                await self.connection.connected()
            else:
                self._life.happened("checked")
                self.waits_for = ""
                if self.may_acknowledge:
                    self._sink.checked()
                return

    def _say_waiting(self, error: ApiError) -> None:
        self.waits_for = f"an answer about stream '{self.plan.stream}' ({error})"
        if self._pace.due():
            self._log.warning("reader.waiting", reason=str(error))

    # -- differences between readers ---------------------------------------------------------------------------------

    @abstractmethod
    async def _begin(self, *, seeded: bool = False) -> None:
        """Attach to the durable consumer or create a consumer, so that deliveries continue after `handled`."""

    @abstractmethod
    async def _sort_out(self, batch: list[Delivered]) -> None:
        """Handle a batch that is not simply the next one."""

    @abstractmethod
    async def _catch_up(self, missing: Missing) -> None:
        """Handle deliveries that were sent but did not arrive, as a heartbeat shows."""

    @abstractmethod
    async def _check(self) -> None:
        """Check whether consumer and stream are still the same. If not, continue with the new ones.

        Raises:
            ApiError: the server does not answer, or refuses.
        """


def _last_sent_by(item: Queued) -> int:
    return last_sent(item) if isinstance(item, list) else last_named(item[1])
