"""Rules of every kind, each with streams of its own, that must do their work with the permissions that are printed."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats_bridge.rules.leadership.lease_store import bucket_config
from nats_bridge.settings import Settings
from nats_transforms import header_block
from tests.live.raw_messages import Collected, RawPeer
from tests.live.until import until

FIRST = 400
"""So many messages with a wide header make a server ask for flow control, also where only headers are read."""

_WIDE = b"W: " + b"w" * 3300 + b"\r\n"  # the target of a scenario takes 4000 bytes
KEEPER = "keeper"
"""A consumer that others have."""


@dataclass(slots=True)
class Scenario:
    """One rule, its streams, and what must have come of it.

    Attributes:
        name: part of the names of everything that it has.
        peer: a connection that may do everything.
    """

    name: str
    peer: RawPeer
    published: int = 0
    seen: Collected | None = None
    leads: bool = False

    @property
    def stream(self) -> str:
        """The stream that the rule reads, or the ingress rule's."""
        return f"{self.name}_S"

    @property
    def target(self) -> str:
        """The stream that is written to, if any is."""
        return f"{self.name}_T"

    def rule(self) -> dict[str, Any]:
        """The rule as configured."""
        raise NotImplementedError

    def before(self) -> dict[str, Any] | None:
        """The rule as it was configured before, if that is to be run first."""
        return None

    def after(self) -> dict[str, Any]:
        """The rule as it is configured in the end."""
        return self.rule()

    async def make(self) -> None:
        """Create the streams."""
        await self.peer.create_stream(name=self.stream, subjects=[f"{self.name}.in.>"])

    async def publish(self, messages: int) -> None:
        """Publish numbered messages to the stream."""
        for _ in range(messages):
            self.published += 1
            self.peer.publish(
                f"{self.name}.in.s{self.published % 7}".encode(),
                b"%d" % self.published,
                b"NATS/1.0\r\n" + _WIDE + b"N: %d\r\n\r\n" % self.published,
            )
        await self.peer.client.flushed()

    async def has_all(self) -> bool:
        """Whether the rule has done its work for everything that was published."""
        state = (await self.peer.api(f"STREAM.INFO.{self.target}"))["state"]
        return bool(state["messages"] == self.published)

    async def done(self) -> None:
        """Wait until it has."""
        await until(self.has_all)

    async def disturb(self) -> None:
        """What happens to the streams while everything is running."""

    async def act_while_running(self) -> None:
        """What happens to the streams while no sidecar runs."""
        await self.publish(20)

    def settings(self, rule: dict[str, Any], url: str, user: Callable[[str], str], password_file: Path) -> Settings:
        """A configuration; `user` names the user of a connection."""
        names = {rule.get("from", "default"), rule.get("to", "default")}
        names |= {"leases"} if self.leads else set()
        return Settings.model_validate(
            {
                "name": f"b-{self.name}",
                "connections": {
                    name: {
                        "servers": [url],
                        "user": user(name),
                        "password_file": password_file,
                        "inbox_prefix": f"_I_{self.name}",
                    }
                    for name in names
                },
                "http": {"listen": ""},
                "dialect": "native",
                "rules": [{"name": "rule", **rule}],
                **({"leadership": {"connection": "leases", "bucket": f"{self.name}_L"}} if self.leads else {}),
            }
        )


@dataclass(slots=True)
class Republished(Scenario):
    """A republish rule."""

    options: dict[str, Any] = field(default_factory=dict)
    earlier: dict[str, Any] = field(default_factory=dict)
    later: dict[str, Any] = field(default_factory=dict)
    headers_only: bool = False
    numbers: set[int] = field(default_factory=set)

    def rule(self) -> dict[str, Any]:
        """The rule."""
        return {
            "kind": "republish",
            "stream": self.stream,
            "republish": {"src": f"{self.name}.in.>", "dest": f"{self.name}.out.>", "headers_only": self.headers_only},
            "start": "first",
            **self.options,
        }

    def before(self) -> dict[str, Any] | None:
        """With another delivery: what follows must replace the consumer."""
        return {**self.rule(), **self.earlier} if self.earlier else None

    def after(self) -> dict[str, Any]:
        """The same."""
        return {**self.rule(), **self.later}

    async def disturb(self) -> None:
        """Messages are removed, so that the predecessors of the next ones must be looked up."""
        await self.peer.api(f"STREAM.PURGE.{self.stream}", {"filter": f"{self.name}.in.s1"})

    async def has_all(self) -> bool:
        """Whether everything was republished at least once."""
        if self.seen is None:
            self.seen = await self.peer.collect(f"{self.name}.out.>")
        messages, self.seen.messages = self.seen.messages, []
        for message in messages:
            self.numbers.add(int(header_block.read(message[2], b"N") or 0))
        return len(self.numbers) == self.published


@dataclass(slots=True)
class Leading(Republished):
    """A republish rule with a lease; in the end, another process is bound to its consumer."""

    async def make(self) -> None:
        """The stream, and the bucket."""
        await Scenario.make(self)
        await self.peer.create_stream(**bucket_config(f"{self.name}_L", 1))

    async def act_while_running(self) -> None:
        """Another client takes the consumer."""
        await Scenario.act_while_running(self)
        durable = f"{self.stream}.b-{self.name}_rule"
        config = (await self.peer.api(f"CONSUMER.INFO.{durable}"))["config"]
        config["deliver_subject"] = f"{self.name}.other"
        await self.peer.collect(config["deliver_subject"])
        answer = await self.peer.api(
            f"CONSUMER.DURABLE.CREATE.{durable}", {"stream_name": self.stream, "config": config}
        )
        assert "error" not in answer, answer


@dataclass(slots=True)
class Interest(Republished):
    """A republish rule without a position on an interest stream."""

    async def make(self) -> None:
        """The stream, and another client's interest in it."""
        await self.peer.create_stream(name=self.stream, subjects=[f"{self.name}.in.>"], retention="interest")
        answer = await self.peer.api(
            f"CONSUMER.DURABLE.CREATE.{self.stream}.{KEEPER}",
            {"stream_name": self.stream, "config": {"durable_name": KEEPER, "ack_policy": "explicit"}},
        )
        assert "error" not in answer, answer


@dataclass(slots=True)
class Copied(Scenario):
    """A sources, mirror or kv_sources rule."""

    kind: str = "sources"
    entries: int = 1
    skip: bool = False
    keep_sequence: bool = False
    numbered: bool = False
    queue: bool = False

    def rule(self) -> dict[str, Any]:
        """The rule."""
        if self.kind == "kv_sources":
            return {"kind": self.kind, "bucket": self.target[3:], "sources": [{"bucket": self.stream[3:]}]}
        entry: dict[str, Any] = {"name": self.stream, "subject_transforms": [self.transform(0)]}
        if self.queue:
            return {"kind": "sources", "stream": self.target, "sources": [{**entry, "acknowledge": True}]}
        if self.kind == "mirror":
            more = {"keep_sequence": True, "filler_subject": f"{self.name}.filler"} if self.keep_sequence else {}
            return {"kind": "mirror", "stream": self.target, "mirror": entry, **more}
        entries = [
            {"name": self.source(number), "subject_transforms": [self.transform(number)]}
            for number in range(self.entries)
        ]
        more = {"on_rejected": {"skip": f"{self.name}.rejected"}} if self.skip else {}
        return {"kind": "sources", "stream": self.target, "sources": entries, **more}

    def transform(self, number: int) -> dict[str, str]:
        """What copies of a source become."""
        return {"src": f"{self.name}.in{number or ''}.>", "dest": f"{self.name}.out.{number}.>"}

    @property
    def stream(self) -> str:
        """The first source."""
        return f"KV_{self.name}_S" if self.kind == "kv_sources" else f"{self.name}_S"

    @property
    def target(self) -> str:
        """The target."""
        return f"KV_{self.name}_T" if self.kind == "kv_sources" else f"{self.name}_T"

    def source(self, number: int) -> str:
        """One of the sources."""
        return self.stream if not number else f"{self.stream}{number}"

    async def make(self) -> None:
        """Create sources and target."""
        if self.kind == "kv_sources":
            for stream in (self.stream, self.target):
                await self.peer.create_stream(name=stream, subjects=[f"$KV.{stream[3:]}.>"], max_msgs_per_subject=5000)
            return
        for number in range(self.entries):
            more: dict[str, Any] = {"max_msg_size": 5000} if self.skip else {}
            more |= {"retention": "workqueue"} if self.queue else {}
            subject = f"{self.name}.in{number or ''}.>"
            await self.peer.create_stream(name=self.source(number), subjects=[subject], **more)
        subjects = [f"{self.name}.out.>", f"{self.name}.local"]
        subjects += [f"{self.name}.filler"] if self.keep_sequence else []
        more = {"max_msg_size": 4000} if self.skip else {}
        await self.peer.create_stream(name=self.target, subjects=subjects, **more)
        if self.skip:
            await self.peer.create_stream(name=f"{self.name}_D", subjects=[f"{self.name}.rejected"])
        for number in range(1, self.entries):
            # The other sources are read once: what flow control needs is a megabyte of headers.
            for _ in range(FIRST):
                self.published += 1
                self.peer.publish(f"{self.name}.in{number}.x".encode(), b"", b"NATS/1.0\r\n" + _WIDE + b"\r\n")
        if self.keep_sequence:
            for _ in range(3):
                await self.peer.store(f"{self.name}.in.s0".encode())
            await self.peer.api(f"STREAM.MSG.DELETE.{self.stream}", {"seq": 2})

    async def publish(self, messages: int) -> None:
        """To the first source."""
        prefix = f"$KV.{self.stream[3:]}" if self.kind == "kv_sources" else f"{self.name}.in"
        for _ in range(messages):
            self.published += 1
            own = b"Nats-Msg-Id: own%d\r\n" % self.published if self.numbered else b""
            self.peer.publish(
                f"{prefix}.s{self.published % 7}".encode(),
                b"%d" % self.published,
                b"NATS/1.0\r\n" + _WIDE + own + b"\r\n",
            )
        for number in range(1, self.entries):
            self.published += 1
            await self.peer.store(f"{self.name}.in{number}.x".encode())
        await self.peer.client.flushed()
        if self.skip:
            await self.peer.store(f"{self.name}.in.large".encode(), b"x" * 4500)

    async def has_all(self) -> bool:
        """Whether every message has its copy; with the source's sequences, the last one shows it."""
        if not self.keep_sequence:
            return await Scenario.has_all(self)
        states = [(await self.peer.api(f"STREAM.INFO.{stream}"))["state"] for stream in (self.stream, self.target)]
        return bool(states[0]["last_seq"] == states[1]["last_seq"])

    async def act_while_running(self) -> None:
        """The target loses its newest message, which is no copy."""
        await Scenario.act_while_running(self)
        if not self.keep_sequence:
            local = f"$KV.{self.target[3:]}.local" if self.kind == "kv_sources" else f"{self.name}.local"
            answer = await self.peer.store(local.encode())
            await self.peer.api(f"STREAM.MSG.DELETE.{self.target}", {"seq": answer["seq"]})
        if self.queue:
            await self._leave_unacknowledged_copy()

    async def _leave_unacknowledged_copy(self) -> None:
        """Store a copy of the newest message, as a sidecar that is killed before it acknowledges the message."""
        last = int((await self.peer.api(f"STREAM.INFO.{self.stream}"))["state"]["last_seq"])
        message = (await self.peer.api(f"STREAM.MSG.GET.{self.stream}", {"seq": last}))["message"]
        copies = {"last_by_subj": f"{self.name}.out.>"}
        copy = (await self.peer.api(f"STREAM.MSG.GET.{self.target}", copies))["message"]
        record = re.search(rb"(Nats-\S+-Source: \S+) \d+([^\r]*)\r\n", b64decode(copy["hdrs"]))
        assert record is not None
        subject = str(message["subject"])
        other = copy["subject"].replace(".out.0.", ".in.")
        rest = record[2].replace(other.encode(), subject.encode())  # empty on 2.9
        line = b"%b %d%b\r\n" % (record[1], last, rest)
        block = b64decode(message["hdrs"]).removesuffix(b"\r\n") + line + b"\r\n"
        await self.peer.store(subject.replace(".in.", ".out.0.").encode(), b64decode(message["data"]), block)


@dataclass(slots=True)
class Ingress(Scenario):
    """A rule of kind subject_transform."""

    def rule(self) -> dict[str, Any]:
        """The rule."""
        return {
            "kind": "subject_transform",
            "stream": self.target,
            "subject_transform": {"src": f"{self.name}.from.*", "dest": f"{self.name}.in.{{{{wildcard(1)}}}}"},
        }

    async def make(self) -> None:
        """Create the stream."""
        await self.peer.create_stream(name=self.target, subjects=[f"{self.name}.in.>"])

    async def publish(self, messages: int) -> None:
        """To the rule; each until the stream has answered, because there may be no responder for a moment."""
        for _ in range(min(messages, 20)):
            block = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % self.published

            async def stored(block: bytes = block) -> bool:
                reply = await self.peer.request_raw(f"{self.name}.from.x".encode(), b"", block)
                return reply is not None and "seq" in json.loads(reply)

            await until(stored)
            self.published += 1

    async def act_while_running(self) -> None:
        """No rule receives messages."""


@dataclass(slots=True)
class Advised(Scenario):
    """An advisories rule whose results a stream stores."""

    def rule(self) -> dict[str, Any]:
        """The rule."""
        return {
            "kind": "advisories",
            "republish": {
                "src": f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self.stream}.*",
                "dest": f"{self.name}.out.{{{{wildcard(1)}}}}",
            },
            "attach_message": True,
        }

    async def make(self) -> None:
        """A stream that advisories are about, and one that stores what the rule publishes."""
        await self.peer.create_stream(name=self.stream, subjects=[f"{self.name}.in.>"])
        await self.peer.create_stream(name=self.target, subjects=[f"{self.name}.out.>"])

    async def publish(self, messages: int) -> None:
        """A message and its advisory, as servers send them; the rule is subscribed."""
        for _ in range(min(messages, 5)):
            sequence = int((await self.peer.store(f"{self.name}.in.x".encode()))["seq"])
            advisory = {"type": "t", "id": f"{self.name}{sequence}", "stream": self.stream, "consumer": "c"}
            advisory |= {"stream_seq": sequence, "timestamp": "2026-01-01T00:00:00Z"}  # type: ignore[dict-item]
            subject = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self.stream}.c"
            self.peer.publish(subject.encode(), json.dumps(advisory).encode())
            self.published += 1
        await self.peer.client.flushed()

    async def act_while_running(self) -> None:
        """No rule is subscribed."""


@dataclass(slots=True)
class Captured(Advised):
    """The same, with the advisories in a stream."""

    def rule(self) -> dict[str, Any]:
        """The rule."""
        return Advised.rule(self) | {"captured_by": f"{self.name}_C"}

    async def make(self) -> None:
        """The streams of the other, and the one that captures."""
        await Advised.make(self)
        subjects = [f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self.stream}.*"]
        await self.peer.create_stream(name=f"{self.name}_C", subjects=subjects)

    async def act_while_running(self) -> None:
        """Nothing is missed while no sidecar runs."""
        await self.publish(5)


def every_kind(prefix: str, peer: RawPeer) -> list[Scenario]:
    """One scenario for each way in which a rule can work."""
    confirmed, sent = {"delivery": "at_least_once"}, {"delivery": "at_most_once"}
    return [
        Republished(f"{prefix}sent", peer, options=sent, earlier=confirmed),
        Republished(f"{prefix}confirmed", peer, options=confirmed, later=sent),
        Republished(f"{prefix}passing", peer, options={"durable": False}),
        Republished(f"{prefix}headers", peer, headers_only=True, earlier=confirmed),
        Republished(f"{prefix}across", peer, options={"to": "other"}, earlier=confirmed),
        Leading(f"{prefix}leading", peer, options=confirmed, leads=True),
        Interest(f"{prefix}interest", peer, options={"durable": False}),
        Copied(f"{prefix}sources", peer),
        Copied(f"{prefix}several", peer, entries=2, skip=True),
        Copied(f"{prefix}mirror", peer, kind="mirror"),
        Copied(f"{prefix}numbers", peer, kind="mirror", keep_sequence=True, numbered=True),
        Copied(f"{prefix}bucket", peer, kind="kv_sources"),
        Copied(f"{prefix}queue", peer, queue=True, numbered=True),
        Ingress(f"{prefix}ingress", peer),
        Advised(f"{prefix}advised", peer),
        Captured(f"{prefix}captured", peer),
    ]


@dataclass(frozen=True, slots=True)
class Used:
    """What a server's trace says that a user did, and was refused.

    Attributes:
        done: way and subject, by user.
        refused: the same of what was refused.
    """

    done: dict[str, set[tuple[str, str]]]
    refused: dict[str, set[tuple[str, str]]]


_LINE = re.compile(r"cid:(\d+).*? - <<- \[(CONNECT|PUB|HPUB|SUB) (.*)\]$")
_REFUSED = re.compile(r'cid:(\d+).*? - (Publish|Subscription) Violation - .*?Subject "([^"]*)"(?:, Queue: "([^"]*)")?')


def used(log: Path) -> Used:
    """Read a server's log with traces, of one or several runs."""
    users: dict[str, str] = {}
    done: dict[str, set[tuple[str, str]]] = {}
    refused: dict[str, set[tuple[str, str]]] = {}
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if found := _REFUSED.search(line):
                client, kind, subject, queue = found.groups()
                way = "publish" if kind == "Publish" else "subscribe"
                whole = f"{subject} {queue}" if queue else subject
                refused.setdefault(users[client], set()).add((way, whole))
            elif found := _LINE.search(line.rstrip("\n")):
                client, verb, rest = found.groups()
                if verb == "CONNECT":
                    users[client] = str(json.loads(rest).get("user", ""))
                    continue
                words = rest.split()
                subject, way = words[0], "publish"
                if verb == "SUB":
                    subject, way = " ".join(words[:-1]), "subscribe"
                done.setdefault(users[client], set()).add((way, subject))
    return Used(done, refused)
