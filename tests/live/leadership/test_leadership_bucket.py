"""The bucket of the leases: made, refused, deleted under a leader; and what a forced takeover keeps of a position."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.cli.clean import clean
from nats_bridge.client.connection import open_connection
from nats_bridge.client.pub_ack import PubAck
from nats_bridge.client.tasks import end_tasks
from nats_bridge.consuming.consumer_plan import marker_name
from nats_bridge.errors import ConfigError, NotPermittedError, RuleRefusedError
from nats_bridge.permissions.granting import grants_of
from nats_bridge.rules.leadership import lease_store
from nats_bridge.rules.leadership.lease import Record, Sighting, Write
from nats_bridge.rules.leadership.lease_store import LeaseStore
from nats_bridge.rules.leadership.leases import open_leases
from nats_bridge.rules.leadership.timing import Timing
from nats_bridge.rules.run import RuleRun
from nats_bridge.rules.supervisor import RuleSupervisor
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeCluster, NativeServer
from tests.live.copies import Copies
from tests.live.leadership.leases import LONG, free, lease, write_lease
from tests.live.raw_messages import Collected, OpenPeer, RawPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import listeners_of, running, settings_for
from tests.live.until import LIMIT, until

Name = Callable[[str], str]
TTL = 3.0
"""Seconds of a lease where its renewals matter, of which there are five in that time."""


def settings(url: str, bucket: str, rule: dict[str, Any], *, ttl: float = LONG, **more: Any) -> Settings:
    leadership = {"bucket": bucket, "ttl": ttl, **more.pop("leadership", {})}
    return settings_for(url, rule, leadership=leadership, **more)


async def _bind_elsewhere(here: Scene, other: RawPeer) -> Collected:
    """Make the rule's durable consumer deliver to another client, as to a paused process; return what it receives."""
    consumer = await here.durable()
    bound = {k: v for k, v in consumer["config"].items() if k != "metadata"} | {"deliver_subject": f"else{here.name}"}
    collected = await other.collect(f"else{here.name}")
    request = {"stream_name": here.name, "config": bound}
    assert "error" not in await other.api(f"CONSUMER.DURABLE.CREATE.{here.name}.nats-bridge_rule", request)
    return collected


async def test_the_bucket_is_made_and_a_lease_is_released(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("bucket"))
    async with running(settings(url, here.name, here.rule(), ttl=2.0)) as sidecar:
        await until(lambda: sidecar.supervisors[0].leader is True and sidecar.supervisors[0].state == "ready")
        held = await lease(here.peer, here.name)
        assert held is not None
        assert (held["term"], held["released"]) == (1, False)
        await here.load.burst(10)
        await here.bridged.count(10)
    freed = await lease(here.peer, here.name)
    assert freed is not None
    assert (freed["holder"], freed["released"]) == (held["holder"], True)
    config = (await here.peer.api(f"STREAM.INFO.KV_{here.name}"))["config"]
    assert (config["max_msgs_per_subject"], config["storage"]) == (1, "file")


async def test_a_lease_is_written_only_over_the_revision_that_is_expected(
    servers: SharedServers, unique_name: Name
) -> None:
    connection = await open_connection("default", {"servers": [await servers.url("2.15.3")]}, client_name="test")
    store = LeaseStore(connection, "nats-bridge", unique_name("over"), Timing(LONG), lambda *_: None, lambda *_: None)
    await store.open("rule")
    ours, theirs = Record("ours", 1, 1, LONG), Record("theirs", 1, 1, LONG)
    first = await store.write("rule", Write(ours, 0))
    assert first.kind == "stored"
    assert (await store.write("rule", Write(theirs, 0))).overtaken
    assert await store.read("rule") == Sighting(first.sequence, ours)
    assert (await store.write("rule", Write(theirs, first.sequence))).kind == "stored"
    assert (await store.write("rule", Write(ours, first.sequence))).overtaken
    await store.close()
    await connection.close()


async def test_clean_removes_leases(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.10.27")
    here = await Scene.make(await raw_peer(url), unique_name("clean"))
    chosen = settings(url, here.name, here.rule(), ttl=2.0)
    nothing = f"rule 'rule': nothing to remove: lease in bucket '{here.name}'"
    assert (await clean(chosen, []))[0] == nothing
    async with running(chosen) as sidecar:
        await until(lambda: sidecar.supervisors[0].state == "ready")
    assert (await clean(chosen, ["rule"]))[0] == f"rule 'rule': removed lease in bucket '{here.name}'"
    assert await lease(here.peer, here.name) is None
    assert (await clean(chosen, []))[0] == nothing


async def test_a_standby_is_ready_and_does_not_lead(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.10.27")
    here = await Scene.make(await raw_peer(url), unique_name("standby"))
    await free(here.peer, here.name)
    chosen = settings(url, here.name, here.rule(), ttl=5.0)
    async with running(chosen) as leader:
        await until(lambda: leader.supervisors[0].state == "ready")
        async with running(chosen) as standby:
            supervisor = standby.supervisors[0]
            await until(lambda: supervisor.ready)  # since the leader has renewed
            assert (supervisor.state, supervisor.leader) == ("standby", False)
            assert supervisor.waiting_for is not None
            assert leader.supervisors[0].leader is True


async def test_of_three_that_find_a_released_lease_one_leads(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Of several rules, so that they meet more often; test_replicas has the same as processes."""
    url = await servers.url("2.10.27")
    here = await Scene.make(await raw_peer(url), unique_name("race"))
    names = [f"rule{number}" for number in range(4)]
    await free(here.peer, here.name, *names)
    leadership = {"bucket": here.name, "ttl": LONG}
    chosen = settings_for(url, *(here.rule(name=name) for name in names), leadership=leadership)
    async with AsyncExitStack() as stack:
        three = await asyncio.gather(*(stack.enter_async_context(running(chosen)) for _ in range(3)))
        of_rules = list(zip(*(sidecar.supervisors for sidecar in three), strict=True))

        def one_leads() -> bool:
            return all(
                sorted(supervisor.state for supervisor in supervisors) == ["ready", "standby", "standby"]
                for supervisors in of_rules
            )

        await until(one_leads)
        assert [[supervisor.leader for supervisor in supervisors].count(True) for supervisors in of_rules] == [1] * len(
            names
        )


@pytest.mark.parametrize("version", [pytest.param("2.10.27", marks=pytest.mark.exhaustive), "2.15.3"])
async def test_a_bucket_that_is_deleted_is_recreated_by_the_leader(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Scene.make(await raw_peer(url), unique_name("deleted"))
    await free(here.peer, here.name)
    async with running(settings(url, here.name, here.rule(delivery="at_least_once"), ttl=TTL)) as sidecar:
        await until(lambda: sidecar.supervisors[0].state == "ready")
        assert (await here.peer.api(f"STREAM.DELETE.KV_{here.name}"))["success"]

        async def is_back() -> bool:
            return await lease(here.peer, here.name) is not None

        await until(is_back)
        await here.load.burst(100)
        await here.bridged.count(100)


async def test_a_bucket_waits_for_servers_that_a_cluster_has_not_met_yet(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of three of which two have met answers as one of two does; no request distinguishes them."""
    async with NativeCluster("2.10.27", size=2) as cluster:
        here = await Scene.make(await raw_peer(cluster.urls[0]), "S")

        async def started(bucket: str) -> int:
            """How many servers have the bucket that a sidecar makes at its start."""
            async with running(settings(cluster.urls[0], bucket, here.rule())):
                config = (await here.peer.api(f"STREAM.INFO.KV_{bucket}"))["config"]
            return int(config["num_replicas"])

        with capture_logs() as log:
            monkeypatch.setattr(lease_store, "GATHERING", 0.0)
            assert await started("alone") == 1
            (warning,) = [entry for entry in log if entry["event"] == "leadership.one_server"]
            # A busy cluster adds that a peer is offline.
            assert warning["reason"].startswith("no suitable peers for placement")

        with capture_logs() as log:
            monkeypatch.setattr(lease_store, "GATHERING", 1000.0)
            together = asyncio.create_task(started("together"))
            await until(lambda: any(entry["event"] == "leadership.few_servers" for entry in log))
            routes = ", ".join(f'"nats://127.0.0.1:{_route_port(node)}"' for node in cluster.nodes)
            joins = f'cluster {{ name: "cluster", listen: "127.0.0.1:-1", routes: [{routes}] }}'
            third = native_server("2.10.27", name="third", config=joins)
            await asyncio.to_thread(third.start)
            while not await _met(cluster, 3):
                await asyncio.to_thread(third.stop)
                await asyncio.to_thread(third.start)
            assert await together == 3


async def _met(cluster: NativeCluster, servers: int) -> bool:
    """Whether so many servers have met; where a machine is busy, a cluster now and then ignores one that joins."""

    async def met() -> bool:
        found = [await asyncio.to_thread(node.monitored, "/jsz") for node in cluster.nodes]
        return any(each.get("meta_cluster", {}).get("cluster_size") == servers for each in found)

    try:
        await until(met, 30)
    except TimeoutError:
        return False
    return True


def _route_port(node: NativeServer) -> int:
    return int(node.monitored("/varz")["cluster"]["cluster_port"])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"max_age": 1_000_000_000}, "forgets its values after 1 s"),
        ({"subjects": ["elsewhere.$KV.>"]}, "does not store"),
    ],
)
async def test_a_bucket_that_cannot_hold_leases(
    config: dict[str, Any], reason: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.10.27")
    here = await Scene.make(await raw_peer(url), unique_name("unfit"))
    usual = {"name": f"KV_{here.name}", "subjects": [f"$KV.{here.name}.>"], "max_msgs_per_subject": 1}
    await here.peer.create_stream(**usual | config)
    with pytest.raises(ConfigError, match=reason):
        await Sidecar(settings(url, here.name, here.rule())).start()
    await here.peer.api(f"STREAM.DELETE.KV_{here.name}")


@pytest.mark.parametrize("denied", ["$KV.LEASES.>", "$JS.API.STREAM.MSG.GET.KV_LEASES", "$JS.API.STREAM.CREATE.*"])
async def test_a_user_who_may_not_use_the_bucket_gets_the_permissions_to_grant(
    denied: str, native_server: Callable[..., NativeServer], tmp_path: Path
) -> None:
    user = f'{{user: a, password: b, permissions: {{publish: {{deny: ["{denied}"]}}}}}}'
    secret = tmp_path / "password"
    secret.write_text("b", "utf-8")
    async with native_server("2.10.27", config=f"authorization: {{users: [{user}]}}") as server:
        login = {"default": {"servers": [server.url], "user": "a", "password_file": str(secret)}}
        rule = {"name": "rule", "stream": "S", "republish": {"dest": "d.>"}}
        with pytest.raises(NotPermittedError) as caught:
            await Sidecar(settings(server.url, "LEASES", rule, connections=login)).start()
    assert "the user may not publish to $" in str(caught.value)


async def test_leases_work_with_exactly_the_permissions_that_are_printed(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("b", "utf-8")

    def chosen(url: str, rule: dict[str, Any]) -> Settings:
        login = {"default": {"servers": [url], "user": "a", "password_file": str(secret)}}
        return settings(url, "LEASES", rule, ttl=2.0, connections=login)

    rule = {
        "name": "rule",
        "stream": "S",
        "republish": {"src": "S.>", "dest": "bridgeS.>"},
        "delivery": "at_least_once",
    }
    # Which subjects are granted does not depend on where the server is.
    (granted,) = grants_of(chosen("nats://127.0.0.1:1", rule))
    allowed = json.dumps({"publish": granted.subjects("publish"), "subscribe": granted.subjects("subscribe")})
    users = f"{{user: a, password: b, permissions: {allowed}}}, {{user: all, password: all}}"
    config = f"authorization: {{users: [{users}]}}, no_auth_user: all"
    async with native_server("2.10.27", config=config.replace(", no_auth_user", "\nno_auth_user")) as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        with capture_logs() as log:
            async with running(chosen(server.url, rule)) as leader:
                await until(lambda: leader.supervisors[0].state == "ready")
                async with running(chosen(server.url, rule)):
                    await here.load.burst(10)
                    await here.bridged.count(10)
            await _bind_elsewhere(here, here.peer)
            async with running(chosen(server.url, rule)) as leader:
                await until(lambda: leader.supervisors[0].state == "ready")
                await here.load.burst(10)
                await here.bridged.count(20)
    assert [entry for entry in log if entry["event"] == "connection.refused"] == []
    assert [entry for entry in log if entry["event"] == "consumer.taken_over"]


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_position_survives_a_takeover_that_ends_half_way(
    delivery: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """The consumer was deleted, and the process that was to recreate it ended just then: the marker is left."""
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("halfway"))
    await free(here.peer, here.name)
    rule = here.rule(delivery=delivery)
    async with running(settings(url, here.name, rule)) as sidecar:
        await until(lambda: sidecar.supervisors[0].state == "ready")
        await here.load.burst(100)
        await here.bridged.count(100)
    await here.load.burst(50)
    durable = "nats-bridge_rule"
    owner = (await here.durable())["config"]["description"]
    marker = {
        "durable_name": marker_name(durable),
        "description": owner,
        "ack_policy": "explicit",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 101,
    }
    request = {"stream_name": here.name, "config": marker}
    made = await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.{marker_name(durable)}", request)
    assert "error" not in made, made
    assert (await here.peer.api(f"CONSUMER.DELETE.{here.name}.{durable}"))["success"]
    async with running(settings(url, here.name, rule)):
        await here.bridged.count(150)
    assert here.bridged.sequences == list(range(1, 151))
    assert [consumer["name"] for consumer in await here.consumers()] == [durable]


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_durable_consumer_is_taken_from_a_process_that_is_bound_to_it(
    delivery: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("bound"))
    await free(here.peer, here.name)
    rule = here.rule(delivery=delivery)
    async with running(settings(url, here.name, rule)) as sidecar:
        await until(lambda: sidecar.supervisors[0].state == "ready")
        await here.load.burst(100)
        await here.bridged.count(100)
    other = await raw_peer(url)
    collected = await _bind_elsewhere(here, other)
    if delivery == "at_least_once":
        await here.load.burst(50)  # sent to the other one, which confirms nothing
        await collected.count(50)
    async with running(settings(url, here.name, rule)) as sidecar:
        await until(lambda: sidecar.supervisors[0].state == "ready")
        if delivery == "at_most_once":
            await here.load.burst(50)
        await here.bridged.count(150)
        await other.flushed()
        assert len([m for m in collected.messages if m[3]]) == (50 if delivery == "at_least_once" else 0)
    assert here.bridged.sequences == list(range(1, 151))
    assert [consumer["name"] for consumer in await here.consumers()] == ["nats-bridge_rule"]


async def test_a_lead_that_is_lost_leaves_nothing_on_the_connections(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a failure of a rule that another replica leads already ends no sidecar."""
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    here = await Scene.make(peer, unique_name("lost"))
    copies = await Copies.make(peer, unique_name("lost"))
    rules = [here.rule(delivery="at_least_once"), copies.rule(name="copies")]
    await free(peer, here.name, "rule", "copies")
    leadership = {"bucket": here.name, "ttl": TTL}
    async with running(settings_for(url, *rules, leadership=leadership)) as sidecar:
        await until(lambda: all(supervisor.state == "ready" for supervisor in sidecar.supervisors))
        for supervisor in sidecar.supervisors:
            run, term = supervisor.run, supervisor.term
            assert run is not None

            def lose(run: RuleRun = run, report: Callable[[], None] = term.lost.set) -> None:
                report()
                run._fail(RuleRefusedError("another process is bound to the consumer"))  # type: ignore[attr-defined]

            monkeypatch.setattr(term.lost, "set", lose)
            await write_lease(peer, here.name, supervisor.rule.name, term=99, ttl=3600)
        await until(
            lambda: all(
                supervisor.state == "standby" and supervisor.run is not None and supervisor.run.state == "stopped"
                for supervisor in sidecar.supervisors
            )
        )
        assert [supervisor.error for supervisor in sidecar.supervisors] == [None, None]
        assert not sidecar.finished.is_set()
        # The sidecar's own two are left: when the connection ends permanently, and which version a server has.
        assert listeners_of(sidecar.connections["default"]) == 2


async def test_a_release_outlives_the_caller_that_asked_for_it(
    newest_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop cancels a handover, and without a release the rule would have no leader until the lease expires."""
    url, bucket = await servers.url(newest_version), unique_name("outlives")
    peer = await raw_peer(url)
    await free(peer, bucket)
    configured = settings(url, bucket, {"name": "rule", "stream": "S", "republish": {"src": "a", "dest": "b"}})
    leases = await open_leases(configured, cast(Any, configured.leadership))
    term = await leases.lead(configured.rules[0])
    write, asked, may = LeaseStore.write, asyncio.Event(), asyncio.Event()

    async def held(*args: Any) -> PubAck:
        asked.set()
        await may.wait()
        return await write(*args)

    monkeypatch.setattr(LeaseStore, "write", held)
    ending = asyncio.create_task(term.end())
    await asyncio.wait_for(asked.wait(), LIMIT)
    await end_tasks(ending)
    leading = asyncio.create_task(leases.lead(configured.rules[0]))
    may.set()
    again = await asyncio.wait_for(leading, LIMIT)
    assert again.number == term.number + 1
    asked.clear()
    may.clear()
    ending = asyncio.create_task(again.end())
    await asyncio.wait_for(asked.wait(), LIMIT)
    await end_tasks(ending)
    closing = asyncio.create_task(leases.close())
    may.set()
    await asyncio.wait_for(closing, LIMIT)
    left = await lease(peer, bucket)
    assert left is not None
    assert (left["term"], left["released"]) == (again.number, True)


async def test_what_a_replica_releases_is_taken_while_the_rest_of_it_drains(
    newest_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others lead their share, and would leave it to the replica that stops for a whole lease."""
    url = await servers.url(newest_version)
    here = await Scene.make(await raw_peer(url), unique_name("drains"))
    names = [f"r{number}" for number in range(4)]
    await free(here.peer, here.name, *names)
    leadership = {"bucket": here.name, "ttl": LONG, "share": True}
    configured = settings_for(url, *(here.rule(name=name) for name in names), leadership=leadership)

    def led(sidecar: Sidecar) -> list[RuleSupervisor]:
        return [each for each in sidecar.supervisors if each.leader and each.ready]

    async with running(configured) as first:
        await until(lambda: len(led(first)) == 4)
        async with running(configured) as second:
            await until(lambda: (len(led(first)), len(led(second))) == (2, 2))
            slow, quick = led(second)
            run, may = slow.run, asyncio.Event()
            assert run is not None
            stop = run.stop

            async def held() -> None:
                await may.wait()
                await stop()

            monkeypatch.setattr(run, "stop", held)
            stopping = asyncio.create_task(second.stop())
            await until(lambda: len(led(first)) == 3)
            assert (slow.state, quick.state) == ("draining", "stopped")
            may.set()
            assert await stopping
            await until(lambda: len(led(first)) == 4)
