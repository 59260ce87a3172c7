"""One entry of a copying rule: copies from its position in the target to the source's newest message, endlessly.

An entry lives in rounds. A round reads from the target what it holds (`resuming`), reads the source from there, and
ends when it is unknown what the target has stored; then the next round begins in the same way. A start after SIGKILL is
such a round, so the entry keeps no other state.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.bridge.consuming.lag import LagWatch, Standpoint
from nats_bridge.bridge.consuming.missing_streams import appeared
from nats_bridge.bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.bridge.consuming.rule_consumer import ConsumerPlan, RuleConsumer
from nats_bridge.bridge.errors import ApiError, BridgeError, RuleRefusedError
from nats_bridge.bridge.kinds.copying.acknowledging import Acknowledging
from nats_bridge.bridge.kinds.copying.acting_headers import RENAMED
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.copying.counting import Counting, turns
from nats_bridge.bridge.kinds.copying.dead_letters import DeadLetters, Rejected
from nats_bridge.bridge.kinds.copying.encoder import CopyEncoder, Operation, Special, message_sequence
from nats_bridge.bridge.kinds.copying.entry_plan import EntryPlan
from nats_bridge.bridge.kinds.copying.filter_choice import consumer_filters
from nats_bridge.bridge.kinds.copying.gap_filler import GapFiller
from nats_bridge.bridge.kinds.copying.last_sequence_probe import last_sequence_behind
from nats_bridge.bridge.kinds.copying.message_ids import entry_key
from nats_bridge.bridge.kinds.copying.object_metadata import ObjectMetadata
from nats_bridge.bridge.kinds.copying.parallel_backfill import UnfinishedCopies
from nats_bridge.bridge.kinds.copying.pub_ack import SEALED, SOURCE_RECORD_REFUSED, PubAck
from nats_bridge.bridge.kinds.copying.publisher import Publisher
from nats_bridge.bridge.kinds.copying.resume_point import Resume
from nats_bridge.bridge.kinds.copying.resuming import Resuming
from nats_bridge.bridge.kinds.copying.source import Reading
from nats_bridge.bridge.kinds.copying.target import Target
from nats_bridge.bridge.kinds.copying.window import Window
from nats_bridge.bridge.observability.log_throttle import Pace
from nats_bridge.bridge.observability.rule_metrics import InFlight, RuleMetrics, nothing_in_flight
from nats_bridge.transforms.source_record import TWIN_HEADER

if TYPE_CHECKING:
    from nats_bridge.bridge.observability.telemetry.tracing import RuleTracing

__all__ = ["CopyEntry"]

_log = structlog.get_logger("bridge.copying")

_PAUSE = 0.1  # seconds until the next try while a server is away


class CopyEntry:
    """Copies what one entry selects.

    Args:
        plan: what to do.
        source: the connection that holds the source.
        target: the connection that holds the target.
        dead_letters: the policy for messages that the target refuses.
        counters: where to count.
        metrics: told of every batch.
        failed: called with the error that ends the rule.
        tracing: makes spans around batches; None for none.
        fence: asked before anything is written, and before a round begins.
    """

    def __init__(
        self,
        plan: EntryPlan,
        source: Connection,
        target: Connection,
        dead_letters: DeadLetters,
        counters: CopyCounters,
        metrics: RuleMetrics,
        failed: Callable[[BaseException], None],
        tracing: RuleTracing | None,
        fence: WriteFence = ALWAYS_OPEN,
    ) -> None:
        self.plan = plan
        self._fence = fence
        self._source = source
        self._target = target
        self._dead_letters = dead_letters
        self._counters = counters
        self._metrics = metrics
        self._backlog = metrics.backlog()
        self._failed = failed
        self._tracing = tracing
        self._ended = False
        self._twin = False
        self._warned_of_renamed = False
        self._objects = ObjectMetadata(plan.source.name, plan.stream) if plan.source.rename_objects else None
        self._counting = Counting(plan, target.api, counters)
        self._resuming = Resuming(plan, source.api, target.api)
        self._interruption = asyncio.Event()
        self._pace = Pace()
        self._missing = ""  # the stream that is not there, or does not answer, in words
        self._acknowledging = Acknowledging(plan, source, counters, fence) if plan.durable else None
        self._reader: Reading | None = None
        self._publisher: Publisher | None = None
        self._encoder: CopyEncoder | None = None
        self._gap_filler: GapFiller | None = None
        self._standpoint: Standpoint | None = None  # up to where everything is known to be stored, between two rounds
        self._living: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, source=plan.source.name)

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the first round.

        Raises:
            BridgeError: what is in the way.
        """
        await self._begin_round()
        self._living = asyncio.create_task(self._live())
        self._watching = asyncio.create_task(self.watch())

    async def stop(self) -> None:
        """Stop reading, and wait for the answers to what was sent, if the target takes it."""
        await end_tasks(self._living, self._watching)
        if self._reader is not None:
            await self._reader.abandon(held=False)
        if self._publisher is not None:
            while not self._publisher.waiting and self._target.client.is_connected:
                try:
                    async with asyncio.timeout(_PAUSE):
                        await self._publisher.settled()
                except TimeoutError:
                    continue
                break
            await self._publisher.close()
        if self._acknowledging is not None:
            await self._source.flush()

    async def abandon(self) -> None:
        """Stop at once; the target holds what is in flight, or the next start copies it."""
        await end_tasks(self._living, self._watching)
        await self._end_round()

    async def end_at_once(self) -> None:
        """Stop at once; the source's server removes the consumer when it has no subscriber."""
        await end_tasks(self._living, self._watching)
        if self._publisher is not None:
            await self._publisher.close()
        if self._reader is not None:
            await self._reader.end_at_once()

    @property
    def ready(self) -> bool:
        """Whether it copies at this moment."""
        attached = self._reader is not None and self._reader.attached
        waiting = self._publisher is None or self._publisher.waiting
        return attached and not waiting and not self._interruption.is_set() and self._target.client.is_connected

    @property
    def waiting_for(self) -> str | None:
        """What keeps it from copying; None for nothing."""
        source, stream = self.plan.source.name, self.plan.stream
        if self._missing:
            return self._missing
        if self._reader is None or self._publisher is None or self._interruption.is_set():
            return f"what stream '{stream}' holds of '{source}'"
        if obstacle := self.obstacle:
            return obstacle
        if self._reader.waits_for:
            return self._reader.waits_for
        return None if self._reader.attached else f"its consumer on stream '{source}'"

    @property
    def obstacle(self) -> str | None:
        """What keeps it from copying that nothing of ours can end; None for nothing."""
        if self._missing:
            return self._missing
        if self._publisher is not None and self._publisher.waiting:
            return f"room in stream '{self.plan.stream}', which takes nothing at the moment"
        return None

    @property
    def has_work(self) -> bool:
        """Whether messages are read and not known to be stored."""
        busy = self._reader is not None and self._reader.has_work
        return busy or (self._publisher is not None and self._publisher.has_work)

    def status(self) -> dict[str, Any]:
        """Where it stands, as plain data."""
        return {
            "name": self.plan.source.name,
            "position": self._reader.handled if self._reader is not None else None,
            "lag_messages": self._backlog.messages,
            "target_is_full": self._publisher is not None and self._publisher.waiting,
        }

    @property
    def in_flight(self) -> InFlight:
        """What is sent and not stored yet."""
        return self._publisher.in_flight if self._publisher is not None else nothing_in_flight()

    @property
    def standpoint(self) -> Standpoint | None:
        """Where it stands in the source; see `bridge.consuming.lag`."""
        return self._reader.standpoint if self._reader is not None else self._standpoint

    async def not_taken(self) -> int | None:
        """What the round's consumer has that was not taken; see `bridge.consuming.lag`.

        Raises:
            ApiError: the server refuses, or does not answer.
        """
        return await self._reader.not_taken() if self._reader is not None else None

    def restart_round(self, reason: str) -> None:
        """Begin another round, which sees what has changed; also when one is just beginning."""
        self._interruption.set()
        if self._publisher is not None:
            self._publisher.interrupt(reason)

    def reading(self, publisher: Publisher, filters: tuple[str, ...]) -> Reading:
        """Return the reader of a publisher's round: a consumer. A subclass that already has the messages overrides it.

        Args:
            publisher: the round's; to be handed to `accept` with every batch.
            filters: what to ask the source's server for; none for everything.
        """
        plan = self.plan
        if self._acknowledging is not None:
            return self._acknowledging.reading(_Round(self, publisher), self._fail, publisher.interrupt)
        consumer = RuleConsumer(
            self._source.api,
            ConsumerPlan(
                stream=plan.source.name,
                filters=filters,
                headers_only=False,
                position="none",
                durable_name="",
                owner=plan.owner,
                rule=plan.rule,
                description=f" copying into {plan.stream}",
            ),
        )
        return OrderedReader(self._source, consumer, _Round(self, publisher), self._counters, self._fail)

    async def watch(self) -> None:
        """See how much waits in the source, until cancelled."""
        await LagWatch(self.plan.rule, self._source, self, self._backlog).run()

    async def _live(self) -> None:
        try:
            while True:
                await self._interruption.wait()
                await self._end_round()
                while True:
                    await self._target.connected()
                    await self._source.connected()
                    await self._fence.opened()
                    try:
                        await self._begin_round()
                    except ApiError as error:
                        await self._end_round()
                        await self._wait_out(error)
                    else:
                        self._missing = ""
                        break
        except Exception as error:
            self._fail(error)

    def _waits(self, reason: str) -> None:
        self._missing = reason

    async def _wait_out(self, error: ApiError) -> None:
        self._missing = f"its streams to be there and to answer ({error})"
        if error.err_code == STREAM_NOT_FOUND:
            self._log.warning("rule.waiting", reason=str(error), meaning="copying resumes when the stream exists again")
            await asyncio.gather(
                appeared(self._target, self.plan.stream), appeared(self._source, self.plan.source.name)
            )
        elif error.passing:
            if self._pace.due():
                self._log.warning("rule.waiting", reason=str(error), meaning="the next round begins when they answer")
            await asyncio.sleep(_PAUSE)
        else:
            raise error

    async def _begin_round(self) -> None:
        plan = self.plan
        self._interruption.clear()
        self._counters.rounds += 1
        target_info = await self._target.api.stream_info(plan.stream)
        source_info = await self._source.api.stream_info(plan.source.name)
        target = self._target_of(target_info)
        created = str(source_info["created"])
        self._key = entry_key(plan.sourcing, created)
        filters = plan.filters
        if self._acknowledging is None:
            filters = await consumer_filters(self._source.api, source_info, filters)
        publisher = self._publisher = Publisher(
            self._target,
            target,
            self._counters,
            self._metrics,
            self._refused,
            self._interrupted,
            self._fail,
            rule=plan.rule,
            alone=plan.alone,
            # A message that is left out would shift all numbers behind it.
            one_by_one=plan.one_by_one
            or (plan.keep_sequence and (target.replicas > 1 or target.full_is_refused))
            or (target.counts and target.replicas > 1),  # each addition is made of the one before
            keeps_sequence=plan.keep_sequence,
            first_alone=True,
            fence=self._fence,
            window=Window.shared(plan.sources, self._target.server_version),
            stored=lambda: self._stored(publisher),
        )
        await publisher.open()
        last = await last_sequence_behind(self._target, plan.stream, plan.probe, self._waits)
        self._missing = ""
        publisher.begin(last)
        if plan.keep_sequence:
            resume = await self._resuming.kept_position(self._key, last, source_info)
            self._gap_filler = GapFiller(plan.rule, plan.source.name, self._key, plan.filler, last)
        else:
            if plan.behind is None:
                await UnfinishedCopies(
                    self._source.api, plan.source.name, self._key, plan.stream, target.created
                ).refuse(plan.rule)
            if self._acknowledging is not None:
                copies = await self._resuming.copies(self._key, last, source_info, 2 * plan.max_pending)
                resume = Resume(await self._acknowledging.position(copies, source_info))
            else:
                resume = await self._resuming.position(self._key, target, last, target_info, source_info, filters)
            self._counters.out_of_order += resume.missing
            self._counting.begin(target, target_info)
        self._encoder = CopyEncoder(
            plan.sourcing,
            self._key,
            target,
            self._counters,
            max_payload=self._target.client.max_payload,
            records=not plan.keep_sequence,
        )
        self._encoder.there = set(resume.there)
        self._standpoint = Standpoint(plan.source.name, created, filters, resume.handled, direct=bool(plan.durable))
        self._reader = self.reading(publisher, filters)
        await self._reader.open(resume.handled, created)
        self._log.info("copying.begins", after_sequence=resume.handled, already_there=len(resume.there))

    async def _end_round(self) -> None:
        reader, publisher = self._reader, self._publisher
        self._reader = self._publisher = None
        if publisher is not None:
            self._resuming.remember(*publisher.confirmed, publisher.window.widest)
            stored = publisher.confirmed[0]
            if stored and reader is not None:
                self._standpoint = replace(reader.standpoint, handled=stored)
            await publisher.close()
        if reader is not None:
            with contextlib.suppress(BridgeError, OSError):
                await reader.abandon(held=False)

    def _fail(self, error: BaseException) -> None:
        self._ended = True
        self._failed(error)

    def _interrupted(self, reason: str) -> None:
        self._log.warning("copying.interrupted", reason=reason)
        self._interruption.set()

    def _target_of(self, info: Json) -> Target:
        target = Target.of(info, self._target.server_version)
        return target.with_record_header(TWIN_HEADER) if self._twin else target

    # -- batches, by way of _Round -------------------------------------------------------------------------------------

    def accept(self, publisher: Publisher, batch: list[Delivered]) -> Awaitable[None] | None:
        """Copy a batch that was read for the round of a publisher."""
        encoder = self.encoder_of(publisher)
        if encoder is None:
            return None
        if self._objects is not None:
            batch = self._objects.renamed(batch)
        if self._acknowledging is not None:
            encoder.there |= self._acknowledging.copied(batch)
        copying = partial(self._copy, encoder, publisher, batch)
        work = copying() if self._tracing is None else self._tracing.around(batch, copying)
        return work if self._acknowledging is None else self._acknowledging.taken(work, publisher, batch)

    def _stored(self, publisher: Publisher) -> None:
        if self._acknowledging is not None:
            self._acknowledging.stored(publisher)

    def encoder_of(self, publisher: Publisher) -> CopyEncoder | None:
        """The loop of a publisher's round; None where the round is over, or a message ended the rule."""
        return self._encoder if publisher is self._publisher and not self._ended else None

    def _copy(self, encoder: CopyEncoder, publisher: Publisher, batch: list[Delivered]) -> Awaitable[None] | None:
        self._counters.received += len(batch)
        oldest_ns = self._metrics.took(batch, self._backlog)
        out: list[Operation] = []
        done, special = encoder.run(batch, out)
        if self._counters.renamed_headers and not self._warned_of_renamed:
            self._warned_of_renamed = True
            self._log.warning("copying.renamed_headers", meaning=RENAMED)
        if out:
            publisher.expect(out[-1][0], oldest_ns)
        if special is None and self._gap_filler is None and not encoder.counts:
            return publisher.send(out)
        return self._carefully(encoder, publisher, batch, out, done, special)

    async def stream_recreated(self, info: Json) -> None:
        """The source is a new stream of the same name."""
        self._resuming.decide_about_recreated(str(info["created"]))
        assert self._encoder is not None
        self._encoder.there.clear()
        self._key = entry_key(self.plan.sourcing, str(info["created"]))
        self._encoder.retarget(self._target_of(await self._target.api.stream_info(self.plan.stream)), self._key)

    async def _carefully(
        self,
        encoder: CopyEncoder,
        publisher: Publisher,
        batch: list[Delivered],
        out: list[Operation],
        done: int,
        special: Special | None,
    ) -> None:
        """Send messages that the target may refuse alone, so that none behind them is stored before that is known."""
        send = partial(self._count, encoder, publisher, batch) if encoder.counts else partial(self._send, publisher)
        while True:
            await send(out)
            if special is None:
                return
            await publisher.settled()
            if special.operation is not None:
                await send([special.operation])
                await publisher.settled()
            elif self._publisher is publisher and not self._interruption.is_set():
                await self._reject(special)
            else:
                # It is neither copied nor a dead letter, so nothing after it may be stored, or acknowledged.
                publisher.interrupt("the round is over")
                return
            out = []
            done, special = encoder.run(batch, out, done)

    async def _count(
        self, encoder: CopyEncoder, publisher: Publisher, batch: list[Delivered], operations: list[Operation]
    ) -> None:
        """Send additions to counters, each turn when the one before is settled."""
        subjects = {message_sequence(reply): subject for subject, reply, _, _ in batch}
        for turn in turns(operations, encoder.identified):
            if publisher.over:
                return
            try:
                additions = await self._counting.additions(turn, subjects, encoder.limit)
            except ApiError as error:
                if not error.passing:
                    raise
                publisher.interrupt(f"the target's counters cannot be read ({error})")
                return
            await self._add(publisher, additions)

    async def _add(self, publisher: Publisher, additions: list[Operation]) -> None:
        before = self._counters.duplicates, self._counters.rejected
        await self._send(publisher, additions)
        await publisher.settled()
        if publisher.over or before != (self._counters.duplicates, self._counters.rejected):
            self._counting.forget()
        else:
            self._counting.keep()

    async def _send(self, publisher: Publisher, operations: list[Operation]) -> None:
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
                await self._resuming.remove_fillers()
            except ApiError as error:
                if not error.passing:
                    raise
                publisher.interrupt(f"the fillers are not removed yet ({error})")  # the next round begins with that
            self._counters.fillers += filled

    async def _reject(self, special: Special) -> None:
        if self._publisher is not None:
            self._publisher.ask_for_all()  # a dead letter may land in the target, too
        subject, reply, _, payload = special.message
        await self._dead_letters.handle(
            Rejected(
                self.plan.source.name,
                int(message_sequence(reply)),
                subject,
                special.header_block,
                payload,
                special.reason,
            )
        )

    async def _refused(self, operation: Operation, pub_ack: PubAck) -> None:
        if pub_ack.err_code == SOURCE_RECORD_REFUSED and not self._twin:
            # A cluster in the middle of an upgrade: the stream's leader is newer than the server we talk to.
            self._twin = True
            assert self._publisher is not None
            self._publisher.interrupt("the target takes no source records of the server's own name")
            return
        if pub_ack.err_code == SEALED:
            # No message's own fault, so not one for the dead letters.
            raise RuleRefusedError(
                f"rule '{self.plan.rule}': stream '{self.plan.stream}' is sealed: it takes no more messages"
            )
        line, _, rest = operation[1].partition(b"\r\n")
        fields = line.split(b" ")
        size, total = int(fields[-2]), int(fields[-1])
        await self._dead_letters.handle(
            Rejected(
                self.plan.source.name,
                int(operation[0]),
                fields[1],
                rest[:size],
                rest[size:total],
                f"{pub_ack.description} ({pub_ack.err_code})",
            )
        )


@dataclass(frozen=True, slots=True)
class _Round:
    """What a reader feeds: its entry, as long as the round lasts for which it reads (see `BatchSink`)."""

    entry: CopyEntry
    publisher: Publisher

    def accept(self, batch: list[Delivered], _: int | None) -> Awaitable[None] | None:
        return self.entry.accept(self.publisher, batch)

    def vanished(self, _: int) -> None:
        return  # native copying tells nobody either

    def confirm(self, _: bytes) -> Awaitable[None] | None:
        return None  # nothing to acknowledge: the position is in the target

    async def settled(self) -> None:
        await self.publisher.settled()

    async def stream_recreated(self, info: Json) -> None:
        await self.entry.stream_recreated(info)
