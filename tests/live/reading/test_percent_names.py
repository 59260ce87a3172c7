"""Streams with `%` in their names: read and acknowledged, or refused if the server cannot do it."""

from __future__ import annotations

from typing import Any

import pytest

from nats_bridge.errors import RuleRefusedError
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Seen
from tests.live.sidecars import failure_of, running, settings_for
from tests.live.until import until

DELIVERS = ["2.9.25", "2.10.27", "2.15.3"]
Rules = dict[str, dict[str, Any]]


class Percent:
    """Two streams with `%` in their names, one of them a work queue, and a target."""

    def __init__(self, peer: RawPeer, stem: str) -> None:
        self.peer = peer
        self.stem = stem
        self.stream, self.queue, self.target = f"{stem}%d", f"{stem}_q%s", f"{stem}_100%"
        entry = {"name": self.queue, "acknowledge": True}
        plain = {"name": self.stream, "subject_transforms": [{"src": f"{stem}.>", "dest": f"t.{stem}.>"}]}
        self.rules: Rules = {
            "once": self._republish("once", delivery="at_most_once"),
            "fleeting": self._republish("fleeting", durable=False),
            "copy": {"name": "copy", "kind": "sources", "stream": self.target, "sources": [plain]},
            "atleast": self._republish("atleast", delivery="at_least_once"),
            "queue": {"name": "queue", "kind": "sources", "stream": f"{stem}_plain", "sources": [entry]},
            "letters": {
                "name": "letters",
                "kind": "advisories",
                "captured_by": self.stream,
                "republish": {"src": "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "dest": f"dead.{stem}.>"},
            },
        }

    def _republish(self, name: str, **more: Any) -> dict[str, Any]:
        republish = {"src": f"{self.stem}.>", "dest": f"{name}.{self.stem}.>"}
        return {"name": name, "kind": "republish", "stream": self.stream, "republish": republish, **more}

    async def create(self) -> None:
        await self.peer.create_stream(name=self.stream, subjects=[f"{self.stem}.>"])
        await self.peer.create_stream(name=self.queue, subjects=[f"q.{self.stem}.>"], retention="workqueue")
        await self.peer.create_stream(name=self.target, subjects=[f"t.{self.stem}.>"])
        await self.peer.create_stream(name=f"{self.stem}_plain", subjects=[f"p.{self.stem}.>"])
        transforms = [{"src": f"q.{self.stem}.>", "dest": f"p.{self.stem}.>"}]
        self.rules["queue"]["sources"][0]["subject_transforms"] = transforms

    async def store(self, messages: int) -> int:
        for number in range(messages):
            await self.peer.store(f"q.{self.stem}.{number}".encode())
            last = int((await self.peer.store(f"{self.stem}.{number}".encode()))["seq"])
        return last

    async def state(self, stream: str) -> dict[str, Any]:
        state: dict[str, Any] = (await self.peer.api(f"STREAM.INFO.{stream}"))["state"]
        return state


@pytest.mark.parametrize("version", ["2.9.10", "2.9.25", "2.10.27"])
async def test_refused_by_servers_that_cannot_take_acknowledgements(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    made = Percent(await raw_peer(url), unique_name("percent"))
    await made.create()
    refused = {name: await failure_of(settings_for(url, made.rules[name])) for name in ("atleast", "queue", "letters")}
    if version == "2.9.10":
        refused |= {name: await failure_of(settings_for(url, made.rules[name])) for name in ("once", "copy")}
    said = "cannot deliver messages" if version == "2.9.10" else f"acknowledgements have no effect on server {version}"
    for name, error in refused.items():
        assert isinstance(error, RuleRefusedError), name
        assert said in str(error)


@pytest.mark.parametrize("version", DELIVERS)
async def test_read_without_acknowledgements(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    made = Percent(await raw_peer(url), unique_name("percent"))
    await made.create()
    seen = {name: await Seen.of(made.peer, f"{name}.{made.stem}.>") for name in ("once", "fleeting")}
    settings = settings_for(url, *(made.rules[name] for name in ("once", "fleeting", "copy")))
    async with running(settings):
        last = await made.store(9)
        for each in seen.values():
            await each.until_sequence(last)

        async def copied() -> bool:
            return bool((await made.state(made.target))["messages"] == last)

        await until(copied)
    async with running(settings):
        last = await made.store(1)
        for each in seen.values():
            await each.until_sequence(last)
        await until(copied)
    assert all(each.sequences == list(range(1, last + 1)) for each in seen.values())


async def test_acknowledged_by_servers_that_take_it(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    made = Percent(await raw_peer(url), unique_name("percent"))
    await made.create()
    seen = await Seen.of(made.peer, f"atleast.{made.stem}.>")
    settings = settings_for(url, made.rules["atleast"], made.rules["queue"])
    last = 0

    async def drained() -> bool:
        left = (await made.state(made.queue))["messages"]
        return bool(left == 0 and (await made.state(f"{made.stem}_plain"))["messages"] == last)

    for _ in range(2):
        async with running(settings):
            last = await made.store(9)
            await seen.until_sequence(last)
            await until(drained)
    assert seen.sequences == list(range(1, last + 1))
