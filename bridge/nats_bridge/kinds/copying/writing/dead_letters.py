"""Handles a message that the target rejects permanently: the rule stops, or sends it to a dead-letter subject."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.pub_ack import SEALED, PubAck
from nats_bridge.client.raw_requests import RawRequests
from nats_bridge.client.waiting import ANSWER, NO_ANSWER
from nats_bridge.client.write_fence import WriteFence
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.encoder import Operation, Rejected
from nats_bridge.kinds.copying.target import INCREMENT, SCHEDULES, renamed
from nats_transforms import header_block

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.entry import EntryPlan

_log = structlog.get_logger("bridge.copying.dead_letters")


class DeadLetters:
    """The policy of an entry's rule.

    Args:
        connection: the connection of the target.
        fence: checked before anything is published.
    """

    def __init__(self, plan: EntryPlan, connection: Connection, counters: CopyCounters, fence: WriteFence) -> None:
        self._fence = fence
        self._rule, self._source, self._stream, self._skip = plan.rule, plan.source.name, plan.stream, plan.skip
        self._connection = connection
        self._counters = counters
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, source=plan.source.name)

    async def handle(self, rejected: Rejected) -> None:
        """Skip the message or stop the rule, by the policy.

        Raises:
            RuleRefusedError: the policy is to stop, or no stream takes the dead letter.
        """
        where = f"message {rejected.sequence} of stream '{self._source}'"
        if self._skip is None:
            raise RuleRefusedError(
                f"rule '{self._rule}': stream '{self._stream}' refuses {where}: {rejected.reason};"
                " make it fit, exclude it, or set on_rejected: {skip: a.subject}"
            )
        await self._publish(rejected, where)
        self._counters.rejected += 1
        self._log.warning(
            "copying.rejected", sequence=rejected.sequence, reason=rejected.reason, published_to=self._skip
        )

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """Skip the operation of a message that the target refused, or stop the rule.

        Raises:
            RuleRefusedError: the policy is to stop, no stream takes the dead letter, or the target takes no message.
        """
        if pub_ack.err_code == SEALED:
            # No message's own fault, so not one for the dead letters.
            raise RuleRefusedError(
                f"rule '{self._rule}': stream '{self._stream}' is sealed: it accepts no more messages"
            )
        line, _, rest = operation[1].partition(b"\r\n")
        fields = line.split(b" ")
        size, total = int(fields[-2]), int(fields[-1])
        reason = f"{pub_ack.description} ({pub_ack.err_code})"
        await self.handle(Rejected(int(operation[0]), fields[1], rest[:size], rest[size:total], reason))

    async def _publish(self, rejected: Rejected, where: str) -> None:
        connection, requests = self._connection, RawRequests(self._connection)
        await connection.connected()
        await requests.open()
        try:
            while True:
                if await self._is_stored(requests, rejected, where):
                    return
                await NO_ANSWER.pause()
        finally:
            await requests.close()

    async def _is_stored(self, requests: RawRequests, rejected: Rejected, where: str) -> bool:
        """Publish a dead letter. Return whether a stream has stored it or plain subscribers receive it."""
        assert self._skip is not None
        connection = self._connection
        await connection.connected()
        captured = bool(await connection.api.stream_names(subject=self._skip))
        await self._fence.opened()
        if not connection.client.is_connected:
            return False
        answer = requests.send(self._skip.encode(), *self._letter(rejected), self._fence)
        # Without a subscriber the server answers 503 before it answers the flush; plain subscribers do not answer.
        flushed = await connection.flush()
        if not captured and flushed and not answer.done():
            return True
        await asyncio.wait([answer], timeout=ANSWER)
        pub_ack = PubAck.of(answer.result() if answer.done() else None)
        if pub_ack.kind == "refused" or (flushed and not captured and pub_ack.kind == "later"):
            raise RuleRefusedError(
                f"rule '{self._rule}': {where} is rejected ({rejected.reason}), and '{self._skip}', where"
                f" on_rejected sends it, does not take it: {pub_ack.description}"
            )
        return pub_ack.kind in ("stored", "duplicate")

    def _letter(self, rejected: Rejected) -> tuple[bytes, bytes]:
        """Return the dead letter's header block and payload."""
        own_id = header_block.read(rejected.header_block, b"Nats-Msg-Id")
        block = header_block.untraced(rejected.header_block)
        for name in (b"Nats-Stream-Source", b"Nats-Bridge-Source", b"Nats-Msg-Id", b"Nats-Rollup", b"Nats-TTL"):
            block = header_block.remove(block, name)
        for prefix in (b"Nats-Expected-", b"Nats-Batch-"):
            block = header_block.remove_prefix(block, prefix)
        block = renamed(block, (INCREMENT, SCHEDULES))
        lines = [
            # A message may be rejected again after a restart. A stream of dead letters keeps only one of them.
            (b"Nats-Msg-Id", b"rejected-%b-%b-%b" % (self._rule.encode(), self._source.encode(), rejected.identity)),
            (b"Nats-Stream", self._source.encode()),
            (b"Nats-Subject", rejected.subject),
            (b"Nats-Sequence", b"%d" % rejected.sequence),
            (b"Nats-Bridge-Rejected", rejected.reason.encode()),
        ]
        if own_id is not None:
            lines.append((b"Nats-Bridge-Msg-Id", own_id))
        payload = rejected.payload
        if len(block) + len(payload) + 1024 > self._connection.client.max_payload:
            lines.append((b"Nats-Msg-Size", b"%d" % len(payload)))
            payload = b""
        return header_block.append(block, lines), payload
