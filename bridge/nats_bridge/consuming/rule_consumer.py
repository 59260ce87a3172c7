"""Manages a rule's consumer on the server: finds, takes over, creates, deletes and acknowledges.

Theory of operation. The consumer of a durable rule keeps the position on the server, and its description names its
owner. With `ack_policy: none` (at_most_once), a sent message is done; with `all` (at_least_once), an acknowledged one
is. The ordered reader handles its deliveries.

If each message is acknowledged one by one (`ack_policy: explicit`), the server redelivers unacknowledged messages late,
after newer ones. So such a consumer is recreated at its position, and delivers them first and in order. A work queue
allows no second consumer of the same subjects, and keeps unacknowledged messages, so it needs no marker.

The holder of the rule's lease takes the durable consumer from any process that is bound to it: a paused one, or one
that reaches only the consumer's server. A sidecar without a lease takes it only while no process is bound to it.

A bound consumer cannot be moved to another inbox, nor one whose inbox any subscription matches, such as one to `>`
(2.9.10 to 2.15.1 check only that, while `push_bound` reports whether a client subscribes to the inbox itself).
So it is deleted and recreated at its position. Between the two, a marker keeps the position: a second consumer that
no client reads from.

A process that takes over a consumer writes into its description the previous inbox and the last delivery to it. The
process with that inbox may still be draining. It publishes messages up to that delivery again if it missed them, and
none of its successor's.

Worked example: rule `copy` of sidecar `shop` confirms what it has published. Process A reads through inbox a, and is
paused. Its consumer `shop_copy` has delivered up to sequence 40, and 35 is acknowledged. Process B gets the lease.

    B: CONSUMER.INFO                  bound to inbox a, ack floor 35
    B: create `shop_copy_moving`      the marker, from 36 on: no client reads from it
    B: delete `shop_copy`             A gets nothing more
       (if B is killed here, the next leader finds 35 by the marker)
    B: create `shop_copy`             from 36 on, to inbox b
    B: delete `shop_copy_moving`      36 to 40 are delivered again, to B

Invariants:

* The consumer or its marker exists at every moment after the first start, except in a work queue.
* A position is never after a message that is unacknowledged (`confirmed`) or unsent (`sent`).
* Nothing is changed on the server while the fence is closed, except an ephemeral consumer of this process.
* A durable consumer whose description does not begin with `owner` is refused, and stays as it is.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import structlog

from nats_bridge.client.consumer_names import release_name
from nats_bridge.client.jetstream_api import CONSUMER_IN_USE, JetStreamApi, Json
from nats_bridge.client.settled_stream import settled_stream
from nats_bridge.client.stream_identity import MessageStamp
from nats_bridge.client.waiting import NOT_NOTICED
from nats_bridge.client.wire import Delivered
from nats_bridge.client.write_fence import ALWAYS_OPEN, WriteFence
from nats_bridge.consuming import replay
from nats_bridge.consuming.ack_reply import acknowledges
from nats_bridge.errors import ApiError, ConsumerInUseError, RuleRefusedError

_log = structlog.get_logger("bridge.rule_consumer")

TAKEOVER = 3.0
"""Seconds until the server must have noticed that another process has ended."""

_MOST_UNCONFIRMED = 1_000_000  # messages
_SELECTING = ("filter_subject", "filter_subjects", "headers_only")
_LASTING = ("flow_control", "idle_heartbeat", "replay_policy")  # no update changes them
_ACTING = (
    *(*_SELECTING, *_LASTING, "ack_policy", "ack_wait", "backoff", "deliver_group", "inactive_threshold"),
    *("max_ack_pending", "max_deliver", "rate_limit_bps"),
)
"""Members of a configuration that decide which messages a consumer delivers, and when."""
_KEPT = ("deliver_policy", "opt_start_seq", "opt_start_time", "mem_storage", "num_replicas", "sample_freq")
_ACK_POLICY = {"none": "none", "sent": "none", "confirmed": "all", "acknowledged": "explicit"}
_ACK_WAIT = 60  # seconds until a message whose acknowledgement was lost comes again
_LEADERLESS = 30.0  # seconds without a leader, while the stream has one, after which it will have none
_NO_LEADER = (0, 10008)  # error codes: an answer that names none, and the server's own
_TAKEN = re.compile(r" \(from (\S+) after (\d+), delivery (\d+)\)$")  # the end of a description, by `_bound`
_DONE = re.compile(r" \(done with (\d+) of (\d+)\)$")  # the end of a description, by `keep_time`
_LONGEST = 3800  # bytes of a description without the suffix; servers accept 4096
_NOT_UNIQUE = (10099, 10100)  # other consumers of a work queue take the same subjects


def durable_name(sidecar: str, rule: str) -> str:
    """Return the name of a rule's durable consumer, made of the names of sidecar and rule."""
    return f"{sidecar}_{rule}"


def consumer_owner(sidecar: str, rule: str) -> str:
    """Return the start of the description of a rule's consumers, and of no others."""
    return f"nats-bridge {sidecar}/{rule}:"


def marker_name(durable: str) -> str:
    """Return the name of the consumer that keeps a durable consumer's position while that one is recreated."""
    return f"{durable}_moving"


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable consumer that keeps a rule's position. It stays on its server when the rule is removed.

    Attributes:
        stream: the stream that it reads.
        connection: the connection that holds the stream.
        owner: how its description begins.
    """

    stream: str
    connection: str
    name: str
    owner: str

    @classmethod
    def of(cls, rule: str, stream: str, connection: str, sidecar: str) -> Durable:
        """Return the durable consumer of a rule that has exactly one."""
        return cls(stream, connection, durable_name(sidecar, rule), consumer_owner(sidecar, rule))


class Edit(NamedTuple):
    """A member of a consumer's configuration that another client has changed.

    Attributes:
        found: the value found; None if it is not set.
        expected: its value when the consumer was created or taken over.
    """

    field: str
    found: Any
    expected: Any

    @property
    def needs_another(self) -> bool:
        """Whether only a new consumer can deliver the missing messages again."""
        return self.field in (*_SELECTING, *_LASTING, "ack_policy", "deliver_subject")


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """The way a rule reads its stream.

    Attributes:
        filters: the subjects to read; none for all (then a jump in the sequences means removed messages). Only servers
            from 2.10 on support more than one.
        headers_only: leave payloads on the server.
        position: `none` (ephemeral), `sent` (durable, moves as messages are sent), `confirmed` (durable, moves
            with acknowledgements) or `acknowledged` (durable, each message is acknowledged one by one).
        durable_name: the durable consumer's name.
        owner: the start of the consumer's description; a durable consumer with another start belongs to someone else.
        rule: the rule's name, for the log.
        description: the rest of its description.
        direct: use a consumer that work-queue and interest streams do not count as one of theirs.
        work_queue: whether the stream is a work queue.
        max_pending: with `acknowledged`, the limit of unacknowledged messages.
    """

    stream: str
    filters: tuple[str, ...]
    headers_only: bool
    position: Literal["none", "sent", "confirmed", "acknowledged"]
    durable_name: str
    owner: str
    rule: str
    description: str
    direct: bool = False
    work_queue: bool = False
    max_pending: int = 0


class RuleConsumer:
    """The consumer of one rule.

    Args:
        plan: how to read.
        fence: the rule's. With a lease, the durable consumer is taken without asking, and changed only while it is
            open.

    Attributes:
        inbox: the deliver subject; set before `take_over` and `create`.
        name: its name on the server, empty before there is one.
        limit: the number of unacknowledged messages that it may send ahead; None for no limit.
        may_be_ahead: whether the server has restarted since the last acknowledgement. It may have kept the position,
            and lost messages before it.
        done: the last message that the rule was done with when it was stopped; None if it was killed, or has a lease.
        unchanged_upto: the stream sequence up to which it was known to be unchanged, if another client has changed it;
            None otherwise.
    """

    def __init__(self, api: JetStreamApi, plan: ConsumerPlan, fence: WriteFence = ALWAYS_OPEN) -> None:
        self.plan = plan
        self.fence = fence
        self._has_lease = fence is not ALWAYS_OPEN
        self._marked = False
        self._delivered_to = ""  # the inbox that the durable consumer was given last
        self.inbox = ""
        self.name = ""
        self.limit: int | None = None
        self.may_be_ahead = False
        self.done: MessageStamp | None = None
        self.unchanged_upto: int | None = None
        self._config: Json = {}  # as the server has confirmed it
        self._api = api

    @property
    def is_within_limit(self) -> bool:
        """Whether it sends ahead no more messages than its connection allows."""
        return self.limit == self._limit_of_connection

    @property
    def is_limited(self) -> bool:
        """Whether the connection limits the messages sent ahead."""
        return self._limit_of_connection is not None

    @property
    def _limit_of_connection(self) -> int | None:
        if self.plan.position == "sent" or self.plan.direct:
            return None  # the position of one is the last sent message; the other has no acknowledgements
        if self.plan.position == "none" and "%" in self.plan.stream:
            return None  # servers may not accept acknowledgements
        return self._api.delivery_limit.messages

    async def position(self, *, otherwise: int | None = None) -> int | None:
        """Return the stream sequence up to which the durable consumer is done.

        None if it does not exist or is not the rule's.

        Args:
            otherwise: the sequence after which to recreate a durable consumer that stays without a leader; None if only
                that consumer has the position.

        Raises:
            RuleRefusedError: another process is bound to it, or it has another owner.
            ApiError: the server refuses.
        """
        try:
            return await self._position()
        except ApiError as error:
            if otherwise is None or not await self.is_leaderless(error):
                raise
        await self.remove_leaderless(otherwise)
        return await self._marked_position()

    async def _position(self) -> int | None:
        api, plan = self._api, self.plan
        if plan.position == "none":
            return None
        deadline = asyncio.get_running_loop().time() + TAKEOVER
        # While another process is bound, the position moves. The server notices a killed process after a moment.
        while (info := await api.consumer_info(plan.stream, plan.durable_name)) and info.get("push_bound"):
            if self._may_take(info):
                break
            if asyncio.get_running_loop().time() > deadline:
                raise self._in_use()
            await NOT_NOTICED.pause()
        if info is None:
            return await self._marked_position()
        self._refuse_foreign(info)
        if await api.consumer_info(plan.stream, marker_name(plan.durable_name)) is not None:
            # The marker of a process that was killed after it had recreated the consumer.
            await api.delete_consumer(plan.stream, marker_name(plan.durable_name), fence=self.fence)
        position = _position_of(info)
        floor = info["ack_floor"]
        self.may_be_ahead = bool(floor["consumer_seq"]) and "last_active" not in floor  # 2.9.10 to 2.15.3
        done = _DONE.search(str(info["config"].get("description", "")))
        self.done = MessageStamp(int(done[1]), int(done[2])) if done else None
        if self.unchanged_upto is not None:
            position = min(position, self.unchanged_upto)
        last = int((await settled_stream(api, plan.stream, position))["state"]["last_seq"])
        if position > last:
            _log.warning(
                "consumer.stream_shorter",
                rule=plan.rule,
                stream=plan.stream,
                position=position,
                last_sequence=last,
            )
            await api.delete_consumer(plan.stream, plan.durable_name, fence=self.fence)
            return last
        return position

    async def _marked_position(self) -> int | None:
        """Return the position of a durable consumer that another process was about to recreate."""
        info = await self._api.consumer_info(self.plan.stream, marker_name(self.plan.durable_name))
        if info is None:
            return None
        self._refuse_foreign(info)
        self._marked = True
        return _position_of(info)

    async def move_back(self, after: int) -> None:
        """Delete the durable consumer. `create` recreates it after an earlier stream sequence."""
        await self._remove(after)

    async def keep_time(self, done: MessageStamp) -> None:
        """Write the last message that the rule is done with into the durable consumer's description.

        A lease has it, too. The next process sees by its time whether the stream has lost it. Nothing is written if
        another client has changed the consumer, because that process must find the change.
        """
        info = await self.info()
        if info is None or not self.delivers_here(info) or self.edits(info):
            return
        said = _shortened(f"{self.plan.owner}{self.plan.description}")
        said += f" (done with {done.sequence} of {done.time_ns})"
        await self._update(info["config"] | {"description": said})

    async def keep_start(self, after: int) -> bool:
        """Keep a first position with a marker, unless one exists. Any replica may do this, without the lease.

        Returns:
            Whether this replica has created the marker.
        """
        api, plan = self._api, self.plan
        marker = marker_name(plan.durable_name)
        for name in (plan.durable_name, marker):
            if await api.consumer_info(plan.stream, name) is not None:
                return False
        try:
            await api.create_durable(plan.stream, self._marker(after))
        except ApiError:
            if await api.consumer_info(plan.stream, marker) is None:
                raise
            return False  # of another replica, which was faster
        if await api.consumer_info(plan.stream, plan.durable_name) is not None:  # created by the leader since
            await api.delete_consumer(plan.stream, marker)
            return False
        return True

    async def take_over(self, handled: int | None) -> Json | None:
        """Make the existing durable consumer deliver to the inbox.

        Args:
            handled: the position that was read before, to see whether it has moved since; None if this process moved
                it.

        Returns:
            The state as in `CONSUMER.INFO`; None if no usable consumer exists.

        Raises:
            RuleRefusedError: another process is bound to it, or was since its position was read.
        """
        api, plan = self._api, self.plan
        if plan.position == "none":
            return None
        info = await api.consumer_info(plan.stream, plan.durable_name)
        if info is None:
            return None
        if plan.position == "acknowledged" and (info.get("push_bound") or self._must_recreate(info)):
            if info.get("push_bound") and not self._may_take(info):
                raise self._in_use()
            await self._take_away(_position_of(info))
            return None
        if info["config"].get("ack_policy") != _ACK_POLICY[plan.position]:
            # The delivery mode changed, so a consumer of the other kind takes over the position.
            await api.delete_consumer(plan.stream, plan.durable_name, fence=self.fence)
            return None
        if handled is not None and _position_of(info) > handled:
            if self._has_lease:
                # Sent since then to a process that may no longer publish.
                await self._take_away(handled)
                return None
            # The process that moved the position has published up to there, also since the last sequences were read.
            raise self._in_use()
        after = _position_of(info) if handled is None else handled
        if other := self._differing(info["config"]):
            if info.get("push_bound") and not self._may_take(info):
                raise self._in_use()
            _log.warning(
                "consumer.reconfigured",
                rule=plan.rule,
                stream=plan.stream,
                consumer=plan.durable_name,
                fields=other,
                after=after,
            )
            await self._remove(after)
            return None
        try:
            await self._update(self._bound(info["config"], info["delivered"]))
        except ApiError as error:
            if error.err_code != CONSUMER_IN_USE:
                raise
            if not self._has_lease:
                newest = await api.consumer_info(plan.stream, plan.durable_name)
                if newest is not None and newest.get("push_bound"):  # a client subscribes to the consumer's own inbox
                    raise self._in_use() from None
            await self._take_away(after)
            return None
        self.name, self._delivered_to = plan.durable_name, self.inbox
        return info

    def _may_take(self, info: Json) -> bool:
        # Without the lease, only from a lost connection of this process.
        return self._has_lease or info["config"].get("deliver_subject") == self._delivered_to

    def _must_recreate(self, info: Json) -> bool:
        # Some messages are unacknowledged, or other filters may have skipped some before the position.
        return bool(info.get("num_ack_pending") or self._differing(info["config"]))

    def _differing(self, config: Json) -> list[str]:
        # A server that has searched for messages of other filters does not search the part again that it has passed.
        wanted = self._wanted
        return [name for name in (*_SELECTING, *_LASTING) if (config.get(name) or None) != wanted.get(name)]

    def edits(self, info: Json) -> list[Edit]:
        """Return the members that another client has changed since the consumer was created or taken over.

        Another process of this rule that delivers to itself has taken it over. That is not an edit.
        """
        found, expected = info["config"], self._config
        edits = [Edit(name, found.get(name), expected.get(name)) for name in _ACTING if name in found.keys() | expected]
        to = str(found.get("deliver_subject", ""))
        if to.rpartition(".")[0] != self.inbox.rpartition(".")[0]:
            edits.append(Edit("deliver_subject", to or None, self.inbox))
        return [edit for edit in edits if (edit.found or None) != (edit.expected or None)] if expected else []

    async def is_leaderless(self, error: ApiError) -> bool:
        """Return whether the durable consumer stays without a leader while its stream has one.

        Waits until that is certain.

        Servers 2.10 sometimes leave a consumer so permanently, if all are killed right after it was created.

        Args:
            error: the answer to a request about the consumer.

        Raises:
            ApiError: no answer about the stream.
        """
        api, plan, loop = self._api, self.plan, asyncio.get_running_loop()
        deadline = loop.time() + _LEADERLESS
        while (error.http_code == 503 and error.err_code in _NO_LEADER) or (error.passing and loop.time() < deadline):
            stream = await api.stream_info(plan.stream)
            if not (stream.get("cluster") or {}).get("leader"):
                break
            if loop.time() >= deadline:
                return True
            await asyncio.sleep(_LEADERLESS / 60)
            try:
                await api.consumer_info(plan.stream, plan.durable_name, patience=0)
            except ApiError as newest:
                error = newest
            else:
                break
        return False

    async def remove_leaderless(self, handled: int) -> None:
        """Delete the durable consumer, which has no leader; `create` recreates it after stream sequence `handled`."""
        plan = self.plan
        await self._remove(handled)
        _log.warning(
            "consumer.leaderless", rule=plan.rule, stream=plan.stream, consumer=plan.durable_name, after=handled
        )

    async def _remove(self, handled: int) -> None:
        """Delete the durable consumer; `create` recreates it after stream sequence `handled`."""
        plan = self.plan
        if plan.work_queue:
            await self._api.delete_consumer(plan.stream, plan.durable_name, fence=self.fence)
            return
        await self._api.delete_consumer(plan.stream, marker_name(plan.durable_name), fence=self.fence)
        await self._api.create_durable(plan.stream, self._marker(handled), fence=self.fence)
        self._marked = True
        await self._api.delete_consumer(plan.stream, plan.durable_name, fence=self.fence)

    def _marker(self, handled: int) -> Json:
        plan = self.plan
        return {
            "durable_name": marker_name(plan.durable_name),
            "description": f"{plan.owner} the position of {plan.durable_name} until that is created",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": handled + 1,
            "ack_policy": "explicit",
            **replay.filter_members(plan.filters),
        }

    async def _take_away(self, handled: int) -> None:
        """Delete the durable consumer that another process reads. `create` recreates it."""
        plan = self.plan
        await self._remove(handled)
        if not plan.work_queue:
            _log.warning(
                "consumer.taken_over", rule=plan.rule, stream=plan.stream, consumer=plan.durable_name, after=handled
            )

    async def create(self, handled: int) -> None:
        """Create a consumer that delivers the messages after stream sequence `handled` to the inbox."""
        plan = self.plan
        self.limit = self._limit_of_connection
        begins = {"deliver_policy": "by_start_sequence", "opt_start_seq": handled + 1}
        description = {"description": _shortened(f"{plan.owner}{plan.description}")}
        if plan.position == "none":
            config = replay.ephemeral_config(
                self.inbox,
                filters=plan.filters,
                headers_only=plan.headers_only,
                direct=plan.direct,
                limit=self.limit,
            )
            config |= begins | description
            release_name(plan.stream, self.name)  # the name of the previous consumer
            prefix = replay.name_prefix(config)
            info = await self._api.create_ephemeral(plan.stream, config, "read", prefix)
            self.name, self._config = info["name"], info["config"]
            return
        try:
            await self._update(self._wanted | ({"deliver_policy": "all"} if plan.work_queue else begins))
        except ApiError as error:
            if error.err_code not in _NOT_UNIQUE:
                raise
            raise RuleRefusedError(
                f"rule '{plan.rule}': other consumers of work queue '{plan.stream}' take the same subjects"
                f" ({error.description}, {error.err_code}): give each of them subjects of its own"
            ) from None
        self.name, self._delivered_to, self.unchanged_upto = plan.durable_name, self.inbox, None
        if self._marked or self._has_lease:  # a standby may just have made one
            await self._api.delete_consumer(plan.stream, marker_name(plan.durable_name), fence=self.fence)
            self._marked = False

    async def keep_limit(self, info: Json) -> None:
        """Update the durable consumer with this `CONSUMER.INFO` to the present limit of the connection."""
        await self._update(self._bound(info["config"]))

    async def _update(self, config: Json) -> None:
        self._config = (await self._api.create_durable(self.plan.stream, config, fence=self.fence))["config"]

    async def info(self, *, patience: float | None = None) -> Json | None:
        """Return `CONSUMER.INFO`; None if the consumer does not exist. `patience` is that of `JetStreamApi.request`."""
        return await self._api.consumer_info(self.plan.stream, self.name, patience=patience) if self.name else None

    async def delete(self) -> None:
        """Delete it, if there is one."""
        if self.name:
            fence = ALWAYS_OPEN if self.plan.position == "none" else self.fence
            await self._api.delete_consumer(self.plan.stream, self.name, fence=fence)

    async def discard(self) -> None:
        """Delete the durable consumer, and the marker that kept its position."""
        await self._api.delete_consumer(self.plan.stream, self.plan.durable_name, fence=self.fence)
        if self._marked:
            await self._api.delete_consumer(self.plan.stream, marker_name(self.plan.durable_name), fence=self.fence)

    def delivers_here(self, info: Json) -> bool:
        """Return whether it still delivers to the inbox."""
        return bool(info["config"].get("deliver_subject") == self.inbox)

    def last_delivered_here(self, info: Json) -> tuple[int, int] | None:
        """Return the stream and consumer sequence of the last delivery to the inbox; None if unknown."""
        if self.delivers_here(info):
            return int(info["delivered"]["stream_seq"]), int(info["delivered"]["consumer_seq"])
        takeover = _TAKEN.search(str(info["config"].get("description", "")))
        if takeover is None or takeover[1] != self.inbox:
            return None
        return int(takeover[2]), int(takeover[3])

    def has_sent(self, reply: bytes) -> bool:
        """Return whether a reply subject is from this consumer, and not made up by another client."""
        return acknowledges(reply, self.plan.stream.encode(), self.name.encode())

    def reply(self, stream_sequence: int, consumer_sequence: int) -> bytes:
        """Return the reply subject that acknowledges a message at the consumer whose delivery of it did not arrive."""
        return b"$JS.ACK.%b.%b.1.%d.%d.%d.0" % (
            self.plan.stream.encode(),
            self.name.encode(),
            stream_sequence,
            consumer_sequence,
            time.time_ns(),
        )

    def numbered(self, batch: list[Delivered], consumer_sequence: int) -> list[Delivered]:
        """Return a batch of a replay, with the last reply subject changed to that of the durable consumer."""
        subject, reply, block, payload = batch[-1]
        tokens = reply.split(b".")
        at = 3 if len(tokens) == 9 else 5  # with a domain and an account before the stream
        tokens[at] = self.plan.durable_name.encode()
        tokens[at + 3] = b"%d" % consumer_sequence
        return [*batch[:-1], (subject, b".".join(tokens), block, payload)]

    @property
    def _acknowledging(self) -> Json:
        """The acknowledgement policy of the durable consumer, and its limit for unacknowledged messages."""
        policy: Json = {"ack_policy": _ACK_POLICY[self.plan.position]}
        if self.plan.position == "confirmed":
            policy |= {"ack_wait": replay.LATE_ACK, "max_ack_pending": self.limit or _MOST_UNCONFIRMED}
        elif self.plan.position == "acknowledged":
            most = self.plan.max_pending
            policy |= {"ack_wait": _ACK_WAIT * 10**9, "max_ack_pending": min(self.limit or most, most)}
        return policy

    def _bound(self, config: Json, last_delivery: Json | None = None) -> Json:
        """Return an existing consumer's configuration, changed to deliver to the inbox as planned.

        Args:
            config: its present one.
            last_delivery: the last delivery to the inbox that it has at present, if another one follows.
        """
        self.limit = self._limit_of_connection
        bound = self._wanted | {name: config[name] for name in _KEPT if name in config}
        if last_delivery is None:
            return bound | {"description": str(config.get("description", ""))}
        last = f"after {last_delivery['stream_seq']}, delivery {last_delivery['consumer_seq']}"
        bound["description"] += f" (from {config.get('deliver_subject')} {last})"
        return bound

    @property
    def _wanted(self) -> Json:
        """The configuration of the durable consumer, without its start."""
        plan = self.plan
        config = replay.push_config(self.inbox, plan.filters, headers_only=plan.headers_only)
        description = _shortened(f"{plan.owner}{plan.description}")
        return config | {"durable_name": plan.durable_name, "description": description, **self._acknowledging}

    def _refuse_foreign(self, info: Json) -> None:
        if not (said := str(info["config"].get("description", ""))).startswith(self.plan.owner):
            raise RuleRefusedError(
                f"consumer '{info['name']}' of stream '{self.plan.stream}' is not this rule's ('{said[:200]}'):"
                " give this sidecar or rule another name, or delete that consumer"
            )

    def _in_use(self) -> ConsumerInUseError:
        return ConsumerInUseError(
            f"consumer '{self.plan.durable_name}' of stream '{self.plan.stream}' is in use by another process:"
            " stop that one, or set `leadership: {}` for both, so that one is on standby"
            " (under another name, every message would arrive twice)"
        )


def _position_of(info: Json) -> int:
    """Return the stream sequence up to which the rule's durable consumer has acknowledged."""
    config = info["config"]
    state = info["delivered"] if config.get("ack_policy") == "none" else info["ack_floor"]
    if int(state["consumer_seq"]):
        return int(state["stream_seq"])
    return int(config.get("opt_start_seq") or 1) - 1


def _shortened(description: str) -> str:
    # `_bound` appends its suffix.
    return description.encode()[:_LONGEST].decode(errors="ignore")
