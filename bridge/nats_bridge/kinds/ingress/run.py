"""Runs an ingress rule: publishers' messages go to the stream on their transformed subjects.

Theory of operation. The rule subscribes to `src` in a separate queue group, so that sidecars without leases share the
messages. It publishes each with the publisher's reply subject, so the stream answers the publisher itself. The
subscription exists exactly while the stream can store its messages. Without the subscription the server answers
publishers "no responders" at once, as for a stream that does not exist, so no message is received only to be lost.

As with any subscription, delivery is at most once: no message is written twice.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from functools import partial
from typing import Any

from nats_bridge.client.connection import Connection
from nats_bridge.client.permission_violations import not_allowed, refused_publication, refused_subscription
from nats_bridge.client.stream_advisories import StreamEvents
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import NO_ANSWER, WITHOUT_ADVISORY
from nats_bridge.client.wire import BatchSubscription, Delivered
from nats_bridge.errors import ApiError, BridgeError, NotPermittedError
from nats_bridge.kinds.ingress.check import IngressTarget, compile_ingress, read_stream
from nats_bridge.kinds.ingress.encoder import IngressCounters, IngressEncoder
from nats_bridge.kinds.ingress.model import SubjectTransformRule
from nats_bridge.observability.rule_metrics import InFlight
from nats_bridge.rules.context import RuleContext, queue_group
from nats_bridge.rules.delivery import CorePublisher
from nats_bridge.rules.run import RuleRun
from nats_transforms.subject import matches

_MOST_WAITING = 64 << 20  # bytes that may wait to be written


class IngressRun(RuleRun):
    """One ingress rule.

    Args:
        connection: the connection of publishers and stream.
    """

    rule: SubjectTransformRule

    def __init__(self, rule: SubjectTransformRule, connection: Connection, context: RuleContext) -> None:
        super().__init__(rule, IngressCounters(), context, rule.stream, connection)
        self._connection = connection
        self._target: IngressTarget | None = None
        self._paused_because = ""
        self._events = StreamEvents(connection)
        self._subscription: BatchSubscription | None = None
        self._delivery = CorePublisher(connection, self.counters, None, self.metrics, context.fence)
        self._watcher: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[list[bytes], int]] = deque()
        self._waiting_bytes = 0
        self._held = 0  # messages of the batch that is being written
        # The holder of the lease receives everything, also while a paused replica is still subscribed.
        self._queue = "" if context.has_lease else queue_group(rule.name)

    # -- life --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check the transform and the streams. Create nothing on a server.

        Raises:
            ConfigError: the transform is invalid, or its source cannot be subscribed to.
            StreamMissingError: the stream does not exist.
            RuleRefusedError: the stream does not store the destination, or another stream stores the source already.
        """
        inboxes = self._connection.client.new_inbox().rpartition(".")[0]
        self._transform = compile_ingress(self.rule, self._context.dialect_at(self._connection), inboxes)
        self._target = await read_stream(self.rule, self._transform, self._connection)

    async def _open(self) -> dict[str, Any]:
        assert self._target is not None
        transform = self.rule.subject_transform
        self._encoder = IngressEncoder(
            self._transform, transform.src.encode(), self.rule.stream, self._target.subjects, self.counters
        )
        self._delivery.start()
        self.metrics.follow(self.rule.kind, self.counters, self._in_flight)
        self._connection.on_reconnect(self._reconnected)
        self._connection.on_refusal(self._refused)
        await self._events.open()
        await self._subscribe()
        if self.error is not None:
            raise self.error  # the server refuses the subscription
        self._watcher = asyncio.create_task(self._watch())
        self._say_own_transform()
        return {
            "src": transform.src,
            "dest": transform.dest,
            "queue": self._queue,
            "dialect": self._transform.dialect.name,
        }

    async def _drain(self, *, failed: bool) -> None:
        await end_tasks(self._watcher)
        await self._events.close()
        await self._unsubscribe()
        await self._delivery.settled()

    async def _close(self) -> None:
        await end_tasks(self._watcher, self._writer)
        await self._events.close()
        if self._subscription is not None:
            await self._subscription.release()
        await self._delivery.stop()
        self._connection.forget(self._reconnected, self._refused)

    def _unfinished(self) -> int:
        held = self._held if self._delivery.held else 0
        return held + sum(len(operations) for operations, _ in self._waiting)

    @property
    def ready(self) -> bool:
        """Whether publishers' messages reach the stream at this moment."""
        return self.state == "ready" and self._subscription is not None and self._connection.client.is_connected

    def _waits_for(self) -> str | None:
        if self._paused_because:
            return f"its stream: {self._paused_because}"
        return "its subscription" if self.state == "starting" else self._delivery.waiting_for

    @property
    def has_work(self) -> bool:
        """Whether messages are in flight; see `RuleRun`."""
        return self._writer is not None or bool(self._waiting) or self._delivery.has_work

    def status(self) -> dict[str, Any]:
        """Return the stream, and the reason if the rule receives no messages; see `RuleRun`."""
        return {"stream": self.rule.stream, "position": None, "paused_because": self._paused_because or None}

    # -- messages ----------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: list[Delivered]) -> None:
        tracing = self._context.tracing
        if tracing is not None:
            tracing.around(batch, partial(self._take, batch))
        else:
            self._take(batch)

    def _take(self, batch: list[Delivered]) -> None:
        self.metrics.took_published(batch)
        if self._waiting_bytes > _MOST_WAITING:
            self.counters.received += len(batch)
            self.counters.overloaded += len(batch)
            self._warn(
                "rule.overloaded", so_far=self.counters.overloaded, meaning="the server accepts messages too slowly"
            )
            return
        refused = self.counters.refused
        out: list[bytes] = []
        self._encoder.run(batch, out)
        if self.counters.refused != refused:
            self._warn("rule.message_refused", reason=self._encoder.last_refusal, so_far=self.counters.refused)
        if out:
            self._write(out)
        else:
            self.metrics.progressed()

    def _write(self, operations: list[bytes]) -> None:
        if self._writer is not None:
            size = sum(map(len, operations))
            self._waiting.append((operations, size))
            self._waiting_bytes += size
            return
        first = self._delivery.send(operations, b"")
        if first is not None:
            self._held = len(operations)
            self._writer = asyncio.create_task(self._write_waiting(first))

    async def _write_waiting(self, first: Awaitable[None]) -> None:
        waiting: Awaitable[None] | None = first
        try:
            while waiting is not None or self._waiting:
                if waiting is not None:
                    await waiting
                self._held, waiting = 0, None
                if self._waiting:
                    operations, size = self._waiting.popleft()
                    self._waiting_bytes -= size
                    self._held = len(operations)
                    waiting = self._delivery.send(operations, b"")
        finally:
            self._writer = None

    def _in_flight(self) -> InFlight:
        return InFlight(
            self._delivery.in_flight.messages + sum([len(operations) for operations, _ in tuple(self._waiting)])
        )

    # -- the subscription --------------------------------------------------------------------------------------------

    async def _subscribe(self) -> None:
        self._subscription = await self._connection.client.subscribe_batches(
            self.rule.subject_transform.src, self._on_batch, queue=self._queue
        )
        await self._connection.flush()

    async def _unsubscribe(self) -> None:
        """Let the server send to other subscribers, and write all messages that it has already sent."""
        subscription = self._subscription
        if subscription is None:
            return
        await subscription.unsubscribe()
        await self._connection.flush()  # after the last message that the server had sent
        self._subscription = None
        await subscription.release()
        while self._writer is not None:
            await asyncio.shield(self._writer)

    async def _watch(self) -> None:
        """Keep the subscription exactly while the stream can take the messages."""
        patience = WITHOUT_ADVISORY
        while True:
            await self._events.next(patience)
            await self._connection.connected()
            patience = WITHOUT_ADVISORY
            try:
                target = await read_stream(self.rule, self._transform, self._connection)
            except NotPermittedError as error:
                self._fail(error)
                return
            except ApiError as error:
                # A server that has just started, or a cluster without a leader: no statement about the stream.
                self._warn("rule.stream_not_seen", reason=str(error))
                patience = NO_ANSWER.after()
            except BridgeError as error:
                await self._pause(str(error))
            else:
                await self._resume_with(target)

    async def _pause(self, reason: str) -> None:
        if reason != self._paused_because:
            self._paused_because = reason
            self._log.warning("rule.waiting", reason=reason, meaning="publishers get 'no responders'")
        if self._subscription is not None:
            self._happened("paused")
            self.counters.pauses += 1
            await self._unsubscribe()

    async def _resume_with(self, target: IngressTarget) -> None:
        if target != self._target:
            self._target = target
            self._encoder.take(target.subjects)
            self._say_own_transform()
        if self._subscription is None:
            await self._subscribe()
            if self.error is None:
                self._happened("resumed")
                self._paused_because = ""
                self._log.info("rule.ready", again=True)

    def _say_own_transform(self) -> None:
        if self._target is not None and self._target.own_transform:
            self._log.warning(
                "rule.second_transform",
                native=self._target.own_transform,
                meaning="the stream's own subject_transform acts on what this rule publishes",
            )

    # -- events ------------------------------------------------------------------------------------------------------

    def _reconnected(self) -> None:
        if self.state in ("ready", "waiting"):
            self.counters.reconnects += 1

    def _refused(self, text: str) -> None:
        rule, subject = self.rule, refused_publication(text)
        subjects = self._target.subjects if self._target is not None else ()
        # Others publish on this connection as well.
        if subject and any(matches(subject, own) for own in subjects):
            advice = f"publish to the subjects of stream '{rule.stream}'"
        elif refused_subscription(text) == rule.subject_transform.src.encode():
            advice = f"subscribe to '{rule.subject_transform.src}'"
            advice += f" with queue group '{self._queue}'" if self._queue else ""
        else:
            return
        self._fail(not_allowed(f"rule '{rule.name}'", text, advice))
