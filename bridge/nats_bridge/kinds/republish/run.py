"""Runs a republish rule: from its stream's state at the start to its last message at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from nats_bridge.client.account_identity import same_account, same_stream
from nats_bridge.client.audit_advisories import AUDIT_SUBJECT
from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.permission_violations import not_allowed, refused_publication, refused_subscription
from nats_bridge.client.stream_identity import Bounds, MessageStamp
from nats_bridge.client.tasks import end_tasks
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.consumer_plan import ConsumerPlan, consumer_owner, durable_name
from nats_bridge.consuming.lag import LagWatch
from nats_bridge.consuming.lost_end import message_at
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.consuming.percent_names import check_percent
from nats_bridge.consuming.replay import Replay
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.errors import ApiError, RuleRefusedError
from nats_bridge.kinds.republish.compiled import compile_rule
from nats_bridge.kinds.republish.counters import RuleCounters
from nats_bridge.kinds.republish.encoder import RepublishEncoder
from nats_bridge.kinds.republish.native_repeat import sent_twice
from nats_bridge.kinds.republish.resuming import begins_at_end, lost_after, resume_position
from nats_bridge.kinds.republish.retention import Retention, StreamLimits
from nats_bridge.kinds.republish.retention_follower import RetentionFollower
from nats_bridge.kinds.republish.seeding import Seeding
from nats_bridge.kinds.republish.side_effects import CONSUMER_RETENTIONS, reason_against_watching
from nats_bridge.rules.delivery import CorePublisher
from nats_bridge.rules.leadership.lease import KeptPosition
from nats_bridge.rules.loops.subject_overlap import takes_filters
from nats_bridge.rules.reserved_destinations import reserved_remark
from nats_bridge.rules.run import RuleRun
from nats_bridge.settings import Start
from nats_transforms.dialect import server_dialect
from nats_transforms.republish import Republish
from nats_transforms.subject import ANY, DOT, collide, is_subset, is_valid_filter, is_wild, matches
from nats_transforms.timestamp import nanoseconds_of

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from nats_bridge.client.connection import Connection
    from nats_bridge.client.wire import Delivered
    from nats_bridge.kinds.republish.model import RepublishRule
    from nats_bridge.rules.context import RuleContext


_CLOCKS_NS = 300 * 10**9  # by which the clocks of sidecar and server may differ


class RepublishRun(RuleRun):
    """One republish rule.

    Args:
        source: the connection that holds the stream.
        target: the connection to publish on.

    Attributes:
        republish: the compiled rule; set by `check`.
    """

    rule: RepublishRule
    republish: Republish

    def __init__(self, rule: RepublishRule, source: Connection, target: Connection, context: RuleContext) -> None:
        super().__init__(rule, RuleCounters(), context, rule.stream, source, target)
        self._durable_name = durable_name(context.sidecar, rule.name)
        self._durable_owner = consumer_owner(context.sidecar, rule.name)
        self._source = source
        self._target = target
        self._watcher: asyncio.Task[None] | None = None
        self._consumer_deletions: Subscription | None = None
        self._info: Json = {}
        self._reader: OrderedReader | None = None
        self._warned_too_large = 0
        self._unsent: list[bytes] = []  # operations of a batch that wait for a predecessor
        self._newest = b""  # the reply subject of the last message of the last batch
        self._resumed_at: KeptPosition | None = None
        self._is_drained = False

    # -- start -------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check the stream, and refuse a rule that must not run. Create nothing on a server.

        Raises:
            StreamMissingError: the stream does not exist.
            RuleRefusedError: the rule would loop or change the contents of its stream.
            ConfigError: the dialect does not support the transform.
        """
        rule = self.rule
        place = f"rule '{rule.name}': stream '{rule.stream}'"
        self._info = await existing_stream(self._source, rule.name, rule.stream)
        config = self._info["config"]
        at_least_once = rule.durable and rule.delivery == "at_least_once"
        check_percent(self._source.server_version, place, rule.stream, acknowledges=at_least_once)
        self.republish = compile_rule(rule, self._context.dialect_at(self._source))
        limits = self._limits = StreamLimits.of(config)
        subjects = [subject.encode() for subject in config.get("subjects") or ()]
        self._same_account = await self._publishes_to_own_account()
        destination = rule.republish.dest.encode()
        meets = partial(collide, destination, by_first_byte=self._by_first_byte)
        if self._same_account and any(meets(subject) for subject in subjects):
            raise RuleRefusedError(
                f"{place}: republish destination '{rule.republish.dest}' forms a cycle with the stream's subjects"
                f" {', '.join(config.get('subjects') or ())}: choose one outside of them"
            )
        self._refuse_repetition(config)
        # messages of sources can have subjects that the stream does not list
        known = () if config.get("sources") else subjects
        remark = reserved_remark(self.republish.transform, known, self.republish.exclude)
        self.remarks = (remark,) if remark else ()
        self._filter = self._filter_subject(limits)
        reason = await self._reason_against_watching(config)
        without_position = config.get("retention") == "workqueue" and rule.durable
        if reason and not rule.allow_side_effects:
            accept = "" if without_position else " (or accept it with allow_side_effects: true)"
            raise RuleRefusedError(f"{place} {reason}{accept}")
        self._side_effects = reason
        if without_position:
            raise RuleRefusedError(
                f"{place} is a work-queue stream: it allows no second consumer, so the position cannot be stored;"
                " set durable: false"
            )

    @property
    def begins_at_end(self) -> bool:
        """Whether it is durable, with `start: new`; see `RuleRun`."""
        return begins_at_end(self.rule)

    @property
    def _start(self) -> Start:
        """The start without a position. All of a stream that was created while the rule waited for it is new.

        A stream that only reappeared (restored or loaded late) is older than the wait, or has messages older than its
        creation time. Servers before 2.14 change that time (`nats_bridge.client.stream_identity`).
        """
        start, absent_since_ns = self.rule.start, self._context.absent_since_ns
        if start.policy != "new" or absent_since_ns is None:
            return start
        created = nanoseconds_of(str(self._info["created"]))
        first = Bounds.of(self._info).first
        is_young = created >= absent_since_ns - _CLOCKS_NS
        return Start("first") if is_young and (first is None or first.time_ns >= created) else start

    async def keep_start(self) -> None:
        """Store the end of the stream, where `start: new` begins; see `RuleRun`."""
        bounds = Bounds.of(self._info)
        last = bounds.last.sequence if self._start.policy == "new" else 0
        consumer = RuleConsumer(self._source.api, self._plan)
        consumer.begins = bounds.last if bounds.last.time_ns else None
        if await consumer.keep_start(last) and last:
            self._warn_of_beginning(last)

    async def _open(self) -> dict[str, Any]:
        """Find the starting point, learn the last sequences before it, begin to republish."""
        rule, config = self.rule, self._info["config"]
        self._encoder = self.encoder(Retention(self._limits))
        self._follower = RetentionFollower(
            self._source,
            self._info,
            self._encoder,
            self._last_encoded,
            self._own_subjects,
            self._config_changed,
            self._log,
        )
        at_least_once = rule.delivery == "at_least_once"
        fence = self._context.fence
        consumer = RuleConsumer(self._source.api, self._plan, fence)
        plan = consumer.plan
        self._reader = OrderedReader(self._source, consumer, self, self.counters, self._fail)
        acknowledge = self._acknowledge if at_least_once else None
        delivery = self._delivery = CorePublisher(self._target, self.counters, acknowledge, self.metrics, fence)
        self.metrics.follow(rule.kind, self.counters, lambda: delivery.in_flight)
        self._backlog = self.metrics.backlog()
        self._delivery.start()
        self._target.on_reconnect(self._target_is_back)
        self._source.on_refusal(self._refused)
        if self._target is not self._source:
            self._target.on_refusal(self._refused)
        await self._follower.open()
        if plan.direct:
            gone = f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{rule.stream}.*"
            self._consumer_deletions = await self._source.client.subscribe(gone, cb=self._on_consumer_deleted)
        replay = Replay(self._source.api, rule.stream, plan.filters, headers_only=True, direct=plan.direct)
        while True:
            losses = self._source.losses
            resumed = await resume_position(consumer, replay, rule, self._context.term)
            consumer.begins = await message_at(replay.api, rule.stream, resumed or 0)
            if losses == self._source.losses:
                break  # else the server may have put another message there in between
        self._seeding = Seeding(replay, self._encoder)
        handled = await self._seeding.seed(self._info, self._start, resumed)
        if rule.durable and resumed is None:
            begins = await message_at(replay.api, rule.stream, handled)
            if not self._source.is_lost_since(losses):
                consumer.begins = begins
        if self.begins_at_end and resumed is None and handled:
            self._warn_of_beginning(handled)
        self._resumed_at = KeptPosition(rule.stream, handled, consumer.begins.time_ns if consumer.begins else 0)
        if rule.durable:
            self._context.term.keep(self._position_to_keep)
        await self._follower.begin(handled)
        await self._reader.open(handled, self._info, losses=losses)
        self._watcher = asyncio.create_task(LagWatch(rule.name, self._source, self._reader, self._backlog).run())
        self._say_side_effects()
        if at_least_once and rule.durable and int(config.get("max_msgs_per_subject", -1)) > 0:
            self._log.warning(
                "rule.position_can_jump",
                max_msgs_per_subject=config["max_msgs_per_subject"],
                meaning="if the sidecar is killed while a newer message pushes out one that is in flight, the"
                " server counts those before it as acknowledged (kd/messages/removed-in-hand)",
            )
        return {
            "src": rule.republish.src,
            "dest": rule.republish.dest,
            "after_sequence": handled,
            "position": "resumed" if resumed is not None else self._start.policy,
            "delivery": str(rule.delivery),
            "dialect": self.republish.dialect.name,
            "known_subjects": len(self._encoder.last_sequences),
        }

    def _warn_of_beginning(self, after: int) -> None:
        self._log.warning(
            "rule.begins_new",
            after=after,
            meaning="there is no durable consumer: if the rule has run before, it was deleted, and messages since then"
            " are skipped; a start by time or sequence takes them",
        )

    def _position_to_keep(self) -> KeptPosition | None:
        """Return the last message that the rule is done with; None if its delivery mode does not allow resuming there.

        At most once must not send a message again. So it has a position only after everything in flight is settled.
        """
        if self.rule.delivery == "at_most_once" and not self._is_drained:
            return None
        reply = self._delivery.acknowledged if self.rule.delivery == "at_least_once" else self._newest
        if not reply:
            return self._resumed_at
        ack = AckReply.parse(reply)
        return KeptPosition(self.rule.stream, ack.stream_sequence, ack.time_ns)

    async def _keep_time(self) -> None:
        """Without a lease, keep the position with its time where the next process finds it."""
        done = self._position_to_keep()
        if self._reader is None or self._context.has_lease or not self.rule.durable or not done:
            return
        if done.time_ns:
            with contextlib.suppress(ApiError):  # the next process logs that it cannot compare
                await self._reader.consumer.keep_time(MessageStamp(done.sequence, done.time_ns))

    @property
    def _plan(self) -> ConsumerPlan:
        rule = self.rule
        position: Literal["none", "sent", "confirmed"] = "none"
        if rule.durable:
            position = "confirmed" if rule.delivery == "at_least_once" else "sent"
        return ConsumerPlan(
            stream=rule.stream,
            filters=(self._filter,) if self._filter else (),
            headers_only=rule.republish.headers_only,
            position=position,
            durable_name=self._durable_name,
            owner=self._durable_owner,
            rule=rule.name,
            description=f" republish to {rule.republish.dest}",
            direct=self._info["config"].get("retention") in CONSUMER_RETENTIONS and not rule.durable,
        )

    def encoder(self, retention: Retention) -> RepublishEncoder:
        """Return the rule's encoder, before its first message. Call it after `check`.

        Args:
            retention: the model of removals from the stream.
        """
        return RepublishEncoder(
            self.republish,
            retention,
            self.counters,
            own_subjects=self._own_subjects(self._info["config"]),
            max_payload=self._target.client.max_payload,
            on_reserved=self._say_reserved,
        )

    async def _drain(self, *, failed: bool) -> None:
        if self._reader is None:
            return
        await self._leave_stream()
        if failed:  # the consumer keeps the position: the last acknowledged message, or the last written one
            await self._reader.abandon(unwritten=self._delivery.held)
        else:
            await self._reader.close()
            await self._delivery.settled()
            self._is_drained = True
            await self._keep_time()  # before an acknowledgement that the next process would trust
            await self._acknowledge_last()
        await self._source.flush()

    async def _acknowledge_last(self) -> None:
        """Repeat the last acknowledgement, and wait until it counts: the next start must not find an older position.

        Acknowledge nothing if the stream has lost that message.
        """
        reader, source, reply = self._reader, self._source, self._delivery.acknowledged
        assert reader is not None
        losses, is_known = source.losses, reader.may_acknowledge
        while reader.consumer.has_sent(reply) and self._context.fence.is_open:
            if not is_known:  # another message may have its sequence
                ack = AckReply.parse(reply)
                read = MessageStamp(ack.stream_sequence, ack.time_ns)
                if await lost_after(Replay(source.api, self.rule.stream), [read]) is not None:
                    return
            if await source.api.acknowledge(reply, partial(self._may_repeat, losses)):
                return
            losses, is_known = source.losses, False

    def _may_repeat(self, losses: int) -> bool:
        return not self._source.is_lost_since(losses) and self._context.fence.is_open

    async def _leave(self) -> None:
        if self._reader is not None:
            await self._reader.abandon(unwritten=self._delivery.held)
            await self._source.flush()

    async def _cut(self) -> None:
        if self._reader is not None:
            unread = await self._reader.end_at_once()
            self._delivery.give_up(unread + len(self._unsent) + self._encoder.waiting)

    async def _close(self) -> None:
        if self._reader is None:
            return
        await self._delivery.stop()
        await self._follower.end()
        self._source.forget(self._delivery.acknowledge_again, self._refused)
        self._target.forget(self._target_is_back, self._refused)
        await self._leave_stream()

    async def _leave_stream(self) -> None:
        await end_tasks(self._watcher)
        await self._follower.leave()
        deletions, self._consumer_deletions = self._consumer_deletions, None
        if deletions is not None and not self._source.client.is_closed:
            await deletions.unsubscribe()

    @property
    def ready(self) -> bool:
        """Whether the rule has its starting point, its consumer, and a server to publish to, at this moment."""
        attached = self._reader is not None and self._reader.attached
        return self.state == "ready" and attached and self._target.client.is_connected

    def _waits_for(self) -> str | None:
        if self._reader is None:
            return f"its starting point in stream '{self.rule.stream}'"
        if not self._reader.attached or self._reader.waits_for:
            return self._reader.waits_for or f"its consumer on stream '{self.rule.stream}'"
        return self._delivery.waiting_for

    @property
    def has_work(self) -> bool:
        """Whether messages are in flight; see `RuleRun`."""
        return self._reader is not None and (self._reader.has_work or self._delivery.has_work)

    def status(self) -> dict[str, Any]:
        """Return the stream, and the sequence of the last message received; see `RuleRun`."""
        return {"stream": self.rule.stream, "position": self.position}

    @property
    def position(self) -> int:
        """Stream sequence of the last message taken."""
        return self._reader.handled if self._reader is not None else 0

    # -- batches (BatchSink) -----------------------------------------------------------------------------------------

    def accept(self, batch: list[Delivered], gap_after: int | None) -> Awaitable[None] | None:
        """Republish a batch; see `BatchSink`."""
        if gap_after is not None:
            self._follower.skip(batch, gap_after)
        tracing = self._context.tracing
        if tracing is not None:
            return tracing.around(batch, partial(self._accept, batch))
        return self._accept(batch)

    def _accept(self, batch: list[Delivered]) -> Awaitable[None] | None:
        oldest_ns = self.metrics.took(batch, self._backlog)
        self._newest = batch[-1][1]
        out: list[bytes] = []
        predecessors = self._follower.predecessors
        asking = self._encoder.run(batch, out, predecessors.newest_remaining)
        if self.counters.too_large != self._warned_too_large:
            self._warn_too_large()
        if asking is not None:
            return self._send_after(asking, out, batch[-1][1], oldest_ns)
        if predecessors.expects:
            predecessors.handed_on()
        return self._delivery.send(out, batch[-1][1], oldest_ns)

    def _last_encoded(self) -> tuple[int, int]:
        return self.position, AckReply.parse(self._newest).time_ns if self._newest else 0

    def vanished(self, messages: int) -> None:
        """Count messages that were removed before the consumer reached them; see `BatchSink`."""
        self.counters.vanished += messages

    def confirm(self, reply: bytes) -> Awaitable[None] | None:
        """Acknowledge `reply` once everything before it is confirmed; see `BatchSink`."""
        return self._delivery.send([], reply)

    async def settled(self) -> None:
        """Wait for confirmations; see `BatchSink`."""
        await self._delivery.settled()

    async def stream_recreated(self, info: Json) -> None:
        """Forget the old stream; see `BatchSink`."""
        self._forget_position(0)
        self._refuse_repetition(info["config"])
        self._follower.recreated(info)

    async def stream_shortened(self, info: Json, resume_after: int) -> None:
        """Count the loss, and find the predecessors of the messages after `resume_after` again; see `BatchSink`."""
        self.counters.shorter_streams += 1
        await self.read_on(info, resume_after)

    def checked(self) -> None:
        """Repeat the last acknowledgement; see `BatchSink`."""
        self._delivery.acknowledge_again()

    async def read_on(self, info: Json, after: int) -> None:
        """Forget the acknowledged position, and find the predecessors of the next messages again; see `BatchSink`."""
        self._forget_position(after)
        self._follower.recreated(info)
        await self._seeding.seed(info, self.rule.start, after)

    def _forget_position(self, after: int) -> None:
        # The messages after that sequence come again, or are lost: an acknowledgement would count for other messages.
        self._delivery.acknowledged = self._newest = b""
        self._resumed_at = KeptPosition(self.rule.stream, after, 0)

    def _warn_too_large(self) -> None:
        self._warned_too_large = self.counters.too_large
        self._warn(
            "rule.message_too_large",
            max_payload=self._encoder.max_payload,
            so_far=self.counters.too_large,
            meaning="with the republish headers it exceeds what the target accepts, so it was not republished",
        )

    def _target_is_back(self) -> None:
        self._encoder.max_payload = self._target.client.max_payload

    async def _send_after(self, asking: Awaitable[None], out: list[bytes], reply: bytes, oldest_ns: int) -> None:
        """Send a batch when its predecessors are known."""
        self._unsent = out
        await asking
        self._unsent = []
        waiting = self._delivery.send(out, reply, oldest_ns)
        if waiting is not None:
            await waiting

    def _acknowledge(self, reply: bytes) -> None:
        reader = self._reader
        assert reader is not None
        if reader.may_acknowledge and reader.consumer.has_sent(reply) and self._context.fence.is_open:
            self._source.client.write_raw(b"PUB %b 4\r\n+ACK\r\n" % reply, self._context.fence)
        # else it is repeated after the check

    # -- events ------------------------------------------------------------------------------------------------------

    def _config_changed(self, config: Json) -> None:
        try:
            self._refuse_repetition(config)
        except RuleRefusedError as error:
            self._fail(error)

    def _refuse_repetition(self, config: Json) -> None:
        """Check that the stream does not republish the same messages to the same subjects.

        Raises:
            RuleRefusedError: it does.
        """
        if not self._same_account:
            return
        subjects = sent_twice(self.republish, config, server_dialect(self._source.server_version))
        if subjects is not None:
            native = config["republish"]
            raise RuleRefusedError(
                f"rule '{self.rule.name}': stream '{self.rule.stream}' natively republishes"
                f" {native.get('src') or '>'} to {native['dest']}: messages on {subjects} would arrive twice: remove"
                " the rule if it was handed over; if not, take republish out of the stream (handoff --back)"
            )

    async def _on_consumer_deleted(self, _: Msg) -> None:
        if self.state != "ready":
            return
        reason = await self._reason_against_watching(self._follower.info["config"])
        if reason == self._side_effects:
            return
        self._side_effects = reason
        if self.rule.allow_side_effects:
            self._say_side_effects()
            return
        self._fail(
            RuleRefusedError(f"rule '{self.rule.name}': stream '{self.rule.stream}' {reason} from now on; stopped")
        )

    async def _reason_against_watching(self, config: Json) -> str | None:
        rule, watched = self.rule, config.get("retention") in CONSUMER_RETENTIONS
        consumers = await self._source.api.consumers(rule.stream) if watched else ()
        at_least_once = rule.delivery == "at_least_once"
        return reason_against_watching(
            config, consumers, self._filter, durable=rule.durable, at_least_once=at_least_once
        )

    def _say_side_effects(self) -> None:
        if self._side_effects:
            self._log.warning("rule.side_effects", meaning=f"the stream {self._side_effects}")

    def _refused(self, text: str) -> None:
        """Handle a violation of permissions, which may be of any rule on the connections."""
        subject = refused_publication(text)
        if subject and self._is_ours(subject):
            self._delivery.refused()
            self._fail(not_allowed(f"rule '{self.rule.name}'", text, "publish to the rule's destination"))
        elif refused_subscription(text) == AUDIT_SUBJECT.encode():
            self._log.warning(
                "rule.removals_not_received",
                reason=text,
                meaning="Nats-Last-Sequence may name messages that were deleted or purged",
            )

    def _is_ours(self, subject: bytes) -> bool:
        """Return whether the rule publishes on a subject."""
        stream, durable = self.rule.stream.encode(), self._durable_name.encode()
        if subject.startswith(b"$JS.ACK."):
            # Other acknowledgements only limit the messages that consumers send ahead; see
            # `nats_bridge.client.delivery_limit`.
            return b".%b.%b." % (stream, durable) in subject
        if subject.startswith(b"$JS.FC."):
            return b".%b." % stream in subject
        return matches(subject, self.republish.transform.covering)

    # -- facts -------------------------------------------------------------------------------------------------------

    def _filter_subject(self, limits: StreamLimits) -> str | None:
        source = self.rule.republish.src
        if source in {"", ">"} or limits.needs_every_subject or self._covers_all(source):
            return None
        tokens = source.encode().split(DOT)
        wild = partial(is_wild, by_first_byte=self._by_first_byte)
        # A consumer's filter matches a token such as `*x` literally; a transform of an older server matches any token.
        if any(wild(token) and token != ANY for token in tokens) or not is_valid_filter(source.encode()):
            return None
        subjects = self._info["config"].get("subjects") or ()
        return source if takes_filters(self._source.server_version, [source.encode()], subjects) else None

    def _covers_all(self, source: str) -> bool:
        """Return whether every message is selected. Then no filter is needed, and without one all gaps are visible."""
        config = self._info["config"]
        subjects = [subject.encode() for subject in config.get("subjects") or ()]
        is_covered = partial(is_subset, b=source.encode(), by_first_byte=self._by_first_byte)
        return bool(subjects) and not config.get("sources") and all(map(is_covered, subjects))

    @property
    def _by_first_byte(self) -> bool:
        return self.republish.transform.dialect.first_byte_is_wildcard

    def _own_subjects(self, config: Json) -> tuple[bytes, ...]:
        return tuple(subject.encode() for subject in config.get("subjects") or ()) if self._same_account else ()

    async def _publishes_to_own_account(self) -> bool:
        if self._target is self._source:
            return True
        same = await same_stream(self._target, self._info)
        return bool(await same_account(self._source, self._target)) if same is None else same
