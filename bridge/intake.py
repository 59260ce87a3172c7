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
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import structlog

from bridge import replay
from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.counters import RuleCounters
from bridge.errors import ApiError, RuleRefusedError
from bridge.jetstream_api import CONSUMER_IN_USE, STREAM_NOT_FOUND, Json
from bridge.replay import Replay, ephemeral_config
from bridge.republish_loop import AckReply
from bridge.wire import BatchSubscription, Delivered
from transforms import header_block

__all__ = ["BatchSink", "Intake", "IntakePlan"]

_log = structlog.get_logger("bridge.intake")

_SILENT_BEATS = 2.5  # heartbeats missing until something must be wrong
_TAKEOVER = 3.0  # seconds until the server must have noticed that another process is gone
_POLL = 0.05  # seconds between two looks at what the server has not noticed yet
_Item: TypeAlias = list[Delivered] | tuple[bytes, bytes]


class BatchSink(Protocol):
    """Where batches go."""

    def accept(self, batch: list[Delivered], jumped: int) -> Awaitable[None] | None:
        """Take a batch; `jumped` sequences before or in it were never seen. What is returned is awaited first."""

    def confirm(self, reply: bytes) -> Awaitable[None] | None:
        """Acknowledge `reply` as soon as everything accepted so far is confirmed."""

    async def settled(self) -> None:
        """Wait until everything accepted so far is confirmed."""

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
        owner: how the durable consumer's description begins; one that begins otherwise is not ours.
        description: the rest of its description.
        direct: use a consumer that work-queue and interest streams do not count as one of theirs.
    """

    stream: str
    filter_subject: str | None
    headers_only: bool
    position: Literal["none", "sent", "confirmed"]
    durable_name: str
    owner: str
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
        self.attached = False  # whether the consumer is known to be there and to deliver to us
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
        self._opening = False
        self._filling = False
        self._done = 0

    async def durable_position(self) -> int | None:
        """The stream sequence up to which an existing durable consumer is done; None if there is none of ours.

        Raises:
            RuleRefusedError: another process is bound to it, or it was made by somebody else.
            ApiError: the server refuses.
        """
        api, plan = self.link.api, self.plan
        if plan.position == "none":
            return None
        deadline = asyncio.get_running_loop().time() + _TAKEOVER
        # While another process is bound the position moves; one that was killed is noticed after a moment.
        while (info := await api.consumer_info(plan.stream, plan.durable_name)) and info.get("push_bound"):
            if asyncio.get_running_loop().time() > deadline:
                raise self._in_use()
            await asyncio.sleep(_POLL)
        if info is None:
            return None
        if not (said := str(info["config"].get("description", ""))).startswith(plan.owner):
            raise RuleRefusedError(
                f"consumer '{plan.durable_name}' of stream '{plan.stream}' is not this rule's ('{said[:200]}'):"
                " give this sidecar or rule another name, or delete that consumer"
            )
        position = _position_of(info)
        last = int((await api.stream_info(plan.stream))["state"]["last_seq"])
        if position > last:
            _log.warning("intake.stream_shorter", stream=plan.stream, position=position, last_sequence=last)
            await api.delete_consumer(plan.stream, plan.durable_name)
            return last
        return position

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
        self._opening = True
        self._work(self._begin(seeded=True))
        assert self._worker is not None
        await asyncio.shield(self._worker)
        self._opening = False
        self.attached = True
        self._watcher = asyncio.create_task(self._watch())
        self.link.on_disconnect(self._disconnected)
        self.link.on_reconnect(self._reconnected)

    async def close(self) -> None:
        """Stop the server's delivery, hand on everything that it has sent, leave nothing ephemeral behind."""
        await end_tasks(self._watcher)
        if self._subscription is None:
            return
        if self.link.client.is_connected:
            if self.plan.position == "none" and self._consumer:
                await self.link.api.delete_consumer(self.plan.stream, self._consumer)
            await self._subscription.unsubscribe()
            await self.link.flush()
        await self.idle()
        if self.link.client.is_connected and self._consumer and self.plan.position == "sent":
            await self._hand_on_sent()
        await self._subscription.release()

    async def _hand_on_sent(self) -> None:
        """Sent counts as done, so whatever was sent and did not arrive is read again before we go."""
        deadline = asyncio.get_running_loop().time() + _TAKEOVER
        # The server goes on sending to nobody until the consumer has noticed that we are gone.
        while info := await self.link.api.consumer_info(self.plan.stream, self._consumer):
            if not info.get("push_bound") or asyncio.get_running_loop().time() > deadline:
                delivered = info["delivered"]
                await self._fill(int(delivered["stream_seq"]), int(delivered["consumer_seq"]))
                return
            await asyncio.sleep(_POLL / 10)

    async def abandon(self, *, held: bool) -> None:
        """Stop with work in hand, because the target is away; the position goes back to what was written.

        Args:
            held: the last batch handed on has not been written.
        """
        await end_tasks(self._watcher, self._worker)
        self._queue.clear()
        api, plan = self.link.api, self.plan
        reachable = bool(self._consumer) and self.link.client.is_connected
        if reachable and plan.position == "none":
            await api.delete_consumer(plan.stream, self._consumer)
        if self._subscription is not None:
            await self._subscription.release()
        if reachable and plan.position == "sent":
            info = await api.consumer_info(plan.stream, self._consumer)
            if info is None or info["config"].get("deliver_subject") != self._inbox:
                return  # it is no longer ours
            self.handled = self._done if held else self.handled
            await api.delete_consumer(plan.stream, self._consumer)
            await self._create()

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
        try:
            waiting = self._control(reply, block)
        except Exception as error:
            self._failed(error)
            return
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
        jumped = 0 if self.plan.filter_subject or self._filling else last - self.handled - len(batch)
        self._done = self.handled  # whoever hands on has awaited the batch before
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
        missing = Replay(self.link.api, plan.stream, plan.filter_subject, plan.headers_only, plan.direct)
        self._filling = True
        try:
            while self.handled < upto:
                try:
                    async with contextlib.aclosing(missing.between(self.handled + 1, upto)) as batches:
                        async for batch in batches:
                            if plan.position == "confirmed":
                                done = self._counters.received - before + len(batch)
                                batch = self._numbered(batch, min(first - 1 + done, delivered))
                            await self._hand_on_all(batch)
                except ApiError as error:
                    if error.err_code == STREAM_NOT_FOUND:
                        break
                    if not _passing(error):
                        raise
                    _log.warning("intake.waiting", stream=plan.stream, reason=str(error))
                    await asyncio.sleep(_POLL)
                    await self.link.connected()
                else:
                    break
        finally:
            self._filling = False
        found = self._counters.received - before
        self._counters.recovered += found
        self._counters.lost += max(min(delivered - first + 1, upto - start) - found, 0)
        _log.info("intake.recovered", stream=plan.stream, consumer=self._consumer, messages=found, upto=upto)
        self.handled = max(self.handled, upto)
        if plan.position == "confirmed":
            await self._confirm(self._reply(upto, delivered))

    def _reply(self, stream_sequence: int, consumer_sequence: int) -> bytes:
        """What to acknowledge at the durable consumer for a message that did not come from it."""
        return b"$JS.ACK.%b.%b.1.%d.%d.%d.0" % (
            self.plan.stream.encode(),
            self.plan.durable_name.encode(),
            stream_sequence,
            consumer_sequence,
            time.time_ns(),
        )

    def _numbered(self, batch: list[Delivered], consumer_sequence: int) -> list[Delivered]:
        """A batch of a replay whose last reply subject is that of the durable consumer."""
        subject, reply, block, payload = batch[-1]
        ack = AckReply.parse(reply)
        tokens = self._reply(ack.stream_sequence, consumer_sequence).split(b".")
        tokens[-2] = b"%d" % ack.time_ns
        mine = b".".join(tokens)
        if reply.count(b".") != 8:
            # With a domain and an account before the stream, as the rest of the batch has it.
            original = reply.split(b".")
            original[5] = tokens[3]
            original[6:11] = tokens[4:9]
            mine = b".".join(original)
        return [*batch[:-1], (subject, mine, block, payload)]

    # -- the consumer's life -----------------------------------------------------------------------------------------

    async def _begin(self, *, seeded: bool = False) -> None:
        """Attach to the durable consumer or make a consumer, so that deliveries continue after `handled`."""
        plan = self.plan
        info = None
        if plan.position != "none":
            info = await self.link.api.consumer_info(plan.stream, plan.durable_name)
        if info is not None and info["config"].get("ack_policy") == _ACK_POLICY[plan.position]:
            if seeded and plan.position == "sent" and _position_of(info) > self.handled:
                raise self._in_use()  # what moved the position has published up to there
            await self._attach(info)
            state = info["delivered"] if plan.position == "sent" else info["ack_floor"]
            self._next = int(state["consumer_seq"]) + 1
        else:
            if info is not None:
                # The delivery mode changed; the position goes over to a consumer of the other kind.
                await self.link.api.delete_consumer(plan.stream, plan.durable_name)
            info = await self._create() | {"delivered": {"consumer_seq": 0, "stream_seq": 0}}
            self._next = 1
        self._consumer = info["name"]
        self._heard = asyncio.get_running_loop().time()
        # What the durable consumer sent to an earlier process. What it sends now waits in the queue.
        delivered = info["delivered"]
        if int(delivered["consumer_seq"]) >= self._next:
            await self._fill(int(delivered["stream_seq"]), int(delivered["consumer_seq"]))
        self._next = int(delivered["consumer_seq"]) + 1

    async def _attach(self, info: Json) -> None:
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
        config["idle_heartbeat"] = int(replay.HEARTBEAT * 1e9)
        try:
            await self.link.api.create_durable(self.plan.stream, config)
        except ApiError as error:
            if error.err_code == CONSUMER_IN_USE:
                raise self._in_use() from None
            raise

    def _in_use(self) -> RuleRefusedError:
        return RuleRefusedError(
            f"consumer '{self.plan.durable_name}' of stream '{self.plan.stream}' is in use by another process:"
            " stop that one, or give this sidecar or rule another name"
        )

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
            "description": f"{plan.owner}{plan.description}"[:4000],
            "ack_policy": _ACK_POLICY[plan.position],
        }
        if plan.position == "confirmed":
            # Missing deliveries are read again at once, so the server's own redelivery is only a last resort.
            config |= {"ack_wait": 3600 * 10**9, "max_ack_pending": 1_000_000}
        return await self.link.api.create_durable(plan.stream, config)

    def _disconnected(self) -> None:
        self.attached = False

    def _reconnected(self) -> None:
        self._counters.reconnects += 1
        self._look.set()

    async def _watch(self) -> None:
        """Look after the consumer when the connection came back or nothing is heard."""
        while True:
            try:
                async with asyncio.timeout(replay.HEARTBEAT):
                    await self._look.wait()
            except TimeoutError:
                silence = asyncio.get_running_loop().time() - self._heard
                if silence < _SILENT_BEATS * replay.HEARTBEAT:
                    continue
            self._look.clear()
            await self.link.connected()
            # As the worker, so that what arrives meanwhile waits; no await may come between these two lines.
            await self.idle()
            self._work(self._revive())
            await self.idle()

    async def _revive(self) -> None:
        """Whether consumer and stream are still the ones they were; if not, go on with what is there."""
        plan = self.plan
        self.attached = False
        while True:
            try:
                await self._look_after()
            except ApiError as error:
                if error.err_code != STREAM_NOT_FOUND and not _passing(error):
                    raise
                _log.warning("intake.waiting", stream=plan.stream, reason=str(error))
                await asyncio.sleep(replay.HEARTBEAT / 4)
                await self.link.connected()
            else:
                self.attached = True
                return

    async def _look_after(self) -> None:
        api, plan = self.link.api, self.plan
        stream = await api.stream_info(plan.stream)
        last = int(stream["state"]["last_seq"])
        if stream["created"] != self._created:
            self._counters.recreated_streams += 1
            _log.warning("intake.stream_recreated", stream=plan.stream, created=stream["created"])
            await self._sink.settled()
            await self._sink.stream_recreated(stream)
            self._created = stream["created"]
            self.handled = 0
        else:
            info = None
            if plan.direct:
                await api.delete_consumer(plan.stream, self._consumer)  # an old one would keep messages
            else:
                info = await api.consumer_info(plan.stream, self._consumer)
            if last < self.handled:
                # A server lost the end of its store; its next messages have numbers that we have seen.
                _log.warning("intake.stream_shorter", stream=plan.stream, position=self.handled, last_sequence=last)
                if info is not None:
                    await api.delete_consumer(plan.stream, self._consumer)
                self.handled = last
            elif info is not None:
                if info["config"].get("deliver_subject") != self._inbox:
                    raise RuleRefusedError(
                        f"consumer '{self._consumer}' of stream '{plan.stream}' was taken over by another process"
                    )
                self._heard = asyncio.get_running_loop().time()
                return
            self._counters.recreated_consumers += 1
            _log.warning("intake.consumer_recreated", stream=plan.stream, consumer=self._consumer, after=self.handled)
            # The new consumer begins after `handled`, which must not be less than what is confirmed.
            await self._sink.settled()
        await self._begin()


def _passing(error: ApiError) -> bool:
    """Whether a request can succeed a little later: the server restarts, or its cluster has no leader."""
    return error.retriable or error.http_code == 503


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
