"""A rule's lease keeps its position, so that the rule resumes without its durable consumer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import structlog

from nats_bridge.settings import Settings
from tests.live.commands import command_here
from tests.live.leadership.leases import LONG, free, lease, write_lease
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene, document
from tests.live.sidecars import running, settings_for

VERSIONS = ["2.10.27", "2.15.3", pytest.param("2.9.10", marks=pytest.mark.exhaustive)]
DELIVERIES = ["at_least_once", "at_most_once"]


class Replicas:
    """A republish rule from `start: new` with a lease, which one sidecar after another holds."""

    def __init__(self, url: str, here: Scene, delivery: str) -> None:
        self.url = url
        self.here = here
        self.rule = here.rule(delivery=delivery)

    @classmethod
    async def make(cls, url: str, peer: RawPeer, name: str, delivery: str) -> Replicas:
        here = await Scene.make(peer, name)
        await free(peer, name)
        return cls(url, here, delivery)

    @property
    def leadership(self) -> dict[str, Any]:
        return {"bucket": self.here.name, "ttl": LONG}

    @property
    def settings(self) -> Settings:
        return settings_for(self.url, self.rule, leadership=self.leadership, dialect="native")

    async def run_for(self, messages: int) -> None:
        """Let a sidecar republish that many messages, and stop it."""
        async with running(self.settings):
            await self.here.load.burst(messages)
            await self.here.bridged.until_sequence(await self.here.end())

    async def delete_consumer(self) -> None:
        assert (await self.here.peer.api(f"CONSUMER.DELETE.{self.here.name}.nats-bridge_rule"))["success"]

    async def rewrite_lease(self, **record: Any) -> None:
        """Change the record of the rule's lease."""
        before = await lease(self.here.peer, self.here.name)
        assert before is not None
        await write_lease(self.here.peer, self.here.name, **before | record)


def events(log: list[Any], name: str) -> list[int]:
    """The `after` of each line with this event."""
    return [line["after"] for line in log if line["event"] == name]


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_rule_resumes_without_its_consumer(
    version: str, delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    rules = await Replicas.make(url, await raw_peer(url), unique_name("kept"), delivery)
    here = rules.here
    await rules.run_for(20)
    await rules.delete_consumer()
    await here.load.burst(50)
    with structlog.testing.capture_logs() as log:
        await rules.run_for(1)
    assert here.bridged.sequences == list(range(1, 74))
    assert (events(log, "rule.position_restored"), events(log, "rule.begins_new")) == ([21], [])
    kept = await lease(here.peer, here.name)
    assert kept is not None
    assert (kept["released"], kept["position"]["stream"], kept["position"]["sequence"]) == (True, here.name, 73)
    assert kept["position"]["time_ns"] > 0
    with structlog.testing.capture_logs() as log:
        await rules.run_for(1)
    assert here.bridged.sequences == list(range(1, 76))
    assert events(log, "rule.position_restored") == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_after_a_kill_at_least_once_repeats_what_followed_the_last_renewal(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    rules = await Replicas.make(url, await raw_peer(url), unique_name("renewal"), "at_least_once")
    here = rules.here
    await rules.run_for(20)
    await rules.rewrite_lease(position={"stream": here.name, "sequence": 15, "time_ns": 0})
    await rules.delete_consumer()
    await here.load.burst(50)
    with structlog.testing.capture_logs() as log:
        await rules.run_for(1)
    times = Counter(here.bridged.sequences)
    assert sorted(times) == list(range(1, 74))
    assert [sequence for sequence, count in times.items() if count == 2] == list(range(16, 22))
    assert events(log, "rule.position_restored") == [15]


@pytest.mark.parametrize("version", VERSIONS)
async def test_after_a_kill_at_most_once_begins_new(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """It may have sent messages since the last renewal, and must not send them again."""
    url = await servers.url(version)
    rules = await Replicas.make(url, await raw_peer(url), unique_name("most"), "at_most_once")
    here = rules.here
    async with running(rules.settings):
        await here.load.burst(20)
        await here.bridged.until_sequence(20)
        held = await lease(here.peer, here.name)
    assert held is not None
    assert held["position"] is None
    await rules.rewrite_lease(position=held["position"])  # as a killed process leaves it
    await rules.delete_consumer()
    await here.load.burst(50)
    with structlog.testing.capture_logs() as log:
        await rules.run_for(1)
    assert here.bridged.sequences == [*range(1, 21), 71, 72]
    assert (events(log, "rule.position_restored"), events(log, "rule.begins_new")) == ([], [70])


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_messages_of_a_recreated_stream_are_all_republished(
    version: str, delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """All of them are younger than the message that the lease names, whatever their sequences are."""
    url = await servers.url(version)
    rules = await Replicas.make(url, await raw_peer(url), unique_name("again"), delivery)
    here = rules.here
    await rules.run_for(20)
    before = len(here.bridged.messages)
    await here.peer.recreate_stream(here.name)
    await here.load.burst(50)
    with structlog.testing.capture_logs() as log:
        await rules.run_for(1)
    assert here.bridged.sequences[before:] == list(range(1, 53))
    assert events(log, "rule.position_restored") == [0]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_cleaned_rule_forgets_it(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    rules = await Replicas.make(url, await raw_peer(url), unique_name("clean"), "at_least_once")
    here = rules.here
    await rules.run_for(20)
    config = tmp_path / "bridge.yaml"
    config.write_text(json.dumps(document(url, rules.rule, leadership=rules.leadership)))
    assert (await command_here("clean", "-c", str(config))).code == 0
    assert await lease(here.peer, here.name) is None
    await here.load.burst(50)
    # As if another replica had led since then: the rule need not wait for the time of a lease.
    await write_lease(here.peer, here.name, released=True)
    with structlog.testing.capture_logs() as log:
        await rules.run_for(1)
    assert here.bridged.sequences == [*range(1, 22), 72, 73]
    assert (events(log, "rule.position_restored"), events(log, "rule.begins_new")) == ([], [71])
