"""Runs an advisories rule: publishes JetStream's advisories, with the message they are about if wanted.

Theory of operation. Advisories arrive through a queue group, so that sidecars without leases share them, or from a
stream that captured them (`captured`), and wait in a bounded queue. A window of them is taken from it; the messages
they are about are fetched, all at once; then the window is published in the order of arrival, and confirmed if a stream
stores it, before the next one begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from nats_bridge.client.permission_violations import not_allowed, refused_publication, refused_subscription
from nats_bridge.client.tasks import end_tasks
from nats_bridge.consuming.consumer_plan import consumer_owner, durable_name
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.consuming.percent_names import check_percent
from nats_bridge.consuming.replay import LIMITED
from nats_bridge.errors import ApiError
from nats_bridge.kinds.advisories.advisory import Advisory, advisory_block, attached_block
from nats_bridge.kinds.advisories.captured import CapturedAdvisories
from nats_bridge.kinds.advisories.check import compile_advisories
from nats_bridge.kinds.advisories.confirmed_publisher import ConfirmedPublisher, Outgoing
from nats_bridge.kinds.advisories.copy_search import CopySearch
from nats_bridge.kinds.advisories.counters import AdvisoriesCounters
from nats_bridge.kinds.advisories.message_fetch import MessageFetch
from nats_bridge.kinds.advisories.target_streams import TargetStreams
from nats_bridge.observability.rule_metrics import InFlight
from nats_bridge.rules.context import queue_group
from nats_bridge.rules.reserved_destinations import reserved_remark
from nats_bridge.rules.run import RuleRun

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from nats_bridge.client.connection import Connection
    from nats_bridge.client.wire import BatchSubscription, Delivered
    from nats_bridge.kinds.advisories.model import AdvisoriesRule
    from nats_bridge.rules.context import RuleContext


_MOST_WAITING = 10_000  # advisories that may wait
_WINDOW = 32  # advisories whose messages are fetched and published at a time


class AdvisoriesRun(RuleRun):
    """One advisories rule.

    Args:
        source: the connection that receives the advisories.
        target: the connection to publish on.
    """

    rule: AdvisoriesRule

    def __init__(self, rule: AdvisoriesRule, source: Connection, target: Connection, context: RuleContext) -> None:
        super().__init__(rule, AdvisoriesCounters(), context, "", source, target)
        self._source = source
        self._target = target
        self._fetch = MessageFetch(rule.name, source)
        self._copies = CopySearch(source.api, rule.copies_in)
        self._captured: CapturedAdvisories | None = None
        if rule.captured_by:
            self._captured = CapturedAdvisories(
                source,
                rule.captured_by,
                rule.republish.src,
                durable_name(context.sidecar, rule.name),
                consumer_owner(context.sidecar, rule.name),
                _WINDOW,
                self._on_batch,
                context.fence,
            )
        self._subscription: BatchSubscription | None = None
        self._streams = TargetStreams(rule.name, source, target)
        self._publisher = ConfirmedPublisher(
            rule.name, target, self._streams, self.counters, self.metrics, context.fence
        )
        self._worker: asyncio.Task[None] | None = None
        self._waiting: deque[Delivered] = deque()
        self._window = 0  # advisories in flight
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        # The holder of the lease receives everything, also while a paused replica is still subscribed.
        self._queue = "" if context.has_lease else queue_group(rule.name)

    # -- life --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check the transform, and that streams exist that the rule names.

        Raises:
            ConfigError: the transform is invalid, or its source cannot be subscribed to.
            StreamMissingError: a stream that the rule names does not exist.
        """
        rule = self.rule
        self._republish = compile_advisories(rule, self._context.dialect_at(self._source))
        remark = reserved_remark(self._republish.transform, exclude=self._republish.exclude)
        self.remarks = (remark,) if remark else ()
        if captured := rule.captured_by:
            check_percent(self._source.server_version, f"rule '{rule.name}'", captured, acknowledges=True)
        for stream in dict.fromkeys((*filter(None, (rule.captured_by,)), *rule.copies_in)):
            await existing_stream(self._source, rule.name, stream)

    async def _open(self) -> dict[str, Any]:
        rule = self.rule
        self.metrics.follow(rule.kind, self.counters, lambda: InFlight(len(self._waiting) + self._window))
        self._source.on_reconnect(self._reconnected)
        self._source.on_refusal(self._listening_refused)
        self._target.on_refusal(self._publishing_refused)
        await self._streams.open(self._republish.transform)
        await self._publisher.open()
        if rule.attach_message:
            await self._fetch.open()
        self._worker = asyncio.create_task(self._work())
        if self._captured is not None:
            await self._captured.open()
        else:
            self._subscription = await self._source.client.subscribe_batches(
                rule.republish.src, self._on_batch, queue=self._queue
            )
        await self._source.flush()
        if self.error is not None:
            raise self.error  # the server refuses the subscription
        return {
            "src": rule.republish.src,
            "captured_by": rule.captured_by or "no stream",
            "dest": rule.republish.dest,
            "attach_message": rule.attach_message,
            "stored_by": ", ".join(self._streams.names) or "no stream",
            "queue": self._queue,
        }

    async def _drain(self, *, failed: bool) -> None:
        if self._captured is not None:
            await self._captured.stop()
        if self._subscription is not None:
            await self._subscription.unsubscribe()
            await self._source.flush()  # after the last advisory that the server had sent
            await self._subscription.release()
        while not failed and (self._waiting or self._window) and self.error is None:
            self._idle.clear()
            await self._idle.wait()
        await self._source.flush()  # after the last acknowledgement

    @property
    def ready(self) -> bool:
        """Whether advisories are received, and messages accepted, at this moment."""
        connected = self._source.client.is_connected and self._target.client.is_connected
        return self.state == "ready" and connected and not self._publisher.waits_for

    def _waits_for(self) -> str | None:
        if self._worker is None:
            return "its subscription"
        silent = self._publisher.waits_for or self._fetch.waits_for
        return f"stream '{silent}' to answer" if silent else None

    @property
    def has_work(self) -> bool:
        """Whether advisories are in flight; see `RuleRun`."""
        return bool(self._waiting or self._window)

    def status(self) -> dict[str, Any]:
        """Return the number of waiting advisories, and the stream that does not answer, if any; see `RuleRun`."""
        return {
            "stream": None,
            "position": None,
            "waiting": len(self._waiting) + self._window,
            "waits_for_stream": self._publisher.waits_for or None,
        }

    async def _close(self) -> None:
        await end_tasks(self._worker)
        if self._captured is not None:
            await self._captured.close()  # unfinished advisories are delivered again
        else:
            self.counters.dropped += len(self._waiting) + self._window
        self._waiting.clear()
        self._window = 0
        self._source.forget(self._reconnected, self._listening_refused)
        self._target.forget(self._publishing_refused)
        await self._streams.close()
        await self._fetch.close()
        await self._publisher.close()
        if self._subscription is not None:
            await self._subscription.release()

    # -- from advisories to messages ---------------------------------------------------------------------------------

    def _on_batch(self, batch: list[Delivered]) -> None:
        self.counters.received += len(batch)
        self.metrics.took_published(batch)
        room = _MOST_WAITING - len(self._waiting)
        if room < len(batch):
            self.counters.dropped += len(batch) - max(room, 0)
            self._warn("rule.advisories_dropped", so_far=self.counters.dropped, meaning=f"{_MOST_WAITING} wait already")
        self._waiting.extend(batch[: max(room, 0)])
        self._arrived.set()

    async def _work(self) -> None:
        try:
            while True:
                while not self._waiting:
                    if self._captured is not None:
                        self._captured.want()
                    self._arrived.clear()
                    await self._arrived.wait()
                window = [self._waiting.popleft() for _ in range(min(_WINDOW, len(self._waiting)))]
                self._window = len(window)
                made = await asyncio.gather(*(self._make(subject, payload) for subject, _, _, payload in window))
                messages = [message for message in made if message is not None]
                spans = self._begin_spans(messages)
                await self._publisher.publish(messages)
                for span in spans:
                    span.end()
                if self._captured is not None:
                    self._captured.done(window)
                self._window = 0
                self.metrics.arrived(Advisory.read(window[0][0], window[0][3]).time_ns)
                self.metrics.progressed()
                self._idle.set()
        except Exception as error:
            self._fail(error)
            self._idle.set()

    def _begin_spans(self, messages: list[Outgoing]) -> list[Span]:
        tracing = self._context.tracing
        if tracing is None:
            return []
        # Attached messages carry their producers' trace contexts; advisories have none.
        return tracing.begin([(message.subject, b"", message.block, message.payload) for message in messages])

    async def _make(self, subject: bytes, payload: bytes) -> Outgoing | None:
        """Return the message for an advisory; None if it is dropped and counted."""
        if not self._source.api.reports(payload):
            self.counters.unmatched += 1
            return None
        destination = self._republish.destination(subject)
        if destination is None:
            refusal = self._republish.refusal(subject)
            if refusal is None:
                self.counters.unmatched += 1
            elif refusal.code == "reserved":
                self.counters.reserved += 1
                self._say_reserved(subject, refusal)
            else:
                self.counters.suppressed += 1
            return None
        advisory = Advisory.read(subject, payload)
        if advisory.consumer.startswith(LIMITED):
            self.counters.unmatched += 1
            return None
        # Failures of consumers that read dead letters would return as dead letters again without end.
        if advisory.sequence and self._streams.is_own(advisory.stream, destination):
            self.counters.looped += 1
            self._warn("rule.own_advisory", stream=advisory.stream, so_far=self.counters.looped)
            return None
        if not self.rule.attach_message or not advisory.names_a_message:
            return self._plain(destination, advisory)
        return await self._attached(destination, advisory)

    async def _attached(self, destination: bytes, advisory: Advisory) -> Outgoing:
        headers_only = self.rule.republish.headers_only
        try:
            message = await self._fetch.get(advisory.stream, advisory.sequence)
            message = message or await self._copies.find(advisory.stream, advisory.sequence)
        except ApiError as error:
            self._warn("rule.message_not_readable", stream=advisory.stream, reason=str(error))
            self.counters.messages_gone += 1
            return self._plain(destination, advisory, f"unreadable: {error.description}")
        if message is None:
            self.counters.messages_gone += 1
            return self._plain(destination, advisory, "gone")
        timed = self._republish.dialect.republish_time_stamp
        block = attached_block(advisory, message, timed=timed, headers_only=headers_only)
        payload = b"" if headers_only else message.payload
        if len(block) + len(payload) > self._target.client.max_payload:
            self.counters.too_large += 1
            return self._plain(destination, advisory, "too large")
        self.counters.attached += 1
        return Outgoing(destination, block, payload, self._plain(destination, advisory, "refused by the stream"))

    def _plain(self, destination: bytes, advisory: Advisory, note: str = "") -> Outgoing:
        if self.rule.republish.headers_only:
            return Outgoing(destination, advisory_block(advisory, size=len(advisory.payload), note=note), b"")
        return Outgoing(destination, advisory_block(advisory, note=note), advisory.payload)

    # -- events -------------------------------------------------------------------------------------------------------

    def _reconnected(self) -> None:
        if self.state == "ready":
            self.counters.reconnects += 1

    def _listening_refused(self, text: str) -> None:
        if refused_subscription(text) == self.rule.republish.src.encode():
            self._fail(not_allowed(f"rule '{self.rule.name}'", text, f"subscribe to '{self.rule.republish.src}'"))

    def _publishing_refused(self, text: str) -> None:
        if self._publisher.forbidden(refused_publication(text)):
            self._fail(not_allowed(f"rule '{self.rule.name}'", text, f"publish to '{self.rule.republish.dest}'"))
