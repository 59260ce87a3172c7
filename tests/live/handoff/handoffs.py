"""Scenes of a handoff: sources, a target, a rule between them; the command; what must be in the target."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.kinds.copying.model import CopyingRule
from nats_bridge.settings import Settings, load
from nats_conformance.native_servers import NativeServer
from nats_transforms.dialect import NEWEST
from nats_transforms.republish import StoredMessage
from nats_transforms.sourcing import compile_sourcing
from tests.live.commands import Ran, command_here
from tests.live.raw_messages import RawPeer
from tests.live.sidecars import running
from tests.live.stored_messages import stored_messages
from tests.live.until import until

ACCOUNTS = """
accounts {
  HOME: {
    jetstream: enabled, users: [{user: home, password: secret}]
    imports: [
      {service: {account: AWAY, subject: "$JS.API.CONSUMER.>"}, to: "AWAY.API.CONSUMER.>"}
      {service: {account: AWAY, subject: "$JS.FC.>"}}
      {stream: {account: AWAY, subject: "to.home.>"}}
    ]
  }
  AWAY: {
    jetstream: enabled, users: [{user: away, password: secret}]
    exports: [{service: "$JS.API.CONSUMER.>", response: stream}, {service: "$JS.FC.>"}, {stream: "to.home.>"}]
  }
}
"""
UPGRADES = [
    pytest.param(("2.9.10", "2.10.27"), marks=pytest.mark.exhaustive),
    ("2.9.10", "2.15.3"),
    pytest.param(("2.10.27", "2.15.3"), marks=pytest.mark.exhaustive),
]
"""From which version a server is upgraded, and to which one."""
EXTERNAL = {"api": "AWAY.API", "deliver": "to.home"}


@dataclass(frozen=True)
class Case:
    """One kind of rule to hand over.

    Attributes:
        rule: the rule, without its name.
        sources: the sources' configurations by name.
        subjects: the target's subjects.
        target: more of the target's configuration.
        sent: subjects to publish on, in turn, by source.
        away: whether the sources are in another account.
    """

    rule: dict[str, Any]
    sources: dict[str, dict[str, Any]]
    subjects: list[str]
    sent: dict[str, list[str]]
    target: dict[str, Any] = field(default_factory=dict)
    away: bool = False


def _one(entry: dict[str, Any], subjects: list[str], **more: Any) -> Case:
    return Case(
        {"kind": "sources", "stream": "T", "sources": [{"name": "S", **entry}]},
        {"S": {"subjects": ["a.>"]}},
        subjects,
        {"S": ["a.x", "a.y.z", "a.x.1", "a.y"]},
        **more,
    )


_BUCKET = {"max_msgs_per_subject": 64, "allow_rollup_hdrs": True, "deny_delete": True, "discard": "new"}

CASES: dict[str, Case] = {
    "plain": _one({"external": EXTERNAL, "from": "away"}, ["a.>"], away=True),
    "filter_subject": _one({"filter_subject": "a.x.>", "external": EXTERNAL, "from": "away"}, ["a.>"], away=True),
    "transforms": _one(
        {
            "subject_transforms": [
                {"src": "a.x", "dest": "b.x"},
                {"src": "a.*.*", "dest": "b.{{wildcard(2)}}.$1"},
                {"src": "a.none.it.is", "dest": "b.none"},
            ]
        },
        ["b.>"],
    ),
    "two": Case(
        {
            "kind": "sources",
            "stream": "T",
            "sources": [
                {"name": "S", "subject_transforms": [{"src": "a.>", "dest": "b.a.>"}]},
                {"name": "R", "subject_transforms": [{"src": "r.*", "dest": "b.{{partition(3,1)}}.$1"}]},
            ],
        },
        {"S": {"subjects": ["a.>"]}, "R": {"subjects": ["r.*"]}},
        ["b.>"],
        {"S": ["a.x", "a.y.z"], "R": ["r.1", "r.2", "r.3"]},
    ),
    "kv": Case(
        {"kind": "kv_sources", "bucket": "B", "sources": [{"bucket": "A"}]},
        {"KV_A": {"subjects": ["$KV.A.>"], **_BUCKET}},
        ["$KV.B.>"],
        {"KV_A": ["$KV.A.color", "$KV.A.size.1", "$KV.A.name"]},
        target=_BUCKET,
    ),
}


class Scene:
    """Sources and a target on a server of their own; which version that is may change."""

    def __init__(self, server: NativeServer, case: Case, directory: Path) -> None:
        self.server = server
        self.case = case
        self.config = directory / "bridge.yaml"
        self.published = 0
        self.local: list[bytes] = []
        self._directory = directory
        self.rule = {"name": "rule", **case.rule}
        self.target_name = case.rule.get("stream") or f"KV_{case.rule['bucket']}"

    async def connect(self) -> None:
        """Connections to the server as it is now."""
        server, case = self.server, self.case
        at = server.url.removeprefix("nats://")
        self.home = await RawPeer.connect(f"nats://home:secret@{at}" if case.away else server.url)
        self.away = await RawPeer.connect(f"nats://away:secret@{at}") if case.away else self.home

    async def close(self) -> None:
        for peer in {self.home, self.away}:
            await peer.close()

    async def create(self) -> None:
        """The streams, and the sidecar's configuration."""
        for name, config in self.case.sources.items():
            await self.away.create_stream(name=name, **config)
        await self.home.create_stream(name=self.target_name, subjects=self.case.subjects, **self.case.target)
        self.configure()

    def configure(self, **more: Any) -> None:
        """Write the sidecar's configuration."""
        self.rule |= more
        connections: dict[str, Any] = {"default": {"servers": [self.server.url]}}
        if self.case.away:
            password = self._directory / "password"
            password.write_text("secret", "utf-8")
            login = {"servers": [self.server.url], "password_file": str(password)}
            connections = {"default": {**login, "user": "home"}, "away": {**login, "user": "away"}}
        document = {"connections": connections, "http": {"listen": ""}, "rules": [self.rule]}
        self.config.write_text(json.dumps(document), "utf-8")  # JSON is YAML too

    @property
    def settings(self) -> Settings:
        return load(self.config)

    def sidecar(self) -> AbstractAsyncContextManager[Sidecar]:
        """A sidecar with the rule."""
        return running(self.settings)

    async def publish(self, messages: int) -> None:
        """So many messages into every source."""
        for _ in range(messages):
            for source, subjects in self.case.sent.items():
                subject = subjects[self.published % len(subjects)]
                answer = await self.away.store(subject.encode(), f"{source} {self.published}".encode())
                assert answer.get("seq"), answer
            self.published += 1

    async def change_server(self, change: Callable[[], object]) -> None:
        """Restart or upgrade it, with new connections."""
        await self.close()
        await asyncio.to_thread(change)
        await self.connect()

    async def handoff(self, *options: str) -> Ran:
        """`nats-bridge handoff` for the rule."""
        return await handoff(self.config, "rule", *options)

    async def apply(self, update: dict[str, Any]) -> None:
        """Send the printed body as it is."""
        answer = await self.home.api(f"STREAM.UPDATE.{self.target_name}", update)
        assert "error" not in answer, answer

    async def expected(self) -> dict[str, list[tuple[bytes, bytes]]]:
        """Subject and payload of every copy that the target must hold, by source, in order."""
        (rule,) = self.settings.rules
        assert isinstance(rule, CopyingRule)
        found: dict[str, list[tuple[bytes, bytes]]] = {}
        for entry in rule.entries:
            sourcing = compile_sourcing(entry.native(), NEWEST)
            copies = found.setdefault(entry.name, [])
            for message in await everything(self.away, entry.name):
                destination = sourcing.destination(message.subject)
                if destination is not None:
                    copies.append((destination, message.payload))
        return found

    async def complete(self) -> None:
        """Wait until the newest message of every source is in the target."""
        expected = await self.expected()
        for copies in expected.values():
            if copies:
                await self.newest_is(*copies[-1])

    async def newest_is(self, subject: bytes, payload: bytes) -> None:
        """Wait until this is the target's last message on a subject."""

        async def there() -> bool:
            request = {"last_by_subj": subject.decode()}
            answer = await self.home.api(f"STREAM.MSG.GET.{self.target_name}", request)
            return base64.b64decode(answer.get("message", {}).get("data", "")) == payload

        await until(there)

    async def assert_exact(self) -> None:
        """Every message of every source is in the target once, in order, and nothing else is but what is local."""
        await self.complete()
        expected = await self.expected()
        stored = await everything(self.home, self.target_name)
        for source, copies in expected.items():
            mine = [(m.subject, m.payload) for m in stored if m.payload.startswith(source.encode() + b" ")]
            assert mine == copies, source
        assert len(stored) == sum(map(len, expected.values())) + len(self.local)


async def handoff(config: Path, *options: str) -> Ran:
    """`nats-bridge handoff`, in this process."""
    return await command_here("handoff", "-c", str(config), *options)


async def everything(peer: RawPeer, stream: str) -> list[StoredMessage]:
    """All messages of a stream."""
    held = (await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"]
    return await stored_messages(peer, stream, held) if held else []


OpenScene = Callable[..., Awaitable[Scene]]
