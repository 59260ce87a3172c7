"""Runs a rule of kind sources, mirror or kv_sources."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from nats_bridge.client.connection import Connection, open_connection
from nats_bridge.client.jetstream_api import OWN_API, STREAM_NOT_FOUND, Json
from nats_bridge.client.permission_violations import not_allowed, refused_publication, refused_subscription
from nats_bridge.client.stream_advisories import StreamEvents
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import WITHOUT_ADVISORY
from nats_bridge.consuming.consumer_plan import consumer_owner
from nats_bridge.consuming.missing_streams import existing_stream
from nats_bridge.consuming.percent_names import check_percent
from nats_bridge.errors import ApiError, BridgeError, ConfigError, ConnectionLostError, RuleRefusedError
from nats_bridge.kinds.copying.acknowledging import MOST_PENDING, durables
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.kinds.copying.entry import CopyEntry, EntryContext, EntryPlan
from nats_bridge.kinds.copying.entry_subjects import SETS_APART, common_subject, compiled_entry, destinations
from nats_bridge.kinds.copying.model import OBJECT_STREAM, CopyingRule, MirrorRule
from nats_bridge.kinds.copying.position.former_consumers import FormerConsumers
from nats_bridge.kinds.copying.target import OTHERS_UNSEEN, Target
from nats_bridge.observability.rule_metrics import InFlight
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.loops.subject_overlap import are_apart, takes_filters
from nats_bridge.rules.run import RuleRun
from nats_bridge.settings import Settings, Source
from nats_bridge.settings.connect_options import connect_options
from nats_transforms.dialect import Dialect, server_dialect
from nats_transforms.errors import EngineError
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.subject import collide, is_subset, matches

_MOST_FIRST_FILLERS = 1_000_000  # sequences
_CLOSE = 2.0  # seconds for closing the rule's own connection


class CopyRun(RuleRun):
    """One copying rule."""

    rule: CopyingRule

    def __init__(
        self,
        rule: CopyingRule,
        settings: Settings,
        connections: Mapping[str, Connection],
        context: RuleContext,
    ) -> None:
        super().__init__(rule, CopyCounters(), context, rule.target_stream)
        self._owner = consumer_owner(context.sidecar, rule.name)
        self._connections = connections
        self._target = connections[rule.target_connection]
        self._settings = settings
        self._own: Connection | None = None
        self._events = StreamEvents(self._target)
        self._follower: asyncio.Task[None] | None = None
        self._target_config: Json = {}
        self._target_created = ""
        self._plans: list[EntryPlan] = []
        # for each source, the headers that its copies lose by the settings of both streams
        self._lost_headers: list[str] = []
        self._entries: list[CopyEntry] = []

    # -- life (RuleRun) ----------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check target and sources; see `RuleRun`."""
        rule = self.rule
        target = await existing_stream(self._target, rule.name, rule.target_stream)
        self._target_config, self._target_created = target["config"], str(target["created"])
        check_percent(self._target.server_version, f"rule '{rule.name}': target", rule.target_stream)
        self.remarks, self._lost_headers = (), []
        self._check_target(self._target_config)
        names_of = iter(durables(rule, self._context.sidecar))
        self._plans = [
            await self._plan(source, target, next(names_of).name if source.acknowledge else "")
            for source in rule.entries
        ]
        names = [source.name for source in rule.entries]
        old = not self._plans[0].sourcing.dialect.source_record_names_filters
        if old and (twice := next((name for name in names if names.count(name) > 1), None)):
            raise RuleRefusedError(
                f"rule '{rule.name}': source '{twice}' is there twice, and the source records of dialect"
                f" {self._plans[0].sourcing.dialect} do not distinguish them: set dialect 2.10 or newer"
            )

    def _effect_of(self, refusal: str) -> str:
        # The subjects of the target are not in the configuration.
        if refused_subscription(refusal) in [subject.encode() for subject in self._target_config.get("subjects") or ()]:
            return OTHERS_UNSEEN
        return self._connections[self.rule.target_connection].effect_of(refusal)

    async def _open(self) -> dict[str, Any]:
        rule = self.rule
        for lost in self._lost_headers:
            self._log.warning("copying.headers_will_be_lost", meaning=lost)
        options = connect_options(self._settings.connections[rule.target_connection], rule.target_connection)
        # This connection does not receive its own messages.
        self._own = self._target = await open_connection(
            rule.target_connection, {**options, "no_echo": True}, client_name=self._settings.name
        )
        self._own.effect_of = self._effect_of
        self._own.on_end(self._connection_ended)
        self._events = StreamEvents(self._target)
        self.metrics.follow(rule.kind, self.counters, self._in_flight)
        sources = (self._connections[plan.source.connection] for plan in self._plans)
        for connection in dict.fromkeys((self._target, *sources)):
            connection.on_refusal(self._refused)
        former = FormerConsumers(self._connections, self._context.fence)
        self._plans = await former.succeeded_by(self._plans)
        self._entries = [
            CopyEntry(
                EntryContext(
                    plan,
                    self._connections[plan.source.connection],
                    self._target,
                    self.counters,
                    self.metrics,
                    self._context.tracing,
                    self._context.fence,
                ),
                self._fail,
            )
            for plan in self._plans
        ]
        starting = [asyncio.create_task(entry.start()) for entry in self._entries]
        try:
            await asyncio.gather(*starting)
        finally:
            await end_tasks(*starting)  # one that fails leaves the others without an owner
        await former.delete()
        await self._events.open()
        self._follower = asyncio.create_task(self._follow_target())
        return {"sources": [plan.source.name for plan in self._plans]}

    async def _drain(self, *, failed: bool) -> None:
        await end_tasks(self._follower)
        await self._events.close()
        results = await asyncio.gather(
            *(entry.abandon() if failed else entry.stop() for entry in self._entries), return_exceptions=True
        )
        for error in results:
            if isinstance(error, (BridgeError, OSError)):
                self._log.error("rule.drain_incomplete", reason=str(error))
            elif isinstance(error, BaseException):
                raise error

    async def _leave(self) -> None:
        for entry in self._entries:
            await entry.abandon()

    async def _cut(self) -> None:
        for entry in self._entries:
            await entry.end_at_once()

    async def _close(self) -> None:
        await end_tasks(self._follower)
        await self._events.close()
        for plan in self._plans:
            self._connections[plan.source.connection].forget(self._refused)
        if self._own is not None:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE):
                    await self._own.close()

    @property
    def plans(self) -> tuple[EntryPlan, ...]:
        """The plan of each entry, in the rule's order; known after `check`."""
        return tuple(self._plans)

    @property
    def ready(self) -> bool:
        """Whether every entry copies at this moment."""
        return self.state == "ready" and all(entry.ready for entry in self._entries)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The connections of sources and target."""
        return tuple({self._target, *(self._connections[plan.source.connection] for plan in self._plans)})

    def _waits_for(self) -> str | None:
        return next((reason for entry in self._entries if (reason := entry.waiting_for)), None)

    @property
    def has_work(self) -> bool:
        """Whether an entry has messages in flight; see `RuleRun`."""
        return any(entry.has_work for entry in self._entries)

    def status(self) -> dict[str, Any]:
        """Return the state of every entry; see `RuleRun`."""
        return {"stream": self.rule.target_stream, "sources": [entry.status() for entry in self._entries]}

    def _in_flight(self) -> InFlight:
        entries = [entry.in_flight for entry in self._entries]
        oldest = [entry.oldest_ns for entry in entries if entry.oldest_ns]
        return InFlight(sum([entry.messages for entry in entries]), min(oldest, default=0))

    async def _follow_target(self) -> None:
        """Follow changes of the target's configuration: from then on the server may copy natively.

        An entry that copies nothing at the moment would not notice that another client has deleted the target.
        """
        while True:
            await self._events.next(WITHOUT_ADVISORY)
            confirmed = max(entry.target_last for entry in self._entries)
            try:
                target = await self._target.api.stream_info(self.rule.target_stream)
            except ApiError as error:
                if error.err_code == STREAM_NOT_FOUND and self._target_created:
                    self._target_created = ""
                    self._restart_rounds("the target was deleted")
                continue
            created, config = str(target["created"]), target["config"]
            if self._target_created not in ("", created):
                self._restart_rounds("the target was recreated")
            # One of several replicas may not have caught up.
            elif int(target["state"]["last_seq"]) < confirmed and int(config.get("num_replicas", 1)) == 1:
                self._restart_rounds("the target lost the end of its store")
            self._target_created = created
            if config == self._target_config:
                continue
            self._target_config = config
            try:
                self._check_target(config)
                for plan in self._plans:
                    place = f"rule '{self.rule.name}': source '{plan.source.name}'"
                    self._check_native_sources(place, plan.source, plan.sourcing, config)
            except BridgeError as error:
                self._fail(error)
                return
            self._restart_rounds("the target's configuration was changed")

    def _restart_rounds(self, reason: str) -> None:
        for entry in self._entries:
            entry.restart_round(reason)

    def _refused(self, text: str) -> None:
        """Handle a violation of permissions, which may be of any rule on the connection."""
        subject = refused_publication(text)
        mine = [pattern for plan in self._plans for pattern in (*destinations(plan.sourcing), plan.probe)]
        mine += [self.rule.on_rejected.skip.encode()] if self.rule.on_rejected.skip else []
        if subject and any(matches(subject, pattern) for pattern in mine):
            self._fail(not_allowed(f"rule '{self.rule.name}'", text, "publish to the rule's destinations"))

    def _connection_ended(self, reason: str) -> None:
        if self.state == "ready":
            self._fail(ConnectionLostError(f"connection '{self._target.name}': the server ended it ({reason})"))

    # -- refused configurations --------------------------------------------------------------------------------------

    def _check_target(self, config: Json) -> None:
        place = f"rule '{self.rule.name}': stream '{self.rule.target_stream}'"
        if config.get("mirror"):
            raise RuleRefusedError(
                f"{place} is a native mirror, which accepts no messages from clients: copy into an ordinary stream"
            )
        if config.get("sealed"):
            raise RuleRefusedError(f"{place} is sealed: it accepts no more messages")
        if not config.get("subjects"):
            raise RuleRefusedError(
                f"{place} has no subjects, so nothing can be published to it: give it those of the rule's destinations"
            )
        if config.get("retention") != "limits":
            raise RuleRefusedError(
                f"{place} is a {config['retention']} stream: its consumers remove the copies that hold the position:"
                " copy into a stream with limits retention"
            )
        if config.get("no_ack"):
            raise RuleRefusedError(
                f"{place} has no_ack: it never reports what it has stored, so nothing can be copied exactly once"
            )

    async def _plan(self, source: Source, target: Json, durable: str) -> EntryPlan:
        rule = self.rule
        connection = self._connections[source.connection]
        source_stream = await existing_stream(connection, rule.name, source.name)
        place = f"rule '{rule.name}': source '{source.name}'"
        check_percent(connection.server_version, place, source.name, acknowledges=source.acknowledge)
        sourcing = self._compiled(source, self._context.dialect_at(self._target))
        subjects = [subject.encode() for subject in target["config"]["subjects"]]
        patterns = destinations(sourcing)
        probe = common_subject(patterns, subjects)
        if probe is None:
            raise RuleRefusedError(
                f"{place}: stream '{rule.target_stream}' has no subject for"
                f" {', '.join(pattern.decode() for pattern in patterns)}; it has"
                f" {', '.join(target['config']['subjects'])}"
            )
        if self._target.api.prefix != OWN_API and any(pattern.startswith((b"$KV.", b"$OBJ.")) for pattern in patterns):
            raise RuleRefusedError(
                f"{place}: stream '{rule.target_stream}' is a bucket that connection '{rule.target_connection}' reaches"
                f" at {self._target.api.prefix}, and leafnodes between domains pass no message to $KV and $OBJ: connect"
                " to a server of the bucket's own domain, and leave out domain and api_prefix"
            )
        if source_stream["created"] == target["created"] and source.name == rule.target_stream:
            raise RuleRefusedError(f"{place} is the stream itself: detected cycle (10052)", err_code=10052)
        self._check_native_sources(place, source, sourcing, target["config"])
        facts = Target.of(target, self._target.server_version)
        lost = [f"{place}: {each}" for each in _lost_headers(source_stream["config"], facts)]
        self._lost_headers += lost
        remarks = _remarks(source, source_stream["config"], target["config"])
        self.remarks += (*(f"{place}: {each}" for each in remarks), *lost)
        self._check_filters(place, sourcing, source_stream["config"], connection.server_version)
        filters = _consumer_filters(sourcing, source_stream["config"].get("subjects") or (), connection.server_version)
        retention = source_stream["config"]["retention"]
        if durable:
            filters = _acknowledged_filters(place, source, sourcing, source_stream["config"], connection.server_version)
        elif retention != "limits":
            raise RuleRefusedError(
                f"{place} is a {retention} stream, whose messages are removed once its consumers have "
                "acknowledged them: set"
                " acknowledge: true in the source to let the rule do that for each message that is copied"
            )
        last = int(source_stream["state"]["last_seq"])
        if source.opt_start_seq is not None and source.opt_start_seq > last + 1:
            raise RuleRefusedError(
                f"{place}: opt_start_seq {source.opt_start_seq} is beyond its end, its last sequence is {last}:"
                f" at most {last + 1}, which is the next message"
            )
        if isinstance(rule, MirrorRule) and rule.keep_sequence:
            self._check_sequences(rule, place, source_stream, target)
        return EntryPlan(
            rule=rule.name,
            owner=self._owner,
            source=source,
            sourcing=sourcing,
            stream=rule.target_stream,
            probe=probe,
            filters=filters,
            on_recreated=rule.on_recreated,
            sources=len(rule.entries),
            keep_sequence=isinstance(rule, MirrorRule) and rule.keep_sequence,
            filler=rule.filler_subject if isinstance(rule, MirrorRule) else None,
            skip=rule.on_rejected.skip,
            one_by_one=rule.strict_order,
            durable=durable,
            work_queue=retention == "workqueue",
            max_pending=_most_pending(source_stream["config"]),
        )

    def _check_filters(self, place: str, sourcing: Sourcing, source_stream: Json, server_version: str) -> None:
        """Check whether the source can hold any selected message."""
        subjects = [subject.encode() for subject in source_stream.get("subjects") or ()]
        if not subjects or source_stream.get("sources") or source_stream.get("subject_transform"):
            return
        for pattern in sourcing.filters:
            if pattern.startswith(SETS_APART.encode()) or any(collide(pattern, subject) for subject in subjects):
                continue
            said = f"filter '{pattern.decode()}' overlaps none of its subjects, {', '.join(source_stream['subjects'])}"
            if not server_dialect(server_version).consumer_filter_may_miss_subjects:
                raise RuleRefusedError(f"{place}: {said}: choose one of these")
            self._log.warning("rule.selects_nothing", meaning=f"{place}: {said}")

    def _check_sequences(self, rule: MirrorRule, place: str, source_stream: Json, target: Json) -> None:
        """Check whether the target's next sequence can be the source's next one."""
        config = target["config"]
        filler = rule.filler_subject
        if filler is not None and not any(matches(filler.encode(), s.encode()) for s in config["subjects"]):
            raise RuleRefusedError(
                f"{place}: filler_subject '{filler}' is not a subject of stream '{rule.stream}'; it has"
                f" {', '.join(config['subjects'])}"
            )
        if filler is not None and config.get("deny_purge"):
            raise RuleRefusedError(f"{place}: stream '{rule.stream}' has deny_purge: fillers could not be removed")
        if config.get("allow_msg_counter"):
            raise RuleRefusedError(
                f"{place}: stream '{rule.stream}' is a counter stream, which takes neither fillers nor payloads, and"
                " copies there need a source record: leave out keep_sequence"
            )
        for member in ("sources", "subject_delete_marker_ttl"):
            if config.get(member):
                raise RuleRefusedError(
                    f"{place}: stream '{rule.stream}' has {member}: its server stores messages there, which take"
                    " sequences, too; remove it, or leave out keep_sequence"
                )
        have, first = int(target["state"]["last_seq"]), int(source_stream["state"]["first_seq"])
        if first - have - 1 > _MOST_FIRST_FILLERS:
            raise RuleRefusedError(
                f"{place} begins at sequence {first}, '{rule.stream}' would continue at {have + 1}: recreate it with"
                f" first_seq {first} (servers from 2.10 on)"
            )

    def _compiled(self, source: Source, version: Dialect) -> Sourcing:
        try:
            return compiled_entry(source, version, mirrors=isinstance(self.rule, MirrorRule))
        except EngineError as error:
            raise ConfigError(f"rule '{self.rule.name}': source '{source.name}': {error}") from None

    def _check_native_sources(self, place: str, source: Source, sourcing: Sourcing, config: Json) -> None:
        """A stream that the server copies already must not get every message twice."""
        for native in config.get("sources") or ():
            if native["name"] != source.name:
                continue
            theirs = compile_sourcing(native, sourcing.dialect)
            mine = sourcing.filters or (b">",)
            if any(collide(a, b) for a in theirs.filters or (b">",) for b in mine):
                raise RuleRefusedError(
                    f"{place}: stream '{config['name']}' sources it natively already, so messages would be stored"
                    " twice: remove the rule, or the native source"
                )


def _acknowledged_filters(
    place: str, source: Source, sourcing: Sourcing, source_stream: Json, server_version: str
) -> tuple[str, ...]:
    """Return the filters of a consumer that acknowledges: exactly the copied messages, or others would be lost.

    Raises:
        RuleRefusedError: no consumer can select that.
    """
    if source_stream["retention"] == "limits":
        raise RuleRefusedError(
            f"{place} keeps its messages, acknowledged or not (limits retention): remove acknowledge"
        )
    if source.exclude and source_stream["retention"] == "workqueue":
        raise RuleRefusedError(
            f"{place}: what exclude leaves out would be taken out of the work queue and stored nowhere: select what is"
            " wanted by subject_transforms"
        )
    wanted = [
        one for one in sourcing.filters if not any(one != two and is_subset(one, two) for two in sourcing.filters)
    ]
    takes_several = server_dialect(server_version).consumers_take_several_filters
    if len(wanted) > 1 and not (takes_several and are_apart(server_version, wanted)):
        raise RuleRefusedError(
            f"{place}: no consumer of server {server_version} selects exactly"
            f" {', '.join(pattern.decode() for pattern in wanted)}: write an entry for each, none of which overlap"
        )
    return tuple(pattern.decode() for pattern in wanted if pattern != b">")


def _remarks(source: Source, source_stream: Json, target: Json) -> list[str]:
    found = []
    if source.acknowledge:
        found.append(
            "messages are acknowledged when their copies are stored"
            + (", which takes them out of the work queue" if source_stream["retention"] == "workqueue" else "")
        )
    if all(name.startswith(OBJECT_STREAM) for name in (source.name, target["name"])) and not source.rename_objects:
        found.append(
            "copied metadata names the bucket of the source, where some clients then delete and update objects;"
            " rename_objects: true names the one that receives"
        )
    if target.get("allow_msg_counter") and Target.forgets_by(target):
        found.append(
            "the limits of the target may remove the record of the amount added to a counter "
            "(kd/copy/counter-forgotten)"
        )
    return found


def _lost_headers(source_stream: Json, target: Target) -> list[str]:
    """Headers of the source's messages that the target would refuse from a client, by the settings of both."""
    found = []
    if source_stream.get("allow_msg_ttl") and b"Nats-TTL:" in target.withheld:
        found.append(
            "messages with a TTL are copied without it, and stay also if the target gets allow_msg_ttl later: set"
            " allow_msg_ttl in the target before they are copied (kd/copy/withheld)"
        )
    if source_stream.get("allow_msg_schedules"):
        found.append("schedules are copied with renamed headers, and do not act (kd/copy/renamed)")
    if source_stream.get("allow_msg_counter") and not target.counts:
        found.append("counters are copied as totals, with the increments in a renamed header (kd/copy/renamed)")
    return found


def _consumer_filters(sourcing: Sourcing, subjects: Sequence[str], server_version: str) -> tuple[str, ...]:
    """Return the filters that the source's server applies. Other messages are dropped on arrival."""
    filters = sourcing.filters
    if any(all(is_subset(subject.encode(), pattern) for subject in subjects) for pattern in filters if subjects):
        return ()  # it leaves nothing out, and 2.9 sometimes needs a millisecond per message to find that
    if not takes_filters(server_version, filters, subjects):
        return ()
    try:
        return tuple(pattern.decode() for pattern in filters)
    except UnicodeDecodeError:
        return ()


def _most_pending(config: Json) -> int:
    # Below 1 the stream has no limit.
    limit = int((config.get("consumer_limits") or {}).get("max_ack_pending") or 0)
    return min(limit, MOST_PENDING) if limit > 0 else MOST_PENDING
