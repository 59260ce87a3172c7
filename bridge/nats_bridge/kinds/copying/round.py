"""One round of an entry: finds the position in the target, and copies from there until the next interruption.

The problem: whenever the state of the target is unknown (a connection broke, an answer did not come, a leader changed),
guessing would lose messages or copy them twice.

The idea: do not guess. The round ends then, even with messages in flight, and the next one reads the newest copies in
the target. So the start of the process and a failure later are the same case. A round is created, opens, and is closed
when it ends. It owns its parts: the publisher, whose owner it is; the encoder; and the reader of the source,
whose sink it is (see `BatchSink`). Its states are in `ROUND`. State that outlives a round is in `EntryContext`.

Example: the target's connection breaks while messages 501 … 510 are in flight.

```text
event                         state      what the round does
begin                         opening    subscribes to answers; settles messages sent before; reads the position: 500
opened                        copying    reads from 501; encodes, publishes, 501 … 510 in flight
connection lost: interrupted  broken     sends nothing more; batches of the reader are dropped
                              closed     remembers that 500 is confirmed
begin, connected again        opening    another round: 500 is confirmed, and the target holds 501 … 505 as well
connection lost: interrupted  broken     finishes opening, or raises; nothing is sent, and the round is closed
begin, connected again        opening    the same: 500 is still confirmed
opened                        copying    reads from 501, and sends from 506: 501 … 505 are stored
```

Invariants:

* Nothing is published before the position is known, nor after the round's end.
* When the position is read, everything that was sent before is stored, or never will be (`last_sequence_after_sent`). A
  copy that another server of a cluster still forwards is refused by its message id.
* Batches are handled one after the other. A dropped batch is read again in the next round.
* A round is closed exactly once, also if it is cancelled while it opens.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import structlog

from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.pub_ack import SOURCE_RECORD_REFUSED, PubAck
from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.waiting import EVERY_SECOND, FOUR_A_SECOND
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.errors import ApiError, BridgeError
from nats_bridge.kinds.copying.encoder import CopyEncoder, Operation
from nats_bridge.kinds.copying.position.comparing import Resume
from nats_bridge.kinds.copying.position.confirmed import Confirmed, Placed, holds
from nats_bridge.kinds.copying.position.entry_streams import LAST_UNKNOWN, EntryStreams, last_sequence_after_sent
from nats_bridge.kinds.copying.target import RENAMED
from nats_bridge.kinds.copying.writing.careful_sending import CarefulSending
from nats_bridge.kinds.copying.writing.counting import Counting
from nats_bridge.kinds.copying.writing.gap_filler import GapFiller
from nats_bridge.kinds.copying.writing.in_flight import Window
from nats_bridge.kinds.copying.writing.publisher import Publisher
from nats_bridge.kinds.copying.writing.publishing import Terms
from nats_bridge.states import StateTable
from nats_transforms.copy_id import entry_key
from nats_transforms.timestamp import nanoseconds_of

if TYPE_CHECKING:
    from nats_bridge.kinds.copying.entry import EntryContext, SourceReader

_log = structlog.get_logger("bridge.copying")


RoundState: TypeAlias = Literal["opening", "copying", "broken", "failed", "draining", "leaving", "cut", "closed"]
RoundEvent: TypeAlias = Literal["opened", "interrupted", "failed", "drain", "leave", "cut", "closed"]

ROUND: StateTable[RoundState, RoundEvent] = StateTable(
    """
              opened    interrupted  failed   drain     leave    cut  closed
    opening   copying   broken       failed   leaving   leaving  cut  -
    copying   -         broken       failed   draining  leaving  cut  -
    broken    broken    broken       failed   leaving   leaving  cut  closed
    failed    failed    failed       failed   failed    failed   cut  closed
    draining  -         leaving      failed   draining  leaving  cut  closed
    leaving   leaving   leaving      leaving  leaving   leaving  cut  closed
    cut       cut       cut          cut      cut       cut      cut  closed
    closed    -         closed       closed   closed    closed   closed  -
    """
)
"""A round is `opening` until its reader runs, and sends the first messages already then. After that it is `copying`.

`broken`: it is unknown what the target or the reader has, so the next round begins. `failed`: an error ends the rule.
`draining`: the round stops reading and awaits messages in flight. `leaving`: it does not await them. `cut`: another
replica may write by now, so nothing is sent to any server. In all states but the first two the round ends. The
publisher sends only in the first two and in `draining`.
"""

_SENDING = frozenset({"opening", "copying", "draining"})


class RoundLife:
    """The state of one round.

    Args:
        interrupted: called with the reason when the next round has to find out what is stored.
        failed: called with the error that ends the rule.

    Attributes:
        stopped_sending: whether nothing more is sent.
        closing: the task that closes the round, once closing began.
    """

    def __init__(self, interrupted: Callable[[str], None], failed: Callable[[BaseException], None]) -> None:
        self.state: RoundState = "opening"
        self.stopped_sending = False
        self.closing: asyncio.Task[None] | None = None
        self._interrupted = interrupted
        self._failed = failed
        self._must_close = asyncio.Event()
        self._when_sending_stops: list[Callable[[], None]] = []

    def when_sending_stops(self, call: Callable[[], None]) -> None:
        """Call something as soon as nothing more is sent."""
        self._when_sending_stops.append(call)

    def happened(self, event: RoundEvent) -> None:
        """Move to the next state.

        Raises:
            IllegalTransitionError: the event must not happen now.
        """
        self.state = ROUND.after(self.state, event)
        if self.must_close:
            self._must_close.set()
        if not self.stopped_sending and self.state not in _SENDING:
            self.stopped_sending = True
            for call in self._when_sending_stops:
                call()

    def interrupt(self, reason: str) -> None:
        """Interrupt the round, because the state of the target is unknown. No effect once nothing more is sent."""
        if not self.stopped_sending:
            self.happened("interrupted")
            self._interrupted(reason)

    def fail(self, error: BaseException) -> None:
        """End the rule with an error."""
        self.happened("failed")
        self._failed(error)

    @property
    def must_close(self) -> bool:
        """Whether the round must be closed."""
        return self.state not in ("opening", "copying")

    async def until_must_close(self) -> None:
        """Wait until the round must be closed."""
        await self._must_close.wait()


class Round:
    """One round: the sink of its reader (see `BatchSink`), and the owner of its publisher. Created by `begin`.

    Args:
        context: the objects that the entry's rounds share.
        life: its state, which the entry made.
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
        # With `keep_sequence`, a skipped message would shift all later numbers. Each addition to a counter depends on
        # the previous one. A stream with replicas can skip a message, and so can a full one that refuses new messages.
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
        self._gap_filler: GapFiller | None = None
        self._clock = asyncio.get_running_loop().time
        self._stored_at = 0.0  # when a copy was confirmed
        self._placed: Placed = (0, 0)  # the newest confirmed copy
        self._before_pauses: list[Placed] = []
        self._checking: asyncio.Task[None] | None = None  # compares `_before_pauses`
        self.reader = (context.make_reader or _reader_of_rule)(self, streams.source.filters)
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, source=plan.source.name)

    @classmethod
    @contextlib.asynccontextmanager
    async def begin(cls, context: EntryContext, life: RoundLife) -> AsyncIterator[Round]:
        """Begin a round: request the info of both streams, open it, and close it after the block as its state requires.

        Raises:
            BridgeError: the round cannot begin.
        """
        plan, counters = context.plan, context.counters
        counters.rounds += 1
        target_info = await context.target.api.stream_info(plan.stream)
        source_info = await context.source.api.stream_info(plan.source.name)
        filters = plan.filters
        if context.acknowledging is None:
            filters = await plan.consumer_filters(context.source.api, source_info)
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
        await self.publisher.subscribe()
        last = await last_sequence_after_sent(context.target, plan.stream, plan.probe, context.note_blocked)
        context.blocked = ""
        self.publisher.continue_after(last)
        self._streams = streams = replace(self._streams, last=last)
        resume = await self._resume()
        key = context.resuming.identity.key
        self.encoder.retarget(streams.target, key)
        if plan.keep_sequence:
            self._gap_filler = GapFiller(plan.rule, plan.source.name, key, plan.filler, last)
        self.encoder.already_stored = set(resume.already_stored)
        self._placed = context.resuming.placed
        context.stream_position = StreamPosition(
            plan.source.name,
            KnownStream.of(streams.source_info),
            streams.source.filters,
            resume.resume_after,
            direct=bool(plan.durable),
        )
        await self.reader.open(resume.resume_after, streams.source_info)
        self._log.info("copying.begins", after_sequence=resume.resume_after, already_there=len(resume.already_stored))
        first = int(streams.source_info["state"]["first_seq"])
        if 0 < resume.resume_after < first - 1 and plan.copies_all_of(streams.source_info["config"]):
            self._log.warning("copying.removed_uncopied", after_sequence=resume.resume_after, first_sequence=first)

    async def _resume(self) -> Resume:
        """Return the point in the source to resume at, by the target's copies. Count the losses that these show."""
        context, streams, resuming = self._context, self._streams, self._context.resuming
        acknowledging = context.acknowledging
        resume = await resuming.position(streams, None if acknowledging is None else acknowledging.position)
        if self.plan.keep_sequence:
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
        context.counting.renew(streams.target, streams.target_info, resumes=resumes)
        return resume

    async def _close(self) -> None:
        context, life, publisher = self._context, self.life, self.publisher
        if not life.must_close:
            life.happened("leave")
        try:
            if life.state != "cut":
                await self._leave_reader()
            if life.state == "draining":
                await self._settled()
                life.happened("leave")
        finally:  # a cut cancels the waiting above, because it must not wait for a server
            confirmed = Confirmed(
                *publisher.confirmed, publisher.placed, tuple(self._before_pauses), publisher.target_is_shorter
            )
            position = self.reader.stream_position
            read = max((each for each in position.known.messages if each.sequence <= position.handled), default=None)
            context.resuming.remember(confirmed, publisher.widest, read)
            if confirmed.sequence:
                context.stream_position = replace(position, handled=confirmed.sequence)
            await publisher.close()
            if life.state == "cut":
                await self.reader.end_at_once()
            life.happened("closed")

    async def _leave_reader(self) -> None:
        try:
            await self.reader.abandon(unwritten=False)
        except (BridgeError, OSError) as error:
            if self.life.state == "draining":
                self._log.error("rule.drain_incomplete", reason=str(error))

    async def _settled(self) -> None:
        """Wait for the answers to sent messages, as long as the target is connected and stores them."""
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
        if self.life.stopped_sending:
            return None  # it is read again in the next round
        if context.objects is not None:
            batch = context.objects.renamed(batch)
        if context.acknowledging is not None:
            self.encoder.already_stored |= context.acknowledging.copied(batch)
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
        self.encoder.already_stored.clear()
        target_info = await context.target.api.stream_info(self.plan.stream)
        key, target = entry_key(self.plan.sourcing, created), context.target_of(target_info)
        if target.counts and context.counting is None:
            self.life.interrupt("the target has become a counter stream")
        self.encoder.retarget(target, key)
        context.resuming.source_recreated(info, key, nanoseconds_of(target_info["state"]["last_ts"]))

    async def stream_shortened(self, info: Json, resume_after: int) -> None:
        """Let the next round compare the target with the shortened source; see `BatchSink`."""
        context = self._context
        context.counters.shorter_streams += not context.resuming.source_shortened
        context.resuming.source_shortened = True
        self.life.interrupt("the server lost the end of the source")

    def checked(self) -> None:
        """Do nothing: nothing is acknowledged, or a lost connection has ended the round; see `BatchSink`."""

    async def read_on(self, info: Json, after: int) -> None:
        """Let the next round compare the target with the source; see `BatchSink`."""
        self.life.interrupt("another client has changed the consumer of the source")

    def _copy(self, batch: list[Delivered]) -> Awaitable[None] | None:
        """Encode a batch and send its operations: pipelined, unless one of them needs care."""
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
        sending = CarefulSending(context, self.life, self.publisher, encoder, self._gap_filler)
        return sending.send(batch, out, done, special)

    # -- stored and refused messages (PublisherOwner) ----------------------------------------------------------------

    def stored(self) -> None:
        """Acknowledge stored messages to the source, if the entry acknowledges; see `PublisherOwner`."""
        if self._context.acknowledging is not None:
            self._context.acknowledging.stored(self.publisher)
        now = self._clock()
        if now - self._stored_at >= EVERY_SECOND:
            self._check_after_pause()
        self._stored_at = now
        if (placed := self.publisher.placed)[0]:
            self._placed = placed

    def _check_after_pause(self) -> None:
        if self._placed[0] and not self.plan.keep_sequence and not self.life.stopped_sending:
            self._before_pauses.append(self._placed)
            if self._checking is None or self._checking.done():
                self._checking = self.publisher.start(self._check_places())

    async def _check_places(self) -> None:
        """Interrupt the round if the target has lost a copy that was confirmed before a pause; see `Confirmed`."""
        with contextlib.suppress(ApiError):  # checked again after the next pause, or by the next round
            while self._before_pauses:
                if not await holds(self._streams, self._before_pauses[0]):
                    self.life.interrupt("the target lost the end of its store")
                    return
                del self._before_pauses[0]

    async def refused(self, operation: Operation, pub_ack: PubAck) -> None:
        """Let the rule's policy decide; see `PublisherOwner`."""
        if pub_ack.err_code == SOURCE_RECORD_REFUSED and not self._context.twin:
            # In a cluster in the middle of an upgrade, the stream's leader can be newer than the connected server.
            self._context.twin = True
            self.life.interrupt("the target takes no source records of the server's own name")
            return
        await self._context.dead_letters.refused(operation, pub_ack)


def _reader_of_rule(sink: Round, filters: tuple[str, ...]) -> SourceReader:
    """Return a reader with a consumer of the rule."""
    context, plan, life = sink._context, sink.plan, sink.life
    if context.acknowledging is not None:
        return context.acknowledging.make_reader(sink, life.fail, life.interrupt)
    consumer = RuleConsumer(context.source.api, plan.consumer(filters))
    return OrderedReader(context.source, consumer, sink, context.counters, life.fail)
