"""One entry of a copying rule: copies from its position in the target to the source's newest message, endlessly.

An entry lives in rounds (`round`), and begins another one whenever the state of the target is unknown. A start after
SIGKILL is such a round too, so no state has to outlive the process. Rounds of one process share an `EntryContext`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import structlog

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, JetStreamApi, Json
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import LEADER_AWAY
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.consuming.consumer_plan import ConsumerPlan
from nats_bridge.consuming.lag import LagSource, LagWatch, StreamPosition
from nats_bridge.consuming.missing_streams import appeared
from nats_bridge.consuming.replay import Replay
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.acknowledging import Acknowledging
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.entry_subjects import select_all
from nats_bridge.kinds.copying.object_metadata import ObjectMetadata
from nats_bridge.kinds.copying.position.resuming import Resuming
from nats_bridge.kinds.copying.round import Round, RoundEvent, RoundLife
from nats_bridge.kinds.copying.target import Target
from nats_bridge.kinds.copying.writing.counting import Counting
from nats_bridge.kinds.copying.writing.dead_letters import DeadLetters
from nats_bridge.kinds.copying.writing.publisher import Outlet
from nats_bridge.observability.log_throttle import Pace
from nats_bridge.observability.rule_metrics import Backlog, InFlight, RuleMetrics, nothing_in_flight
from nats_bridge.settings import Source
from nats_transforms.source_record import TWIN_HEADER
from nats_transforms.sourcing import Sourcing

if TYPE_CHECKING:
    from nats_bridge.telemetry.tracing import RuleTracing

_log = structlog.get_logger("bridge.copying")

_WORTH_READING_ALL: Final = 5  # the fraction of selected messages is at least one in this many


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """The plan of an entry.

    Attributes:
        owner: how the descriptions of the rule's consumers begin.
        probe: a subject that the target stores, for barriers.
        filters: the filters of the source's consumer; none for everything.
        on_recreated: what to do when the source is a new stream of the same name.
        sources: the number of the rule's entries.
        keep_sequence: whether copies have the source's sequence numbers.
        filler: the subject for numbers that the source lacks.
        skip: the subject for messages that the target refuses; None to stop at them.
        one_by_one: whether order is kept at the price of speed.
        durable: the durable consumer that acknowledges the source's messages; empty without acknowledgements.
        former: the position of the rule's former consumers of these subjects; None without any.
        work_queue: whether the source is a work queue.
        max_pending: the limit of its unacknowledged messages.
    """

    rule: str
    owner: str
    source: Source
    sourcing: Sourcing
    stream: str
    probe: bytes
    filters: tuple[str, ...]
    on_recreated: Literal["stop", "restart"]
    sources: int = 1
    keep_sequence: bool = False
    filler: str | None = None
    skip: str | None = None
    one_by_one: bool = False
    durable: str = ""
    former: int | None = None
    work_queue: bool = False
    max_pending: int = 0

    @property
    def exclusive(self) -> bool:
        """Whether only this entry of the rule writes to the target, so that one answer may stand for many messages."""
        return self.sources == 1 and not self.durable

    def copies_all_of(self, config: Json) -> bool:
        """Return whether each message of the source is copied, as long as the stream does not remove it.

        Args:
            config: the source's configuration. A stream that limits the messages of a subject removes old ones as a
                matter of course.
        """
        if config.get("retention", "limits") != "limits" or int(config.get("max_msgs_per_subject", -1)) > 0:
            return False
        sourcing = self.sourcing
        return sourcing.where is None and not sourcing.exclude and select_all(sourcing.filters, config)

    def consumer(self, filters: tuple[str, ...]) -> ConsumerPlan:
        """Return the plan of the source's consumer with these filters; none for all."""
        return ConsumerPlan(
            stream=self.source.name,
            filters=filters,
            headers_only=False,
            position="acknowledged" if self.durable else "none",
            durable_name=self.durable,
            owner=self.owner,
            rule=self.rule,
            description=f" copying into {self.stream}",
            work_queue=self.work_queue,
            max_pending=self.max_pending,
        )

    async def consumer_filters(self, api: JetStreamApi, info: Json) -> tuple[str, ...]:
        """Return the filters of the source's consumer; none for everything.

        A consumer's filter keeps messages off the wire, but file stores look them up one by one (2.10 delivers about
        9,000 a second, 2.15 about 90,000, and 200,000 without a filter; 2.9 sometimes 1,000). If a large part of the
        stream is selected, reading all of it and dropping the rest is faster.

        Args:
            api: the API of the connection that holds the source.
            info: its `STREAM.INFO`.
        """
        messages = int(info["state"]["messages"])
        if not self.filters or not messages or info["config"].get("storage") == "memory":
            return self.filters
        selected = await Replay(api, self.source.name, self.filters).after(0)
        return () if selected * _WORTH_READING_ALL >= messages else self.filters


class SourceReader(LagSource, Protocol):
    """The reader of an entry: the sidecar's, or a job's with the source's messages from elsewhere.

    It passes batches to `Round.accept`, and awaits the result.
    """

    @property
    def handled(self) -> int:
        """The source's sequence up to which everything was delivered."""

    @property
    def attached(self) -> bool:
        """Whether messages can come at this moment."""

    @property
    def waits_for(self) -> str:
        """The obstacle, as a phrase; empty without one."""

    @property
    def has_work(self) -> bool:
        """Whether messages are read and not handed on."""

    @property
    def stream_position(self) -> StreamPosition:
        """The position; see `nats_bridge.consuming.lag`."""

    async def open(self, handled: int, info: Json) -> None:
        """Begin after a sequence of the source with this `STREAM.INFO`."""

    async def abandon(self, *, unwritten: bool) -> None:
        """Stop. `unwritten` means that the last batch delivered has not been written."""

    async def end_at_once(self) -> int | None:
        """Stop without sending to any server. A reader may return the number of messages it has not delivered."""


MakeReader: TypeAlias = Callable[[Round, tuple[str, ...]], SourceReader]
"""Makes the reader of the source for a round, with these filters (none for all)."""


@dataclass(slots=True)
class EntryContext:
    """The state that the rounds of an entry share.

    Attributes:
        source: the connection that holds the source.
        target: the connection that holds the target.
        metrics: updated with every batch.
        tracing: makes spans around batches, or None.
        fence: checked before anything is written, and before a round begins.
        make_reader: makes the reader of the source for a round; None for a consumer of the rule.
        backlog: how much waits in the source.
        dead_letters: decides about messages that the target refuses.
        resuming: finds the position of each round, and remembers what earlier rounds have confirmed.
        counting: makes additions of copies; None if the target is not a counter stream.
        acknowledging: acknowledges stored messages to the source; None if the entry does not.
        objects: renames the bucket in the metadata of objects; None if the entry does not.
        stream_position: the position up to which everything is stored, between rounds; None before the first.
        blocked: the event that the entry waits for, as a phrase, such as a stream to exist; empty for none.
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
    make_reader: MakeReader | None = None
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

    def note_blocked(self, reason: str) -> None:
        """Note that a stream does not answer."""
        self.blocked = reason


class CopyEntry:
    """Copies the messages that one entry selects.

    Args:
        context: the objects that its rounds share.
        failed: called with the error that ends the rule.
    """

    def __init__(self, context: EntryContext, failed: Callable[[BaseException], None]) -> None:
        plan = self.plan = context.plan
        self._context = context
        self._failed = failed
        self._pace = Pace()
        self._over = False
        self._round: Round | None = None  # the present one, while it is open
        self._life = RoundLife(self._interrupted, self._fail)  # of the present round, or of the last one
        self._tasks: list[asyncio.Task[None]] = []
        self._log = _log.bind(rule=plan.rule, stream=plan.stream, source=plan.source.name)

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin the first round.

        Raises:
            BridgeError: the entry cannot start.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.append(asyncio.create_task(self._live(begun)))
        try:
            await begun
        except asyncio.CancelledError:
            self._over = True
            self._life.happened("leave")
            raise
        context = self._context
        if context.make_reader is None:
            watch = LagWatch(self.plan.rule, context.source, self, context.backlog)
            self._tasks.append(asyncio.create_task(watch.run()))

    async def stop(self) -> None:
        """Stop reading, and wait for the answers to sent messages as long as the target stores them."""
        await self._end("drain")
        if self.plan.durable:
            await self._context.source.flush()

    async def abandon(self) -> None:
        """Stop at once. Messages in flight are in the target, or the next start copies them."""
        await self._end("leave")

    async def end_at_once(self) -> None:
        """Stop at once. The source's server removes the consumer when it has no subscriber."""
        await self._end("cut")

    async def _end(self, how: RoundEvent) -> None:
        life, closing = self._life, self._life.closing
        self._over = True
        life.happened(how)
        if how == "cut" and closing is not None:
            await asyncio.sleep(0)  # it has begun
            await end_tasks(closing)  # it may wait for a server
        if self._round is not None and self._tasks:
            await asyncio.wait(self._tasks[:1])  # it closes the round
        await end_tasks(*self._tasks)
        if life.closing is not None:
            await asyncio.wait([life.closing])
            if not life.closing.cancelled():
                life.closing.result()

    async def _live(self, begun: asyncio.Future[None]) -> None:
        """Begin one round after the other until the entry ends. The future tells how the first one began."""
        context = self._context
        try:
            while True:
                life = self._life = RoundLife(self._interrupted, self._fail)
                try:
                    async with Round.begin(context, life) as self._round:
                        if not begun.done():
                            begun.set_result(None)
                        await life.until_must_close()
                except ApiError as error:
                    if not begun.done():
                        raise
                    await self._wait_out(error)
                finally:
                    self._round = None
                if self._over:
                    return
                await context.target.connected()
                await context.source.connected()
                await context.fence.opened()
        except Exception as error:
            if not begun.done():
                begun.set_exception(error)
            elif not self._over:
                self._fail(error)

    async def _wait_out(self, error: ApiError) -> None:
        context, plan = self._context, self.plan
        context.blocked = f"its streams to exist and answer ({error})"
        if error.err_code == STREAM_NOT_FOUND:
            self._log.warning("rule.waiting", reason=str(error), meaning="copying resumes when the stream exists again")
            await asyncio.gather(appeared(context.target, plan.stream), appeared(context.source, plan.source.name))
        elif error.passing:
            if self._pace.due():
                self._log.warning("rule.waiting", reason=str(error), meaning="the next round begins when they answer")
            await LEADER_AWAY.pause()
        else:
            raise error

    @property
    def target_last(self) -> int:
        """The target's last sequence when the newest copy was confirmed; 0 between rounds."""
        return self._round.publisher.confirmed[1] if self._round is not None else 0

    def restart_round(self, reason: str) -> None:
        """Begin another round, which sees the changes. Also works while a round is beginning."""
        self._life.interrupt(reason)

    def _interrupted(self, reason: str) -> None:
        self._log.warning("copying.interrupted", reason=reason)

    def _fail(self, error: BaseException) -> None:
        self._over = True
        self._failed(error)

    # -- status ------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether it copies at this moment."""
        present = self._round
        if present is None or self._life.must_close or not self._context.target.client.is_connected:
            return False
        return present.reader.attached and not present.publisher.waiting and not self._is_target_silent

    @property
    def waiting_for(self) -> str | None:
        """The obstacle to copying; None without one."""
        source = self.plan.source.name
        if self._context.blocked:
            return self._context.blocked
        if self._is_target_silent:
            return self.obstacle
        if self._round is None or self._life.stopped_sending:
            return f"what stream '{self.plan.stream}' holds of '{source}'"
        reader = self._round.reader
        if obstacle := self.obstacle or reader.waits_for:
            return obstacle
        return None if reader.attached else f"its consumer on stream '{source}'"

    @property
    def obstacle(self) -> str | None:
        """The obstacle that only others can remove; None without one."""
        if self._context.blocked:
            return self._context.blocked
        if self._round is not None and self._round.publisher.waiting:
            return f"room in stream '{self.plan.stream}', which accepts nothing at the moment"
        if self._is_target_silent:
            return f"an answer of stream '{self.plan.stream}', which does not answer some messages"
        return None

    @property
    def _is_target_silent(self) -> bool:
        return self._context.outlet.is_silent

    @property
    def has_work(self) -> bool:
        """Whether messages are read and not known to be stored."""
        return self._round is not None and (self._round.reader.has_work or self._round.publisher.has_work)

    def status(self) -> dict[str, Any]:
        """Return the entry's state, as plain data."""
        return {
            "name": self.plan.source.name,
            "position": self._round.reader.handled if self._round is not None else None,
            "lag_messages": self._context.backlog.messages,
            "target_is_full": self._round is not None and self._round.publisher.waiting,
        }

    @property
    def in_flight(self) -> InFlight:
        """The messages sent and not stored yet."""
        return self._round.publisher.in_flight if self._round is not None else nothing_in_flight()

    @property
    def stream_position(self) -> StreamPosition | None:
        """The position in the source; see `nats_bridge.consuming.lag`."""
        return self._round.reader.stream_position if self._round is not None else self._context.stream_position

    async def undelivered(self) -> int | None:
        """Return the number of messages that the round's consumer still holds; see `nats_bridge.consuming.lag`."""
        return await self._round.reader.undelivered() if self._round is not None else None
