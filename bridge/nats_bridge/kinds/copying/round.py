"""One round of an entry: finds the position in the target, and copies from there until the next interruption.

The problem: whenever the state of the target is unknown (a connection broke, an answer did not come, a leader changed),
guessing would lose messages or copy them twice.

The idea: do not guess. The round ends then, even with messages in flight, and the next one reads the newest copies in
the target. So the start of the process and a failure later are the same case. A round is open when it is created and
closed when it ends, and owns its parts: the publisher, whose owner it is; the encoder; and the reader of the source,
whose sink it is (see `BatchSink`). Its states are in `round_life`. State that outlives a round is in `EntryContext`.

Example: the target's connection breaks while messages 501 … 510 are in flight.

```text
event                         state      what the round does
begin                         opening    subscribes to answers; settles what was sent before; reads the position: 500
opened                        copying    reads from 501; encodes, publishes, 501 … 510 in flight
connection lost: interrupted  broken     sends nothing more; what the reader hands on is dropped
                              closed     remembers that 500 is confirmed
begin, connected again        opening    another round: 500 is confirmed, and the target holds 501 … 505 as well
connection lost: interrupted  broken     finishes opening, or raises; nothing is sent, and the round is closed
begin, connected again        opening    the same: 500 is still confirmed
opened                        copying    reads from 501, and sends from 506
```

Invariants:

* Nothing is published before the position is known, nor after the round's end.
* When the position is read, everything that was sent before on this connection is stored, or never will be
  (`last_sequence_behind`).
* Batches are handled one after the other. A dropped batch is read again in the next round.
* A round is closed exactly once, also if it is cancelled while it opens.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.pub_ack import SEALED, SOURCE_RECORD_REFUSED, PubAck
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.waiting import FOUR_A_SECOND
from nats_bridge.client.wire import Delivered
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.consuming.ack_reply import message_sequence
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.errors import ApiError, BridgeError, RuleRefusedError
from nats_bridge.kinds.copying.acknowledging import Acknowledging
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.entry_subjects import EntryPlan, Reading, consumer_filters
from nats_bridge.kinds.copying.object_metadata import ObjectMetadata
from nats_bridge.kinds.copying.position.comparing import Resume
from nats_bridge.kinds.copying.position.entry_streams import LAST_UNKNOWN, EntryStreams, last_sequence_behind
from nats_bridge.kinds.copying.position.resuming import Confirmed, Resuming
from nats_bridge.kinds.copying.round_life import RoundLife
from nats_bridge.kinds.copying.target import RENAMED, CopyEncoder, Operation, Rejected, Special, Target
from nats_bridge.kinds.copying.writing.counting import Counting, turns
from nats_bridge.kinds.copying.writing.dead_letters import DeadLetters
from nats_bridge.kinds.copying.writing.gap_filler import GapFiller
from nats_bridge.kinds.copying.writing.in_flight import Window
from nats_bridge.kinds.copying.writing.publisher import Outlet, Publisher
from nats_bridge.kinds.copying.writing.publishing import Terms
from nats_bridge.observability.rule_metrics import Backlog, RuleMetrics
from nats_transforms.copy_id import entry_key
from nats_transforms.source_record import TWIN_HEADER
from nats_transforms.timestamp import nanoseconds_of

if TYPE_CHECKING:
    from nats_bridge.telemetry.tracing import RuleTracing


_log = structlog.get_logger("bridge.copying")


@dataclass(slots=True)
class EntryContext:
    """The state that the rounds of an entry share.

    Attributes:
        source: the connection that holds the source.
        target: the connection that holds the target.
        metrics: updated with every batch.
        tracing: makes spans around batches, or None.
        fence: checked before anything is written, and before a round begins.
        reader: makes the reader of the source for a round; None for a consumer of the rule.
        backlog: how much waits in the source.
        dead_letters: decides about messages that the target refuses.
        resuming: finds the position of each round, and remembers what earlier rounds have confirmed.
        counting: makes additions of copies; None if the target is not a counter stream.
        acknowledging: acknowledges stored messages to the source; None if the entry does not.
        objects: renames the bucket in the metadata of objects; None if the entry does not.
        stream_position: the position up to which everything is stored, between rounds; None before the first.
        blocked: the stream that does not exist or does not answer, as a phrase; empty for none.
        outlet: the way to the target, which publishers use.
        twin: whether the target only accepts source records under another name.
        warned_of_renamed: whether the log says already that headers are renamed.
    """

    plan: EntryPlan
    source: Connection
    target: Connection
    counters: CopyCounters
    metrics: RuleMetrics
    tracing: RuleTracing | None = None
    fence: WriteFence = ALWAYS_OPEN
    reader: Reader | None = None
    backlog: Backlog = field(init=False)
    dead_letters: DeadLetters = field(init=False)
    resuming: Resuming = field(init=False)
    counting: Counting | None = field(init=False, default=None)
    acknowledging: Acknowledging | None = field(init=False, default=None)
    objects: ObjectMetadata | None = field(init=False, default=None)
    stream_position: StreamPosition | None = field(init=False, default=None)
    blocked: str = field(init=False, default="")
    outlet: Outlet = field(init=False)
    twin: bool = field(init=False, default=False)
    warned_of_renamed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self.backlog = self.metrics.backlog()
        self.outlet = Outlet(self.target, plan.rule, self.counters, self.metrics, self.fence)
        self.dead_letters = DeadLetters(plan, self.target, self.counters, self.fence)
        self.resuming = Resuming(plan)
        if plan.durable:
            self.acknowledging = Acknowledging(plan, self.source, self.counters, self.fence)
        if plan.source.rename_objects:
            self.objects = ObjectMetadata(plan.source.name, plan.stream)

    def target_of(self, info: Json) -> Target:
        """Return the target, by its `STREAM.INFO`."""
        target = Target.of(info, self.target.server_version)
        return replace(target, record_header=TWIN_HEADER) if self.twin else target

    def is_blocked(self, reason: str) -> None:
        """Note that a stream does not answer."""
        self.blocked = reason


class Round:
    """One round: the sink of its reader (see `BatchSink`), and the owner of its publisher. Created by `begin`.

    Args:
        context: the objects that the entry's rounds share.
        streams: the entry's, as they stand.

    Attributes:
        publisher: writes copies.
        encoder: makes them.
        reader: reads the source.
    """

    def __init__(self, context: EntryContext, life: RoundLife, streams: EntryStreams) -> None:
        plan = self.plan = context.plan
        self.life = life
        self._context = context
        self._streams, target = streams, streams.target
        # A skipped message would shift all later numbers, and each addition depends on the previous one.
        one_by_one = (
            plan.one_by_one
            or (target.replicas > 1 and (plan.keep_sequence or target.counts))
            or (plan.keep_sequence and target.full_is_refused)
        )
        self.publisher = Publisher(
            context.outlet,
            target,
            Terms(
                exclusive=plan.exclusive,
                keeps_sequence=plan.keep_sequence,
                one_by_one=math.inf if one_by_one else 1,
            ),
            life,
            self,
            Window.shared(plan.sources, context.target.server_version),
        )
        self.encoder = CopyEncoder(
            plan.sourcing,
            streams.key,
            target,
            context.counters,
            max_payload=context.target.client.max_payload,
            records=not plan.keep_sequence,
        )
        self._gap_filler = (
            GapFiller(plan.rule, plan.source.name, streams.key, plan.filler) if plan.keep_sequence else None
        )
        self.reader = (context.reader or _consumer)(self, streams.source.filters)
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, source=plan.source.name)

    @classmethod
    @contextlib.asynccontextmanager
    async def begin(cls, context: EntryContext, life: RoundLife) -> AsyncIterator[Round]:
        """Open a round, and close it as its state requires.

        Raises:
            BridgeError: the round cannot begin.
        """
        plan, counters = context.plan, context.counters
        counters.rounds += 1
        target_info = await context.target.api.stream_info(plan.stream)
        source_info = await context.source.api.stream_info(plan.source.name)
        filters = plan.filters
        if context.acknowledging is None:
            filters = await consumer_filters(context.source.api, source_info, filters)
        streams = EntryStreams(
            plan.sourcing,
            Replay(context.source.api, plan.source.name, filters, headers_only=True),
            source_info,
            context.target.api,
            target_info,
            context.target_of(target_info),
            LAST_UNKNOWN,
            plan.rule,
        )
        begun = cls(context, life, streams)
        try:
            await begun._open()
            life.happened("opened")
            yield begun
        finally:
            # `end_tasks` cancels again and again, which must not cut the closing short.
            life.closing = asyncio.create_task(begun._close())
            await asyncio.shield(life.closing)

    async def _open(self) -> None:
        """Take the steps from an unknown target to a running reader, in this order.

        1. Subscribe to answers.
        2. Find the target's last sequence, after everything that was sent before.
        3. Decide where to resume, from the copies up to that sequence.
        4. Tell the encoder which messages are stored already, and which source the copies belong to.
        5. Let the reader create its consumer. It can pass on messages before this method ends.

        An interruption does not stop these steps: each one finishes or raises. Nothing is sent after it.
        """
        context, plan = self._context, self.plan
        await self.publisher.open()
        last = await last_sequence_behind(context.target, plan.stream, plan.probe, context.is_blocked)
        context.blocked = ""
        self.publisher.begin(last)
        self._streams = streams = replace(self._streams, last=last)
        resume = await self._resume()
        key = context.resuming.identity.key
        self.encoder.retarget(streams.target, key)
        if self._gap_filler is not None:
            self._gap_filler.key = key
        self.encoder.there = set(resume.there)
        context.stream_position = StreamPosition(
            plan.source.name,
            KnownStream.of(streams.source_info),
            streams.source.filters,
            resume.handled,
            direct=bool(plan.durable),
        )
        await self.reader.open(resume.handled, streams.source_info)
        self._log.info("copying.begins", after_sequence=resume.handled, already_there=len(resume.there))
        first = int(streams.source_info["state"]["first_seq"])
        if 0 < resume.handled < first - 1 and plan.copies_all_of(streams.source_info["config"]):
            self._log.warning("copying.removed_uncopied", after_sequence=resume.handled, first_sequence=first)

    async def _resume(self) -> Resume:
        """Return the point in the source to resume at, based on the target's copies."""
        context, streams, resuming = self._context, self._streams, self._context.resuming
        if self._gap_filler is not None:
            self._gap_filler.follow(streams.last)
        acknowledging = context.acknowledging
        resume = await resuming.position(streams, None if acknowledging is None else acknowledging.position)
        if self._gap_filler is not None:
            return resume  # nothing can be missing, and nothing is added up
        context.counters.out_of_order += resume.missing
        context.counters.shorter_targets += resume.target_lost
        context.counters.shorter_streams += resume.source_lost
        resumes = resuming.same_target and not resume.target_lost
        if not streams.target.counts:
            context.counting = None
            return resume
        if context.counting is None:
            context.counting = Counting(self.plan, context.target.api, context.counters)
        context.counting.begin(streams.target, streams.target_info, resumes=resumes)
        return resume

    async def _close(self) -> None:
        context, life, publisher = self._context, self.life, self.publisher
        if not life.ends:
            life.happened("leave")
        try:
            if life.state != "cut":
                await self._leave_reader()
            if life.state == "draining":
                await self._settled()
                life.happened("leave")
        finally:  # also if this is cancelled, because a cut must not wait for a server
            confirmed = Confirmed(*publisher.confirmed, publisher.placed)
            context.resuming.remember(confirmed, publisher.widest)
            if confirmed.sequence:
                context.stream_position = replace(self.reader.stream_position, handled=confirmed.sequence)
            await publisher.close()
            if life.state == "cut":
                await self.reader.end_at_once()
            life.happened("closed")

    async def _leave_reader(self) -> None:
        try:
            await self.reader.abandon(held=False)
        except (BridgeError, OSError) as error:
            if self.life.state == "draining":
                self._log.error("rule.drain_incomplete", reason=str(error))

    async def _settled(self) -> None:
        """Wait for the answers to sent messages, if the target stores them."""
        while not self.publisher.waiting and self._context.target.client.is_connected:
            try:
                async with asyncio.timeout(FOUR_A_SECOND):
                    await self.publisher.settled()
            except TimeoutError:
                continue
            return

    # -- batches (BatchSink) -----------------------------------------------------------------------------------------

    def accept(self, batch: list[Delivered], gap_after: int | None = None) -> Awaitable[None] | None:
        """Copy a batch; see `BatchSink`."""
        context = self._context
        if self.life.over:
            return None  # it is read again in the next round
        if context.objects is not None:
            batch = context.objects.renamed(batch)
        if context.acknowledging is not None:
            self.encoder.there |= context.acknowledging.copied(batch)
        work = (
            self._copy(batch) if context.tracing is None else context.tracing.around(batch, partial(self._copy, batch))
        )
        return work if context.acknowledging is None else context.acknowledging.accepted(work, self.publisher, batch)

    def vanished(self, messages: int) -> None:
        """Do nothing, because native copying reports nothing either; see `BatchSink`."""

    def confirm(self, reply: bytes) -> Awaitable[None] | None:
        """Acknowledge nothing, because the position is in the target; see `BatchSink`."""
        return None

    async def settled(self) -> None:
        """Wait until everything sent is stored; see `BatchSink`."""
        await self.publisher.settled()

    async def stream_recreated(self, info: Json) -> None:
        """Continue with a new stream of the same name; see `BatchSink`."""
        context, created = self._context, str(info["created"])
        context.resuming.decide_about_recreated(created)
        await self.publisher.source_recreated()
        self.encoder.there.clear()
        target_info = await context.target.api.stream_info(self.plan.stream)
        key, target = entry_key(self.plan.sourcing, created), context.target_of(target_info)
        if target.counts and context.counting is None:
            self.life.interrupt("the target has become a counter stream")
        self.encoder.retarget(target, key)
        context.resuming.source_recreated(info, key, nanoseconds_of(target_info["state"]["last_ts"]))

    async def stream_shortened(self, info: Json, resume_after: int) -> None:
        """Let the next round compare the target with the shortened source; see `BatchSink`."""
        self.life.interrupt("the server lost the end of the source")

    def checked(self) -> None:
        """Do nothing, because a lost connection ends a round that acknowledges; see `BatchSink`."""

    async def read_on(self, info: Json, after: int) -> None:
        """Let the next round compare the target with the source; see `BatchSink`."""
        self.life.interrupt("another client has changed the consumer of the source")

    def _copy(self, batch: list[Delivered]) -> Awaitable[None] | None:
        context, encoder = self._context, self.encoder
        context.counters.received += len(batch)
        oldest_ns = context.metrics.took(batch, context.backlog)
        out: list[Operation] = []
        done, special = encoder.run(batch, out)
        if context.counters.renamed_headers and not context.warned_of_renamed:
            context.warned_of_renamed = True
            self._log.warning("copying.renamed_headers", meaning=RENAMED)
        if out:
            self.publisher.expect(out[-1][0], oldest_ns)
        if special is None and self._gap_filler is None and not encoder.counts:
            return self.publisher.send(out)
        return self._carefully(batch, out, done, special)

    # -- special messages --------------------------------------------------------------------------------------------

    async def _carefully(self, batch: list[Delivered], out: list[Operation], done: int, special: Special) -> None:
        """Send messages that the target may refuse one at a time, so that no later one is stored before the answer."""
        publisher = self.publisher
        send = partial(self._count, batch) if self.encoder.counts else self._send
        while True:
            await send(out)
            if special is None:
                return
            await publisher.settled()
            if not isinstance(special, Rejected):
                await send([special])
                await publisher.settled()
            elif not self.life.over:
                publisher.request_each()  # a dead letter may be stored in the target as well
                await self._context.dead_letters.handle(special)
            else:
                return  # it is neither copied nor a dead letter, so no later message may be stored
            out = []
            done, special = self.encoder.run(batch, out, done)

    async def _count(self, batch: list[Delivered], operations: list[Operation]) -> None:
        """Send additions to counters, each turn when the previous one is settled."""
        counting = self._context.counting
        assert counting is not None, "the round of a counter stream begins with it"
        subjects = {message_sequence(reply): subject for subject, reply, _, _ in batch}
        for turn in turns(operations, self.encoder.id_line):
            if self.life.over:
                return
            try:
                additions = await counting.additions(turn, subjects, self.encoder.limit)
            except ApiError as error:
                if not error.passing:
                    raise
                self.life.interrupt(f"the target's counters cannot be read ({error})")
                return
            await self._add(counting, additions)

    async def _add(self, counting: Counting, additions: list[Operation]) -> None:
        counters = self._context.counters
        before = counters.duplicates, counters.rejected
        await self._send(additions)
        await self.publisher.settled()
        if self.life.over or before != (counters.duplicates, counters.rejected):
            counting.forget()
        else:
            counting.keep()

    async def _send(self, operations: list[Operation]) -> None:
        publisher = self.publisher
        if self._gap_filler is None:
            if waiting := publisher.send(operations):
                await waiting
            return
        filled = 0
        for piece, fills in self._gap_filler.pieces(operations):
            if fills:
                publisher.count_no_copies(piece)
            if waiting := publisher.send(piece):
                await waiting
            if fills:
                filled += len(piece)
        if filled:
            await publisher.settled()
            try:
                await self._context.resuming.remove_fillers(self._context.target.api)
            except ApiError as error:
                if not error.passing:
                    raise
                self.life.interrupt(f"the fillers are not removed yet ({error})")  # the next round begins with that
            self._context.counters.fillers += filled

    # -- stored and refused messages (PublisherOwner) ----------------------------------------------------------------

    def stored(self) -> None:
        """Acknowledge stored messages to the source, if the entry acknowledges; see `PublisherOwner`."""
        if self._context.acknowledging is not None:
            self._context.acknowledging.stored(self.publisher)

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """Let the rule's policy decide; see `PublisherOwner`."""
        plan = self.plan
        if pub_ack.err_code == SOURCE_RECORD_REFUSED and not self._context.twin:
            # In a cluster in the middle of an upgrade, the stream's leader can be newer than the connected server.
            self._context.twin = True
            self.life.interrupt("the target takes no source records of the server's own name")
            return
        if pub_ack.err_code == SEALED:
            # No message's own fault, so not one for the dead letters.
            raise RuleRefusedError(f"rule '{plan.rule}': stream '{plan.stream}' is sealed: it accepts no more messages")
        line, _, rest = operation[1].partition(b"\r\n")
        fields = line.split(b" ")
        size, total = int(fields[-2]), int(fields[-1])
        reason = f"{pub_ack.description} ({pub_ack.err_code})"
        rejected = Rejected(int(operation[0]), fields[1], rest[:size], rest[size:total], reason)
        await self._context.dead_letters.handle(rejected)


Reader: TypeAlias = Callable[[Round, tuple[str, ...]], Reading]
"""Makes the reader of the source for a round, with these filters (none for all)."""


def _consumer(sink: Round, filters: tuple[str, ...]) -> Reading:
    """Return a consumer of the rule."""
    context, plan, life = sink._context, sink.plan, sink.life
    if context.acknowledging is not None:
        return context.acknowledging.reading(sink, life.fail, life.interrupt)
    consumer = RuleConsumer(context.source.api, plan.consumer(filters))
    return OrderedReader(context.source, consumer, sink, context.counters, life.fail)
