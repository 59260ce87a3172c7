"""Manages a rule's consumer on the server: finds, takes over, creates and deletes it.

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
* Nothing is changed on the server while the fence is closed, except an ephemeral consumer of this process, and the
  first marker (`keep_start`).
* A durable consumer whose description does not begin with `owner` is refused, and stays as it is.
"""

from __future__ import annotations

import asyncio

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
from nats_bridge.consuming.consumer_plan import (
    ConsumerPlan,
    Edit,
    begins_after,
    done_with,
    edits_between,
    marker_name,
    position_of,
    takeover_position,
)
from nats_bridge.errors import ApiError, ConsumerInUseError, RuleRefusedError

_log = structlog.get_logger("bridge.rule_consumer")

TAKEOVER = 3.0
"""Seconds until the server must have noticed that another process has ended."""

_LEADERLESS = 30.0  # seconds without a leader, while the stream has one, after which it will have none
_NO_LEADER = (0, 10008)  # error codes: an answer that names none, and the server's own
_NOT_UNIQUE = (10099, 10100)  # other consumers of a work queue take the same subjects


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
        begins: the message after which this process begins to read. New consumers and markers keep it with its time.
        begun: the message after which the last process began to read; None if unknown.
        may_be_ahead: whether the server may have restarted since the last acknowledgement, and no time proves the
            position. It may have kept the position, and lost messages before it.
        is_beyond: whether its position was after the end of the stream, so the stream has lost messages before it.
        done: the last message that the rule was done with when it was stopped; None if it was killed, or has a lease.
        unchanged_upto: the stream sequence up to which it was known to be unchanged, if another client has changed it;
            None otherwise.
    """

    def __init__(self, api: JetStreamApi, plan: ConsumerPlan, fence: WriteFence = ALWAYS_OPEN) -> None:
        self.plan = plan
        self.fence = fence
        self._has_lease = fence is not ALWAYS_OPEN
        self._marked = False
        self._delivered_to = ""  # the inbox that the consumer was given last
        self.inbox = ""
        self.name = ""
        self.limit: int | None = None
        self.begins: MessageStamp | None = None
        self.begun: MessageStamp | None = None
        self.may_be_ahead = self.is_beyond = False
        self.done: MessageStamp | None = None
        self.unchanged_upto: int | None = None
        self._config: Json = {}  # as the server has confirmed it
        self._api = api
        self._log = _log.bind(rule=plan.rule, stream=plan.stream)

    @property
    def is_within_limit(self) -> bool:
        """Whether its limit is the present one of the connection."""
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
        self.plan.refuse_foreign(info)
        if await api.consumer_info(plan.stream, marker_name(plan.durable_name)) is not None:
            # The marker of a process that was killed after it had recreated the consumer.
            await api.delete_consumer(plan.stream, marker_name(plan.durable_name), fence=self.fence)
        position = position_of(info)
        self.begun = begins_after(info["config"])
        # A restarted server does not know the time of the last acknowledgement (2.9.10 to 2.15.3).
        is_proven = self._proves(position) or "last_active" in info["ack_floor"]
        self.may_be_ahead = position > 0 and not is_proven
        self.done = done_with(info["config"])
        if self.unchanged_upto is not None:
            position = min(position, self.unchanged_upto)
        reached = max(position, int(info["delivered"]["stream_seq"]))  # it delivers nothing up to there
        last = int((await settled_stream(api, plan.stream, reached))["state"]["last_seq"])
        if reached > last:
            self._log.warning("consumer.stream_shorter", position=position, last_sequence=last)
            self.is_beyond = position > last
            await self._remove(min(position, last))
            return min(position, last)
        return position

    def _proves(self, position: int) -> bool:
        # The time of the message at that position is known.
        return self.begun is not None and self.begun.sequence == position

    async def _marked_position(self) -> int | None:
        """Return the position of a durable consumer that another process was about to recreate."""
        info = await self._api.consumer_info(self.plan.stream, marker_name(self.plan.durable_name))
        if info is None:
            return None
        self.plan.refuse_foreign(info)
        self._marked, self.begun, position = True, begins_after(info["config"]), position_of(info)
        self.may_be_ahead = position > 0 and not self._proves(position)
        return position

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
        said = f"{self.plan.full_description} (done with {done.sequence} of {done.time_ns})"
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
            await api.create_durable(plan.stream, plan.marker(after, self.begins))
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
            await self._take_away(position_of(info))
            return None
        if handled is not None and self._has_moved(info, handled):
            if self._has_lease:
                # Sent since then to a process that may no longer publish.
                await self._take_away(handled)
                return None
            # The process that moved the position has published up to there, also since the last sequences were read.
            raise self._in_use()
        after = position_of(info) if handled is None else handled
        if other := self.plan.differing(info["config"]):
            if info.get("push_bound") and not self._may_take(info):
                raise self._in_use()
            self._log.warning("consumer.reconfigured", consumer=plan.durable_name, fields=other, after=after)
            await self._remove(after)
            return None
        try:
            self.limit = self._limit_of_connection
            description = plan.described(after, self.begins)
            await self._update(plan.bound(info["config"], self.inbox, self.limit, info["delivered"], description))
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

    def _has_moved(self, info: Json, handled: int) -> bool:
        """Return whether another process has moved the position since it was read, or has kept its time since."""
        position = position_of(info)
        if self._has_lease:
            return position > handled
        return position != handled or done_with(info["config"]) != self.done

    def _may_take(self, info: Json) -> bool:
        # Without the lease, only from a lost connection of this process.
        return self._has_lease or info["config"].get("deliver_subject") == self._delivered_to

    def _must_recreate(self, info: Json) -> bool:
        # Some messages are unacknowledged, or other filters may have skipped some before the position.
        return bool(info.get("num_ack_pending") or self.plan.differing(info["config"]))

    def edits(self, info: Json) -> list[Edit]:
        """Return the members that another client has changed since the consumer was created or taken over."""
        return edits_between(self._config, info["config"], self.inbox)

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
        await self._remove(handled)
        self._log.warning("consumer.leaderless", consumer=self.plan.durable_name, after=handled)

    async def _remove(self, handled: int) -> None:
        """Delete the durable consumer; `create` recreates it after stream sequence `handled`."""
        plan = self.plan
        if plan.work_queue:
            await self._api.delete_consumer(plan.stream, plan.durable_name, fence=self.fence)
            return
        await self._api.delete_consumer(plan.stream, marker_name(plan.durable_name), fence=self.fence)
        await self._api.create_durable(plan.stream, plan.marker(handled, self.begins), fence=self.fence)
        self._marked = True
        await self._api.delete_consumer(plan.stream, plan.durable_name, fence=self.fence)

    async def _take_away(self, handled: int) -> None:
        # Another process reads the consumer.
        await self._remove(handled)
        if not self.plan.work_queue:
            self._log.warning("consumer.taken_over", consumer=self.plan.durable_name, after=handled)

    async def create(self, handled: int) -> None:
        """Create a consumer that delivers the messages after stream sequence `handled` to the inbox."""
        plan = self.plan
        self.limit = self._limit_of_connection
        begins = {"deliver_policy": "by_start_sequence", "opt_start_seq": handled + 1}
        description = {"description": plan.full_description}
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
            self.name, self._config, self._delivered_to = info["name"], info["config"], self.inbox
            return
        try:
            start = {"deliver_policy": "all"} if plan.work_queue else begins
            described = {"description": plan.described(handled, self.begins)}
            await self._update(plan.wanted(self.inbox, self.limit) | start | described)
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
        self.limit = self._limit_of_connection
        await self._update(self.plan.bound(info["config"], self.inbox, self.limit))

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

    def is_ours(self, info: Json) -> bool:
        """Return whether it delivers to the inbox, or still to the previous one of this process."""
        return info["config"].get("deliver_subject") in (self.inbox, self._delivered_to)

    def last_delivered_here(self, info: Json) -> tuple[int, int] | None:
        """Return the stream and consumer sequence of the last delivery to the inbox; None if unknown."""
        if self.delivers_here(info):
            return int(info["delivered"]["stream_seq"]), int(info["delivered"]["consumer_seq"])
        return takeover_position(info["config"], self.inbox)

    def has_sent(self, reply: bytes) -> bool:
        """Return whether a reply subject is from this consumer, and not made up by another client."""
        return acknowledges(reply, self.plan.stream.encode(), self.name.encode())

    def reply(self, stream_sequence: int, consumer_sequence: int) -> bytes:
        """Return the reply subject that acknowledges a message at the consumer whose delivery of it did not arrive.

        Its time is 0, because the message's time is unknown.
        """
        stream, name = self.plan.stream.encode(), self.name.encode()
        return b"$JS.ACK.%b.%b.1.%d.%d.0.0" % (stream, name, stream_sequence, consumer_sequence)

    def numbered(self, batch: list[Delivered], consumer_sequence: int) -> list[Delivered]:
        """Return a batch of a replay, with the last reply subject changed to that of the durable consumer."""
        subject, reply, block, payload = batch[-1]
        tokens = reply.split(b".")
        at = 3 if len(tokens) == 9 else 5  # with a domain and an account before the stream
        tokens[at] = self.plan.durable_name.encode()
        tokens[at + 3] = b"%d" % consumer_sequence
        return [*batch[:-1], (subject, b".".join(tokens), block, payload)]

    def _in_use(self) -> ConsumerInUseError:
        return ConsumerInUseError(
            f"consumer '{self.plan.durable_name}' of stream '{self.plan.stream}' is in use by another process:"
            " stop that one, or set `leadership: {}` for both, so that one is on standby"
            " (under another name, every message would arrive twice)"
        )
