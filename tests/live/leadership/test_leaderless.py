"""While no replica leads a rule, none is ready, and the next leader republishes what is stored in that time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.leadership.leases import LONG, free, write_lease
from tests.live.leadership.replicas import replicas
from tests.live.observing.test_health import get
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.tiers import with_all
from tests.live.until import until

VERSIONS = ["2.15.3", *with_all("2.9.10", "2.10.27")]
NONE_LEADS = "the lead, which no replica has at this moment"


class Rules:
    """A rule that republishes a stream, from `start: new`, and one that stores messages in another stream."""

    def __init__(self, url: str, here: Scene) -> None:
        self.here = here
        name = here.name
        ingress = {
            "name": "ingress",
            "kind": "subject_transform",
            "stream": f"I{name}",
            "subject_transform": {"src": f"in{name}.>", "dest": f"kept{name}.>"},
        }
        self.documents = [here.rule(), ingress]
        self.leadership = {"bucket": name, "ttl": LONG}
        self.settings: Settings = settings_for(
            url, *self.documents, leadership=self.leadership, http={"listen": "127.0.0.1:0"}
        )

    @classmethod
    async def make(cls, url: str, peer: RawPeer, name: str) -> Rules:
        await peer.create_stream(name=f"I{name}", subjects=[f"kept{name}.>"])
        return cls(url, await Scene.make(peer, name))

    async def write_leases(self, **record: object) -> None:
        """Write the record of every rule, as another replica does."""
        for rule in ("rule", "ingress"):
            await write_lease(self.here.peer, self.here.name, rule, **record)

    async def publish(self) -> bytes | None:
        """Publish through the ingress rule; the PubAck, None without responders."""
        return await self.here.peer.request_raw(f"in{self.here.name}.x".encode())

    async def came(self, end: int) -> None:
        """Wait for the last message, and assert that each came once."""
        await self.here.bridged.until_sequence(end)
        assert self.here.bridged.sequences == list(range(1, end + 1))


async def waits_for_a_leader(sidecar: Sidecar) -> bool:
    status, text = await get(sidecar, "/readyz")
    lines = [f"[-] rule {rule}: waiting: {NONE_LEADS}" for rule in ("rule", "ingress")]
    return status == 503 and all(line in text.splitlines() for line in lines)


async def is_ready(sidecar: Sidecar) -> bool:
    return (await get(sidecar, "/readyz"))[0] == 200


@pytest.mark.parametrize("version", VERSIONS)
async def test_at_the_first_start(version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    """The bucket does not exist, so no replica leads before the time of a lease is over."""
    url = await servers.url(version)
    rules = await Rules.make(url, await raw_peer(url), unique_name("first"))
    here = rules.here
    async with running(rules.settings) as first, running(rules.settings) as second:
        assert await waits_for_a_leader(first)
        assert await waits_for_a_leader(second)
        assert await rules.publish() is None
        await here.load.burst(50)
        await rules.write_leases(released=True)
        await until(lambda: is_ready(first))
        await until(lambda: is_ready(second))
        answer = await rules.publish()
        assert answer is not None
        assert b"error" not in answer
        await here.load.burst(50)
        await rules.came(await here.end())
    assert [each["name"] for each in await here.consumers()] == ["nats-bridge_rule"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_rule_begins_where_its_first_replica_began_to_wait(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Also where that replica has ended without ever leading, and its successor begins to wait later."""
    url = await servers.url(version)
    rules = await Rules.make(url, await raw_peer(url), unique_name("begins"))
    here = rules.here
    async with running(rules.settings) as first:
        assert await waits_for_a_leader(first)
        await here.load.burst(20)
    await here.load.burst(20)
    async with running(rules.settings) as second:
        assert await waits_for_a_leader(second)
        await here.load.burst(20)
        await rules.write_leases(released=True)
        await until(lambda: is_ready(second))
        await rules.came(await here.end())


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_holder_counts_only_while_it_renews(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """The record of a killed replica looks like that of one that lives, until it should have been renewed."""
    url = await servers.url(version)
    rules = await Rules.make(url, await raw_peer(url), unique_name("renews"))
    await free(rules.here.peer, rules.here.name, "rule", "ingress")
    await rules.write_leases()
    async with running(rules.settings) as standby:
        assert await waits_for_a_leader(standby)
        beats = itertools.count(2)

        async def is_ready_after_a_renewal() -> bool:
            # The first record that the standby sees is not a renewal, and it may not have seen one yet.
            await rules.write_leases(beat=next(beats))
            return await is_ready(standby)

        await until(is_ready_after_a_renewal)
        await rules.write_leases(released=True)
        await until(lambda: all(supervisor.leader for supervisor in standby.supervisors))


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_leader_that_cannot_renew_is_not_ready(
    version: str,
    servers: SharedServers,
    native_server: Callable[..., NativeServer],
    unique_name: Name,
    raw_peer: OpenPeer,
) -> None:
    """The leases are in another cluster than the rule's streams, and that one goes away."""
    leases = native_server(version)
    await asyncio.to_thread(leases.start)
    url = await servers.url(version)
    here = await Scene.make(await raw_peer(url), unique_name("lease"))
    peer = await raw_peer(leases.url)
    await free(peer, here.name, "rule")
    settings = settings_for(
        url,
        here.rule(),
        connections={"default": {"servers": [url]}, "leases": {"servers": [leases.url]}},
        leadership={"connection": "leases", "bucket": here.name, "ttl": 3.0},
        http={"listen": "127.0.0.1:0"},
    )
    async with running(settings) as sidecar:
        (supervisor,) = sidecar.supervisors
        await until(lambda: supervisor.leader and supervisor.ready)
        await asyncio.to_thread(leases.kill)
        await until(lambda: not supervisor.leader)
        status, text = await get(sidecar, "/readyz")
        assert status == 503
        assert "[-] rule rule: waiting: the certainty that no other replica writes for the rule" in text
        await here.load.burst(20)
        await asyncio.to_thread(leases.start)
        await until(lambda: is_ready(sidecar))
        await here.bridged.until_sequence(await here.end())


@pytest.mark.parametrize("version", VERSIONS)
async def test_after_a_kill(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    rules = await Rules.make(url, await raw_peer(url), unique_name("killed"))
    here = rules.here
    async with replicas(tmp_path, url, here.name, rules.documents, 10.0) as group:
        await group.free(here.peer)
        first = await group.start()
        await group.leads(first)
        standby = rules.settings.model_copy(
            update={"leadership": rules.settings.leadership.model_copy(update={"ttl": 10.0})}
        )
        async with running(standby) as second:
            await until(lambda: is_ready(second))
            await here.load.burst(20)
            await here.bridged.count(20)
            await first.kill()
            await rules.write_leases(ttl=LONG)  # of the killed replica: no other one leads before the test lets it
            await until(lambda: waits_for_a_leader(second))
            assert not any(supervisor.leader for supervisor in second.supervisors)
            await here.load.burst(20)
            await rules.write_leases(beat=2, released=True)
            await until(lambda: is_ready(second))
            assert all(supervisor.leader for supervisor in second.supervisors)
            assert await rules.publish()
            await rules.came(await here.end())
