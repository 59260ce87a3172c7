"""Publishes in order: with confirmation if a stream stores the subject, without if none does.

A window of messages is written at once and then confirmed. Messages that a stream did not confirm, because it or its
server is away, are written again until it does; the ids of advisories prevent duplicates. A message that a stream
rejects permanently is replaced with its fallback, or given up and counted if it has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.operations import publication
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.raw_requests import RawRequests
from nats_bridge.client.waiting import ANSWER, NOT_STORED
from nats_bridge.client.wire import Delivered
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.kinds.advisories.counters import AdvisoriesCounters
from nats_bridge.kinds.advisories.target_streams import TargetStreams
from nats_bridge.observability.log_throttle import Pace
from nats_bridge.observability.rule_metrics import RuleMetrics

_log = structlog.get_logger("bridge.rule")

_Verdict: TypeAlias = Literal["done", "again", "refused"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish, raw.

    Attributes:
        fallback: the message to publish if the stream refuses this one, or None.
    """

    subject: bytes
    block: bytes
    payload: bytes
    fallback: Outgoing | None = None


class ConfirmedPublisher:
    """Publishes windows of messages, one after the other.

    Args:
        rule: the rule's name, for the log.
        target: the connection to publish on.
        streams: the streams that store its messages.
        fence: checked before a window is written.
    """

    def __init__(
        self,
        rule: str,
        target: Connection,
        streams: TargetStreams,
        counters: AdvisoriesCounters,
        metrics: RuleMetrics,
        fence: WriteFence = ALWAYS_OPEN,
    ) -> None:
        self._fence = fence
        self._target = target
        self._streams = streams
        self._counters = counters
        self._metrics = metrics
        self._requests = RawRequests(target)
        self._log = _log.bind(rule=rule)
        self._pace = Pace()
        self.waits_for = ""  # the stream that does not answer at this moment
        self._in_flight: list[bytes] = []  # subjects of the messages being published
        self._forbidden: set[bytes] = set()  # subjects that the server has refused

    async def open(self) -> None:
        """Subscribe to the answers."""
        await self._requests.open()

    async def close(self) -> None:
        """Stop waiting for answers."""
        await self._requests.close()

    def forbidden(self, subject: bytes) -> bool:
        """Note that the server refuses publications on a subject. Return whether such a message is in flight."""
        ours = subject in self._in_flight  # others publish on this connection as well
        if ours:
            self._forbidden.add(subject)
        return ours

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """Publish in order. Returns when each message is confirmed, or given up and counted."""
        left = list(messages)
        self._in_flight = [message.subject for message in messages]
        attempt = 0
        while left:
            left = await self._attempt(left)
            if not left:
                break
            self.waits_for = self._streams.taker(left[0].subject) or ""
            if self._pace.due():
                self._log.warning(
                    "rule.stream_silent", stream=self.waits_for, messages=len(left), meaning="publishes again"
                )
            attempt += 1
            await NOT_STORED.pause(attempt)
            self._counters.repeated_out += len(left)
        self.waits_for, self._in_flight = "", []

    async def _attempt(self, messages: list[Outgoing]) -> list[Outgoing]:
        """Write all messages. Return those that must be written again."""
        await self._target.connected()
        while not self._fence.is_open:
            await self._fence.opened()
            await self._target.connected()
        messages = [self._fitting(message) for message in messages]
        began = asyncio.get_running_loop().time()
        answers = [self._write(message) for message in messages]
        flushed = await self._target.flush()
        waiting = [answer for answer in answers if answer is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=ANSWER)
        if flushed and all(answer.done() for answer in waiting):
            self._metrics.publish.record(asyncio.get_running_loop().time() - began)
        left: list[Outgoing] = []
        for message, answer in zip(messages, answers, strict=True):
            if answer is None:
                if message.subject in self._forbidden:
                    self._counters.refused += 1
                    continue
                self._counters.republished += 1
                self._counters.in_doubt += not flushed
                continue
            verdict = self._judge(answer.result() if answer.done() else None)
            if not answer.done():
                answer.cancel()
            if verdict == "again":
                left.append(message)
            elif verdict == "done":
                self._counters.republished += 1
            elif message.fallback is not None:
                left.append(message.fallback)
            else:
                self._counters.refused += 1
        return left

    def _fitting(self, message: Outgoing) -> Outgoing:
        """Return the message, or its fallback if the server's maximum payload has become too small for it."""
        if message.fallback is None or len(message.block) + len(message.payload) <= self._target.client.max_payload:
            return message
        self._counters.too_large += 1
        return message.fallback

    def _write(self, message: Outgoing) -> asyncio.Future[Delivered | None] | None:
        self._counters.bytes_out += len(message.block) + len(message.payload)
        if self._streams.taker(message.subject) is not None:
            return self._requests.send(message.subject, message.block, message.payload, self._fence)
        self._target.client.write_raw(publication(message.subject, b"", message.block, message.payload), self._fence)
        return None

    def _judge(self, answer: Delivered | None) -> _Verdict:
        pub_ack = PubAck.of(answer)
        if answer is not None and not (pub_ack.stream or pub_ack.err_code):
            return "done"  # another responder's answer: it was received
        if pub_ack.kind == "later":  # no responder, no leader, no space: it can help to try again
            return "again"
        if pub_ack.kind == "refused":
            self._log.error("rule.refused_by_stream", stream=pub_ack.stream, reason=pub_ack.description)
            return "refused"
        self._counters.stored += 1
        self._counters.duplicates += pub_ack.kind == "duplicate"
        return "done"
