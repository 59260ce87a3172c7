"""Rules that read a cluster of three, which loses leaders and servers while messages are published.

They publish to a server outside the cluster that stays up, so that everything that they sent is seen.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client import jetstream_api, waiting
from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.consuming import rule_consumer
from nats_bridge.kinds.republish.run import RepublishRun
from nats_conformance.native_servers import NativeCluster, NativeServer
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.copies import record_of
from tests.live.faults.answered_load import AnsweredLoad, answered_load
from tests.live.processes import stands_still
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Seen
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import LIMIT, until

RULES: dict[str, dict[str, Any]] = {
    "once": {"delivery": "at_most_once"},
    "atleast": {"delivery": "at_least_once"},
    "fleeting": {"durable": False},
}
SYSTEM_ACCOUNT = """
accounts {
  SYS: {users: [{user: system, password: system}]}
  APP: {jetstream: enabled, users: [{user: app, password: app}]}
}
system_account: SYS
no_auth_user: app
"""


@pytest.fixture(autouse=True)
def quick_to_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence and requests without an answer are noticed sooner; nothing else changes."""
    monkeypatch.setattr(waiting, "HEARTBEAT", 0.4)
    monkeypatch.setattr(jetstream_api, "ANSWER", 1.0)


@pytest.mark.parametrize("versions", [LIVE_VERSIONS[-1:], pytest.param(LIVE_VERSIONS, marks=pytest.mark.exhaustive)])
async def test_republishing_from_clusters(
    versions: tuple[str, ...], native_server: Servers, raw_peer: OpenPeer
) -> None:
    """Several versions at the same time: elections take seconds in which nothing happens."""
    async with asyncio.TaskGroup() as group:
        for version in versions:
            group.create_task(_losing_leaders_and_servers(version, native_server, raw_peer), name=version)


async def _losing_leaders_and_servers(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with _storing_cluster(version) as (cluster, load), native_server("2.15.3") as target:
        listener = await raw_peer(target.url)
        seen = {name: await Seen.of(listener, f"{name}.>") for name in RULES}
        rules = [
            {
                "name": name,
                "stream": "S",
                "to": "target",
                "start": "first",
                "republish": {"src": "S.>", "dest": f"{name}.S.>"},
                **more,
            }
            for name, more in RULES.items()
        ]
        connections = {"default": {"servers": cluster.urls}, "target": {"servers": [target.url]}}
        async with running(settings_for("", *rules, connections=connections)) as bridge:

            async def caught_up() -> None:
                end = await load.store(10)
                for each in seen.values():
                    await each.until_sequence(end)

            await caught_up()
            async with load.loading():
                for _ in range(3):
                    await load.api("STREAM.LEADER.STEPDOWN.S")
                    for name in ("once", "atleast"):
                        await load.api(f"CONSUMER.LEADER.STEPDOWN.S.nats-bridge_{name}")
                    await load.store(10)
                systems = [url.replace("://", "://system:system@") for url in cluster.urls]
                async with answered_load(systems, "none") as system:
                    assert "error" not in await system.api("META.LEADER.STEPDOWN")
                await load.store(10)
            await caught_up()

            home = await _home_of_the_fleeting(load, cluster, bridge)
            async with load.loading():
                await asyncio.to_thread(home.kill)
                await load.store(10)
            await caught_up()  # the other two continue, and so does a rule whose consumer was on this one
            assert bridge.runs[2].counters.as_dict()["recreated_consumers"] >= 1

            for node in cluster.nodes:
                await asyncio.to_thread(node.kill)
            await until(lambda: not any(run.ready for run in bridge.runs))
            _forget_the_end_for_a_moment(bridge)
            await asyncio.to_thread(cluster.start)
            await caught_up()
            await until(lambda: all(run.ready for run in bridge.runs))
            for run in bridge.runs:
                counted = run.counters.as_dict()
                assert (counted["received"], counted["lost"], counted["in_doubt"]) == (load.last, 0, 0)
                assert counted["recreated_streams"] == 0
        for name, each in seen.items():
            assert each.sequences == list(range(1, load.last + 1)), name


@asynccontextmanager
async def _storing_cluster(version: str) -> AsyncIterator[tuple[NativeCluster, AnsweredLoad]]:
    """A cluster with a stream S, and a publisher to it. Sometimes

    a server never learns the stream's leader, and no message is ever stored: another cluster then.
    """
    for _ in range(5):
        async with NativeCluster(version, config=SYSTEM_ACCOUNT) as cluster, answered_load(cluster.urls, "S.a") as load:
            try:
                async with asyncio.timeout(LIMIT / 3):
                    await load.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "num_replicas": 3})
                    await load.store(1)
            except TimeoutError:
                continue
            yield cluster, load
            return
    raise AssertionError(f"no cluster of {version} takes messages")


def _forget_the_end_for_a_moment(bridge: Sidecar) -> None:
    """As a new leader that has not taken in all that it has: the next answers leave out the stream's last messages."""
    api = bridge.runs[0].connections[0].api
    asked, times = api.stream_info, iter(range(6))

    async def stream_info(stream: str, **more: Any) -> Any:
        info = await asked(stream, **more)
        if next(times, None) is not None:
            info["state"]["last_seq"] -= 5
        return info

    api.stream_info = stream_info  # type: ignore[method-assign]


async def _home_of_the_fleeting(load: AnsweredLoad, cluster: NativeCluster, bridge: Sidecar) -> NativeServer:
    """The server that holds the consumer without a durable name; of others before it, some may be left."""
    run = bridge.runs[2]
    assert isinstance(run, RepublishRun)
    found: list[NativeServer] = []

    async def at_home() -> bool:
        assert run._reader is not None
        info = await load.api(f"CONSUMER.INFO.S.{run._reader.consumer.name}")
        found[:] = [node for node in cluster.nodes if node.name == (info.get("cluster") or {}).get("leader")]
        return bool(found)

    await until(at_home)
    return found[0]


@pytest.mark.exhaustive
async def test_a_just_started_server_is_not_asked_where_a_consumer_stands(raw_peer: OpenPeer) -> None:
    """It answers with what it knew when it ended, until it has found the consumer's leader."""
    async with _storing_cluster("2.10.27") as (cluster, load):
        await load.store(9)
        config = {"durable_name": "c", "ack_policy": "none", "max_waiting": 10}
        await load.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
        stays = cluster.nodes[0]
        peer = await raw_peer(stays.url)
        api = JetStreamApi(peer.client, "default")
        await api.stream_info("S")  # as every rule begins: from then on it is known that servers share the stream

        async def reported() -> tuple[int, str]:
            """Up to where messages were taken, and who leads the consumer."""
            # The server that starts may also know of no consumer yet, which can be said several times in a row.
            while (info := await api.consumer_info("S", "c")) is None:
                pass
            return int(info["delivered"]["stream_seq"]), str(info["cluster"]["leader"])

        async def stands_at(taken: int) -> bool:
            return (await reported())[0] == taken

        for taken in (3, 6, 9):
            _, leader = await reported()
            goes = next(node for node in cluster.nodes if node is not stays and node.name != leader)
            await asyncio.to_thread(goes.kill)
            arrived = await peer.collect(f"taken{taken}")
            body = b'{"batch": 3, "expires": 60000000000}'
            peer.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", body, b"", b"taken%d" % taken)
            await arrived.count(3)
            await until(lambda taken=taken: stands_at(taken))  # type: ignore[misc]  # its servers agree a little later
            back = asyncio.create_task(asyncio.to_thread(cluster.bring_back, goes))
            asked = 0
            while asked < 1000 or not back.done():  # until it has found the leader, and longer
                answer, leader = await reported()
                # On a busy machine another one may lead, and have to catch up first.
                assert answer == taken or leader in {node.name for node in cluster.nodes} - {goes.name}
                asked += 1
            await back


@pytest.mark.exhaustive
@pytest.mark.unstoppable
@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_consumers_that_stay_without_a_leader(
    version: str, native_server: Servers, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As servers 2.10.27 leave them that are all killed right after the consumers were created."""
    monkeypatch.setattr(rule_consumer, "_LEADERLESS", 2.0)
    async with _storing_cluster(version) as (cluster, load), native_server("2.15.3") as target:
        listener = await raw_peer(target.url)
        seen = {name: await Seen.of(listener, f"{name}.>") for name in ("once", "atleast")}
        loads = {"S": load}
        rules: list[dict[str, Any]] = [
            {
                "name": name,
                "stream": "S",
                "to": "target",
                "start": "first",
                "republish": {"src": "S.>", "dest": f"{name}.S.>"},
                **RULES[name],
            }
            for name in seen
        ]
        for name, retention in {"Q": "workqueue", "I": "interest"}.items():
            config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": 3, "retention": retention}
            assert "error" not in await load.api(f"STREAM.CREATE.{name}", config)
            # Without ids: what has come before is known from the copies alone.
            await listener.create_stream(name=f"T{name}", subjects=[f"T{name}.>"], duplicate_window=100_000_000)
            entry = {
                "name": name,
                "acknowledge": True,
                "subject_transforms": [{"src": f"{name}.>", "dest": f"T{name}.>"}],
            }
            rules.append({"name": name, "kind": "sources", "to": "target", "stream": f"T{name}", "sources": [entry]})
            loads[name] = AnsweredLoad(load._client, f"{name}.a")
        connections = {"default": {"servers": cluster.urls}, "target": {"servers": [target.url]}}
        with capture_logs() as log:
            async with running(settings_for("", *rules, connections=connections)) as bridge:
                # Not before: a busy cluster may need longer to elect the leaders of the new streams.
                monkeypatch.setattr(jetstream_api, "_PATIENCE", 2.0)

                async def copied() -> None:
                    for each in seen.values():
                        await each.until_sequence(load.last)
                    for name in ("Q", "I"):
                        end = (await load.api(f"STREAM.INFO.{name}"))["state"]["last_seq"]
                        await until(lambda name=name, end=end: _holds(listener, f"T{name}", end))  # type: ignore[misc]

                for each in loads.values():
                    await each.store(20)
                await copied()
                os.kill(target.pid, signal.SIGSTOP)
                try:
                    await until(lambda: stands_still(target.pid))
                    for each in loads.values():
                        await each.store(20)
                    counted = [run.counters.as_dict for run in bridge.runs]
                    await until(lambda: all(counters()["received"] >= 40 for counters in counted))
                    for node in cluster.nodes:
                        await asyncio.to_thread(node.kill)
                    # Two of the three servers do not get their part of a consumer's group going.
                    for node in cluster.nodes[1:]:
                        for group in node.store_dir.rglob("C-R3F-*"):
                            shutil.rmtree(group)
                            group.touch()
                finally:
                    os.kill(target.pid, signal.SIGCONT)
                await asyncio.to_thread(cluster.start)
                for each in loads.values():
                    await each.store(20)
                await copied()
                for name in ("Q", "I"):
                    await until(lambda name=name: _holds(load, name, 0))  # type: ignore[misc]
        for each in seen.values():
            assert each.sequences == list(range(1, load.last + 1))
        for name in ("Q", "I"):
            copies = await stored_messages(listener, f"T{name}", loads[name].last)
            assert [record_of(copy).sequence for copy in copies] == list(range(1, loads[name].last + 1))
        leaderless = [line["rule"] for line in log if line["event"] == "consumer.leaderless"]
        assert set(leaderless) == {"I", "Q", "atleast", "once"}


async def _holds(asked: Any, stream: str, messages: int) -> bool:
    """Whether a stream holds so many messages."""
    return bool((await asked.api(f"STREAM.INFO.{stream}"))["state"]["messages"] == messages)
