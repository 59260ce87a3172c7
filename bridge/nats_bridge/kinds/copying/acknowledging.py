"""An entry that acknowledges to its source: `acknowledge: true`, for work-queue and interest streams.

Theory of operation. The position is the set of unacknowledged messages, which a durable consumer of the entry keeps. A
message is acknowledged when everything up to it is stored in the target or has become a dead letter, with a separate
answer for each: an answer for a group can turn out to be wrong, and the source deletes acknowledged messages. A crash
in between leaves messages that are stored but not acknowledged. They were in flight together, so they are among the
entry's newest copies. A round begins by reading these, and acknowledges their messages instead of copying them again.
The id of a copy contains the time stamp of its message, so another message with the same sequence is not mistaken for
it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.wire import Delivered
from nats_bridge.client.write_fence import WriteFence
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.acknowledging_reader import AcknowledgingReader
from nats_bridge.consuming.consumer_plan import Durable, consumer_owner, durable_name
from nats_bridge.consuming.reader import BatchSink
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.entry_subjects import select_all
from nats_bridge.kinds.copying.model import CopyingRule
from nats_bridge.kinds.copying.position.comparing import SourceMessage, is_of
from nats_bridge.kinds.copying.position.entry_streams import StoredCopy
from nats_bridge.kinds.copying.writing.publisher import Publisher
from nats_bridge.settings import Source
from nats_transforms import header_block

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.entry import EntryPlan

_log = structlog.get_logger("bridge.copying")

MOST_PENDING = 16_384
"""Maximum number of unacknowledged messages. At most this many copies are stored but unacknowledged after a crash."""


def durables(rule: CopyingRule, sidecar: str) -> tuple[Durable, ...]:
    """Return the durable consumers of a rule's entries; see `RuleKind.durables`."""
    owner = consumer_owner(sidecar, rule.name)
    return tuple(
        Durable(source.name, source.connection, f"{durable_name(sidecar, rule.name)}_{_selection_id(source)}", owner)
        for source in rule.entries
        if source.acknowledge
    )


def _selection_id(source: Source) -> str:
    transforms = [(each.src, each.dest) for each in source.subject_transforms]
    return hashlib.sha256(json.dumps([source.filter_subject, transforms]).encode()).hexdigest()[:6]


class Acknowledging:
    """The acknowledgements of one entry.

    Args:
        source: the connection that holds the source.
    """

    def __init__(self, plan: EntryPlan, source: Connection, counters: CopyCounters, fence: WriteFence) -> None:
        self._plan = plan
        self._source = source
        self._counters = counters
        self._consumer = RuleConsumer(source.api, plan.consumer(plan.filters), fence)
        self._former = plan.former
        self._copies: dict[int, StoredCopy] = {}
        self._reader: AcknowledgingReader | None = None
        self._done = 0  # the sequence of the last message that was handled: sent, or nothing is to be sent of it
        self._gone_until = 0  # up to this sequence, no consumer has held messages for the rule
        self._gone = 0  # the number of these that are still to come

    async def position(self, copies: dict[int, StoredCopy], source_info: Json) -> int:
        """Return the sequence of the source after which the consumer begins.

        Args:
            copies: the entry's newest copies of this source, by its sequences.
            source_info: the source's `STREAM.INFO`.

        Raises:
            RuleRefusedError: another process reads through the consumer, or it is not the rule's.
            ApiError: a server refuses, or does not answer.
        """
        self._copies, self._done, self._gone_until = copies, 0, 0
        oldest = min(copies, default=1) - 1
        handled = await self._consumer.position(otherwise=oldest)
        former, self._former = self._former, None
        if handled is None and former is not None:
            return former
        if handled is None:
            handled = oldest
            if copies:
                plan = self._plan
                self._counters.recreated_consumers += 1
                _log.warning("reader.consumer_recreated", rule=plan.rule, consumer=plan.durable, after=handled)
                filters = [each.encode() for each in plan.filters]
                if not plan.work_queue and select_all(filters, source_info["config"]):
                    self._gone_until = int(source_info["state"]["last_seq"])
                    self._gone = self._gone_until - handled - len(copies)
        return handled

    def make_reader(
        self, sink: BatchSink, failed: Callable[[BaseException], None], broken: Callable[[str], None]
    ) -> AcknowledgingReader:
        """Return the reader of the source in one round."""
        self._reader = AcknowledgingReader(self._source, self._consumer, sink, self._counters, failed, broken)
        return self._reader

    def copied(self, batch: list[Delivered]) -> set[int]:
        """Return the sequences of a batch whose copies are in the target."""
        copied: set[int] = set()
        newest = max(self._copies, default=0)
        for subject, reply, block, _ in batch if newest else ():
            ack = AckReply.parse(reply)
            copy = self._copies.get(ack.stream_sequence)
            message = SourceMessage(ack.time_ns, b"", header_block.read(block, b"Nats-Msg-Id"))
            if copy is not None and is_of(copy, message):
                copied.add(ack.stream_sequence)
            elif ack.stream_sequence < newest and self._plan.sourcing.destination(subject) is not None:
                self._counters.out_of_order += 1
            self._gone -= copy is None and ack.stream_sequence <= self._gone_until
        if newest and ack.stream_sequence >= max(newest, self._gone_until):
            if self._gone_until:
                # Include messages stored before the new consumer existed, but after the source had reported its end.
                later = (AckReply.parse(reply).stream_sequence for _, reply, _, _ in batch)
                first = next((sequence for sequence in later if sequence > self._gone_until), self._gone_until + 1)
                self._counters.lost += max(self._gone, 0) + first - 1 - self._gone_until
            self._copies = {}
        return copied

    def accepted(self, work: Awaitable[None] | None, publisher: Publisher, batch: list[Delivered]) -> Any:
        """Acknowledge a batch once nothing of it is in flight. `work` is awaited until it is sent."""
        last = AckReply.parse(batch[-1][1]).stream_sequence
        if work is not None:
            return self._accepted_after(work, publisher, last)
        self._done = last
        self.stored(publisher)
        return None

    async def _accepted_after(self, work: Awaitable[None], publisher: Publisher, last: int) -> None:
        await work
        self._done = last
        self.stored(publisher)

    def stored(self, publisher: Publisher) -> None:
        """Acknowledge the messages that are done."""
        if publisher.stopped_sending or self._reader is None:
            return  # unsent messages are not done
        upto = publisher.confirmed[0] if publisher.has_work else max(publisher.confirmed[0], self._done)
        self._counters.acknowledged += self._reader.acknowledge(upto)
