"""A rule's consumer as the server has it: found, taken over, made, deleted, and acknowledged from outside.

A durable rule's consumer keeps the position on the server (`ack_policy: none` for at_most_once: sent is done; `all`
for at_least_once), and says in its description whose it is. What is delivered is the intake's business.

Who holds the rule's lease takes the durable consumer from whatever process is bound to it: a paused one, or one that
is cut off from everything but the consumer's server. Who has no lease takes it only while nobody is bound to it.

A bound consumer cannot be moved to another inbox, nor one whose inbox any subscription matches, such as one to `>`
(2.9.10 to 2.15.1, which look at that alone, while `push_bound` says whether somebody subscribes to the inbox itself).
So it is deleted and recreated at its position. Between the two, a marker keeps the position: a second consumer that
nobody reads from.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

import structlog

from nats_bridge.bridge.client.jetstream_api import CONSUMER_IN_USE, JetStreamApi, Json
from nats_bridge.bridge.client.settled_stream import settled_stream
from nats_bridge.bridge.client.wire import Delivered
from nats_bridge.bridge.client.write_fence import ALWAYS_OPEN, Gate
from nats_bridge.bridge.consuming import replay
from nats_bridge.bridge.errors import ApiError, RuleRefusedError

__all__ = ["TAKEOVER", "ConsumerPlan", "Durable", "RuleConsumer", "consumer_owner", "durable_name", "marker_name"]

_log = structlog.get_logger("bridge.rule_consumer")

TAKEOVER = 3.0
"""Seconds until the server must have noticed that another process is gone."""

_POLL = 0.05  # seconds between two looks at what the server has not noticed yet
_MOST_UNCONFIRMED = 1_000_000  # messages
_FILTERS = ("metadata", "filter_subject", "filter_subjects")  # not to be sent back as they are
_ACK_POLICY = {"none": "none", "sent": "none", "confirmed": "all"}


def durable_name(sidecar: str, rule: str) -> str:
    """The name of a rule's durable consumer: it carries the sidecar's and the rule's."""
    return f"{sidecar}_{rule}"


def consumer_owner(sidecar: str, rule: str) -> str:
    """How the description of a rule's consumers begins, and nobody else's."""
    return f"nats-bridge {sidecar}/{rule}:"


def marker_name(durable: str) -> str:
    """The name of the consumer that keeps a durable consumer's position while that one is recreated."""
    return f"{durable}_moving"


@dataclass(frozen=True, slots=True)
class Durable:
    """A durable consumer that keeps a rule's position. It stays on its server when the rule is gone.

    Attributes:
        rule: the rule that it was created for.
        stream: the stream that it reads.
        connection: the connection that holds the stream.
        name: its name.
        owner: how its description begins.
    """

    rule: str
    stream: str
    connection: str
    name: str
    owner: str


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """How a rule reads its stream.

    Attributes:
        stream: its name.
        filters: only these subjects; none for all (then jumps in the sequences mean removed messages). More than one
            only on servers from 2.10 on.
        headers_only: leave payloads on the server.
        position: `none` (ephemeral), `sent` (durable, moves as messages are sent) or `confirmed` (durable, moves
            with acknowledgements).
        durable_name: the durable consumer's name.
        owner: how the consumer's description begins; a durable one that begins otherwise is not ours.
        rule: the rule's name, for the log.
        description: the rest of its description.
        direct: use a consumer that work-queue and interest streams do not count as one of theirs.
    """

    stream: str
    filters: tuple[str, ...]
    headers_only: bool
    position: Literal["none", "sent", "confirmed"]
    durable_name: str
    owner: str
    rule: str
    description: str
    direct: bool = False


class RuleConsumer:
    """The consumer of one rule.

    Args:
        api: the connection's API.
        plan: how to read.
        gate: the rule's. Who has a lease asks nobody for the durable consumer, and touches it only while it is open.

    Attributes:
        inbox: where it delivers; set before `take_over` and `create`.
        name: its name on the server, empty before there is one.
        limit: how many messages it sends ahead of acknowledgements; None for any number.
    """

    def __init__(self, api: JetStreamApi, plan: ConsumerPlan, gate: Gate = ALWAYS_OPEN) -> None:
        self.plan = plan
        self._gate = gate
        self._has_lease = gate is not ALWAYS_OPEN
        self._marked = False
        self.inbox = ""
        self.name = ""
        self.limit: int | None = None
        self._api = api

    @property
    def is_within_limit(self) -> bool:
        """Whether it sends as many messages ahead as its connection takes."""
        return self.limit == self._limit_of_connection

    @property
    def _limit_of_connection(self) -> int | None:
        if self.plan.position == "sent" or self.plan.direct:
            return None  # the position of the one is what was sent; the other knows no acknowledgements
        return self._api.delivery_limit.messages

    async def position(self) -> int | None:
        """The stream sequence up to which an existing durable consumer is done; None if there is none of ours.

        Raises:
            RuleRefusedError: another process is bound to it, or it was made by somebody else.
            ApiError: the server refuses.
        """
        api, plan = self._api, self.plan
        if plan.position == "none":
            return None
        deadline = asyncio.get_running_loop().time() + TAKEOVER
        # While another process is bound the position moves; one that was killed is noticed after a moment.
        while (info := await api.consumer_info(plan.stream, plan.durable_name)) and info.get("push_bound"):
            if self._has_lease:
                break
            if asyncio.get_running_loop().time() > deadline:
                raise self._in_use()
            await asyncio.sleep(_POLL)
        if info is None:
            return await self._marked_position()
        self._refuse_foreign(info)
        if await api.consumer_info(plan.stream, marker_name(plan.durable_name)) is not None:
            # Of a process that was killed after it had recreated the consumer.
            await api.delete_consumer(plan.stream, marker_name(plan.durable_name), gate=self._gate)
        position = _position_of(info)
        last = int((await settled_stream(api, plan.stream, position))["state"]["last_seq"])
        if position > last:
            _log.warning(
                "consumer.stream_shorter",
                rule=plan.rule,
                stream=plan.stream,
                position=position,
                last_sequence=last,
            )
            await api.delete_consumer(plan.stream, plan.durable_name, gate=self._gate)
            return last
        return position

    async def _marked_position(self) -> int | None:
        """The position of a durable consumer that somebody was about to recreate."""
        info = await self._api.consumer_info(self.plan.stream, marker_name(self.plan.durable_name))
        if info is None:
            return None
        self._refuse_foreign(info)
        self._marked = True
        return _position_of(info)

    async def take_over(self, handled: int | None) -> Json | None:
        """Let the durable consumer that is there deliver to the inbox.

        Args:
            handled: the position that was read before, to see whether it moved since; None if we moved it ourselves.

        Returns:
            Its state as `CONSUMER.INFO` gives it; None if there is none that can be used.

        Raises:
            RuleRefusedError: another process is bound to it, or was since its position was read.
        """
        api, plan = self._api, self.plan
        if plan.position == "none":
            return None
        info = await api.consumer_info(plan.stream, plan.durable_name)
        if info is None:
            return None
        if info["config"].get("ack_policy") != _ACK_POLICY[plan.position]:
            # The delivery mode changed; the position goes over to a consumer of the other kind.
            await api.delete_consumer(plan.stream, plan.durable_name, gate=self._gate)
            return None
        if handled is not None and plan.position == "sent" and _position_of(info) > handled:
            if self._has_lease:
                # Sent since then to a process that may publish no more.
                await self._remove(handled)
                return None
            raise self._in_use()  # what moved the position has published up to there
        try:
            await api.create_durable(plan.stream, self._bound(info["config"]), gate=self._gate)
        except ApiError as error:
            if error.err_code != CONSUMER_IN_USE:
                raise
            if not self._has_lease and await self._is_bound():
                raise self._in_use() from None
            await self._remove(_position_of(info) if handled is None else handled)
            return None
        self.name = plan.durable_name
        return info

    async def _is_bound(self) -> bool:
        """Whether somebody subscribes to the durable consumer's own inbox."""
        info = await self._api.consumer_info(self.plan.stream, self.plan.durable_name)
        return info is not None and bool(info.get("push_bound"))

    async def _remove(self, handled: int) -> None:
        """Take the durable consumer from whoever listens to its inbox; `create` recreates it."""
        plan = self.plan
        marker = {
            "durable_name": marker_name(plan.durable_name),
            "description": f"{plan.owner} the position of {plan.durable_name}, which is being recreated",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": handled + 1,
            "ack_policy": "explicit",
            **replay.filter_members(plan.filters),
        }
        await self._api.delete_consumer(plan.stream, marker["durable_name"], gate=self._gate)
        await self._api.create_durable(plan.stream, marker, gate=self._gate)
        self._marked = True
        await self._api.delete_consumer(plan.stream, plan.durable_name, gate=self._gate)
        _log.warning(
            "consumer.taken_over", rule=plan.rule, stream=plan.stream, consumer=plan.durable_name, after=handled
        )

    async def create(self, handled: int) -> None:
        """Make a consumer that delivers what follows stream sequence `handled` to the inbox."""
        plan = self.plan
        config = replay.ephemeral_config(
            self.inbox,
            filters=plan.filters,
            headers_only=plan.headers_only,
            direct=plan.direct,
            limit=self._limit_of_connection,
        )
        self.limit = self._limit_of_connection
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": handled + 1}
        config["description"] = f"{plan.owner}{plan.description}"[:4000]
        if plan.position == "none":
            self.name = (await self._api.create_ephemeral(plan.stream, config))["name"]
            return
        for name in ("inactive_threshold", "mem_storage", "num_replicas", "max_deliver"):
            del config[name]
        config |= {
            "durable_name": plan.durable_name,
            "ack_policy": _ACK_POLICY[plan.position],
        }
        if plan.position == "confirmed":
            config |= {"ack_wait": replay.LATE_ACK, "max_ack_pending": self.limit or _MOST_UNCONFIRMED}
        self.name = (await self._api.create_durable(plan.stream, config, gate=self._gate))["name"]
        if self._marked:
            await self._api.delete_consumer(plan.stream, marker_name(plan.durable_name), gate=self._gate)
            self._marked = False

    async def keep_limit(self, info: Json) -> None:
        """Let the durable consumer, `CONSUMER.INFO` of which is given, send ahead what its connection takes."""
        await self._api.create_durable(self.plan.stream, self._bound(info["config"]), gate=self._gate)

    async def info(self, *, patience: float | None = None) -> Json | None:
        """`CONSUMER.INFO`; None if it is gone or was never made; `patience` as `JetStreamApi.request` has it."""
        return await self._api.consumer_info(self.plan.stream, self.name, patience=patience) if self.name else None

    async def delete(self) -> None:
        """Delete it, if there is one."""
        if self.name:
            gate = ALWAYS_OPEN if self.plan.position == "none" else self._gate
            await self._api.delete_consumer(self.plan.stream, self.name, gate=gate)

    def delivers_here(self, info: Json) -> bool:
        """Whether it still delivers to the inbox."""
        return bool(info["config"].get("deliver_subject") == self.inbox)

    def reply(self, stream_sequence: int, consumer_sequence: int) -> bytes:
        """What to acknowledge at the durable consumer for a message that did not come from it."""
        return b"$JS.ACK.%b.%b.1.%d.%d.%d.0" % (
            self.plan.stream.encode(),
            self.plan.durable_name.encode(),
            stream_sequence,
            consumer_sequence,
            time.time_ns(),
        )

    def numbered(self, batch: list[Delivered], consumer_sequence: int) -> list[Delivered]:
        """A batch of a replay whose last reply subject is that of the durable consumer."""
        subject, reply, block, payload = batch[-1]
        tokens = reply.split(b".")
        at = 3 if len(tokens) == 9 else 5  # with a domain and an account before the stream
        tokens[at] = self.plan.durable_name.encode()
        tokens[at + 3] = b"%d" % consumer_sequence
        return [*batch[:-1], (subject, b".".join(tokens), block, payload)]

    def _bound(self, config: Json) -> Json:
        """The configuration of an existing consumer, made to deliver to the inbox what the plan says."""
        bound = {name: value for name, value in config.items() if name not in _FILTERS}
        bound.pop("headers_only", None)
        bound |= {"deliver_subject": self.inbox, "idle_heartbeat": int(replay.HEARTBEAT * 1e9)}
        bound |= replay.filter_members(self.plan.filters)
        self.limit = self._limit_of_connection
        if self.plan.position == "confirmed":
            bound["max_ack_pending"] = self.limit or _MOST_UNCONFIRMED
        if self.plan.headers_only:
            bound["headers_only"] = True
        return bound

    def _refuse_foreign(self, info: Json) -> None:
        if not (said := str(info["config"].get("description", ""))).startswith(self.plan.owner):
            raise RuleRefusedError(
                f"consumer '{info['name']}' of stream '{self.plan.stream}' is not this rule's ('{said[:200]}'):"
                " give this sidecar or rule another name, or delete that consumer"
            )

    def _in_use(self) -> RuleRefusedError:
        return RuleRefusedError(
            f"consumer '{self.plan.durable_name}' of stream '{self.plan.stream}' is in use by another process:"
            " stop that one, or give this sidecar or rule another name"
        )


def _position_of(info: Json) -> int:
    """The stream sequence up to which a durable consumer of ours is done."""
    config = info["config"]
    state = info["delivered"] if config.get("ack_policy") == "none" else info["ack_floor"]
    if int(state["consumer_seq"]):
        return int(state["stream_seq"])
    return int(config.get("opt_start_seq") or 1) - 1
