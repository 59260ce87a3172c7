"""The configuration of a rule's consumer, without I/O: its names, its plan, and the changes of other clients.

`rule_consumer` applies it to a server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from nats_bridge.client.jetstream_api import Json
from nats_bridge.client.stream_identity import MessageStamp
from nats_bridge.consuming import replay
from nats_bridge.errors import RuleRefusedError

_MOST_UNCONFIRMED = 1_000_000  # messages
_SELECTING = ("filter_subject", "filter_subjects", "headers_only")
_LASTING = ("ack_policy", "flow_control", "idle_heartbeat", "replay_policy")  # no update changes them
_ACTING = (
    *(*_SELECTING, *_LASTING, "ack_wait", "backoff", "deliver_group", "inactive_threshold"),
    *("max_ack_pending", "max_deliver", "rate_limit_bps"),
)
"""Members of a configuration that decide which messages a consumer delivers, and when."""
_KEPT = ("deliver_policy", "opt_start_seq", "opt_start_time", "mem_storage", "num_replicas", "sample_freq")
ACK_POLICY = {"none": "none", "sent": "none", "confirmed": "all", "acknowledged": "explicit"}
_ACK_WAIT = 60  # seconds until a message whose acknowledgement was lost comes again
_TAKEN = re.compile(r" \(from (\S+) after (\d+), delivery (\d+)\)$")  # a description's end, by `ConsumerPlan.bound`
_DONE = re.compile(r" \(done with (\d+) of (\d+)\)$")  # a description's end, by `RuleConsumer.keep_time`
_BEGINS = re.compile(r" \(begins after (\d+) of (\d+)\)(?: \(from .*)?$")  # the same, by `ConsumerPlan.described`
_LONGEST = 3800  # bytes of a description without the suffix; servers accept 4096


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
        return self.field in (*_SELECTING, *_LASTING, "deliver_subject")


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
        direct: use a consumer for which work-queue and interest streams neither keep nor remove messages.
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

    def marker(self, after: int, begins: MessageStamp | None = None) -> Json:
        """Return the configuration of the marker that keeps a position. `begins` is that of `RuleConsumer`."""
        said = f"{self.owner} the position of {self.durable_name} until that is created"
        return {
            "durable_name": marker_name(self.durable_name),
            "description": _with_time(said, after, begins),
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "explicit",
            **replay.filter_members(self.filters),
        }

    @property
    def full_description(self) -> str:
        """The description of its consumer. A suffix that names the last delivery fits behind it."""
        return f"{self.owner}{self.description}".encode()[:_LONGEST].decode(errors="ignore")

    def described(self, after: int, begins: MessageStamp | None) -> str:
        """Return the description of its consumer that begins after a stream sequence; see `RuleConsumer`."""
        return _with_time(self.full_description, after, begins)

    def wanted(self, inbox: str, limit: int | None) -> Json:
        """Return the configuration of the durable consumer, without its start. `limit` is that of `RuleConsumer`."""
        config = replay.push_config(inbox, self.filters, headers_only=self.headers_only)
        config |= {"durable_name": self.durable_name, "description": self.full_description}
        config["ack_policy"] = ACK_POLICY[self.position]
        if self.position == "confirmed":
            config |= {"ack_wait": replay.LATE_ACK, "max_ack_pending": limit or _MOST_UNCONFIRMED}
        elif self.position == "acknowledged":
            most = self.max_pending
            config |= {"ack_wait": _ACK_WAIT * 10**9, "max_ack_pending": min(limit or most, most)}
        return config

    def bound(
        self, config: Json, inbox: str, limit: int | None, last_delivery: Json | None = None, description: str = ""
    ) -> Json:
        """Return an existing consumer's configuration, changed to deliver to the inbox as planned.

        Args:
            config: its present one.
            limit: see `RuleConsumer`.
            last_delivery: `delivered` of the consumer's info, if the inbox is another one than the present one.
            description: the new one, in that case.
        """
        bound = self.wanted(inbox, limit) | {name: config[name] for name in _KEPT if name in config}
        if last_delivery is None:
            return bound | {"description": str(config.get("description", ""))}
        last = f"after {last_delivery['stream_seq']}, delivery {last_delivery['consumer_seq']}"
        bound["description"] = f"{description} (from {config.get('deliver_subject')} {last})"
        return bound

    def differing(self, config: Json) -> list[str]:
        """Return the members that decide what is delivered, if their values are not the planned ones."""
        # They cannot be updated: a server does not search again for messages in the part that it has passed.
        wanted = self.wanted("", None)
        return [name for name in (*_SELECTING, *_LASTING) if (config.get(name) or None) != wanted.get(name)]

    def refuse_foreign(self, info: Json) -> None:
        """Check that a consumer is the rule's.

        Raises:
            RuleRefusedError: it has another owner.
        """
        if not (said := str(info["config"].get("description", ""))).startswith(self.owner):
            raise RuleRefusedError(
                f"consumer '{info['name']}' of stream '{self.stream}' is not this rule's ('{said[:200]}'):"
                " give this sidecar or rule another name, or delete that consumer"
            )


def edits_between(expected: Json, found: Json, inbox: str) -> list[Edit]:
    """Return the members of a consumer's configuration that another client has changed.

    Another process of this rule, which has taken it over, delivers to an inbox with the same prefix. That is not an
    edit.

    Args:
        expected: the configuration that the server has confirmed; empty for none.
        found: the present one.
        inbox: the deliver subject.
    """
    edits = [Edit(name, found.get(name), expected.get(name)) for name in _ACTING if name in found.keys() | expected]
    to = str(found.get("deliver_subject", ""))
    if to.rpartition(".")[0] != inbox.rpartition(".")[0]:
        edits.append(Edit("deliver_subject", to or None, inbox))
    return [edit for edit in edits if (edit.found or None) != (edit.expected or None)] if expected else []


def position_of(info: Json) -> int:
    """Return the stream sequence up to which the rule's durable consumer has acknowledged.

    For a consumer without acknowledgements, that is the last delivery. Before the first delivery, it is the sequence
    before the consumer's start.
    """
    config = info["config"]
    state = info["delivered"] if config.get("ack_policy") == "none" else info["ack_floor"]
    if int(state["consumer_seq"]):
        return int(state["stream_seq"])
    return int(config.get("opt_start_seq") or 1) - 1


def done_with(config: Json) -> MessageStamp | None:
    """Return the last message that a rule was done with, from its consumer's description; None without one."""
    done = _DONE.search(str(config.get("description", "")))
    return MessageStamp(int(done[1]), int(done[2])) if done else None


def begins_after(config: Json) -> MessageStamp | None:
    """Return the message after which a consumer was to begin, from its description; None without one."""
    begins = _BEGINS.search(str(config.get("description", "")))
    return MessageStamp(int(begins[1]), int(begins[2])) if begins else None


def _with_time(description: str, after: int, begins: MessageStamp | None) -> str:
    if begins is None or begins.sequence != after:
        return description
    return f"{description} (begins after {after} of {begins.time_ns})"


def takeover_position(config: Json, inbox: str) -> tuple[int, int] | None:
    """Return the stream and consumer sequence of the last delivery to an inbox.

    The process that took over the consumer wrote it down. None if no process has taken it over from this inbox.
    """
    takeover = _TAKEN.search(str(config.get("description", "")))
    return (int(takeover[2]), int(takeover[3])) if takeover is not None and takeover[1] == inbox else None
