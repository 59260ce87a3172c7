"""Copies are made exactly once while servers, connections and streams fail under the rule."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.errors
import pytest

from nats_conformance.native_servers import NativeCluster
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.copies import Copies, record_of
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load, SidecarProcess, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.stored_messages import stored_messages
from tests.live.until import LIMIT, until


@pytest.mark.parametrize(
    ("away", "version"),
    [
        ("source", LIVE_VERSIONS[0]),
        ("target", LIVE_VERSIONS[-1]),
        *(pytest.param("source", version, marks=pytest.mark.exhaustive) for version in LIVE_VERSIONS[1:]),
        *(pytest.param("target", version, marks=pytest.mark.exhaustive) for version in LIVE_VERSIONS[:-1]),
    ],
)
async def test_one_of_two_servers_is_killed_and_comes_back(
    away: str, version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """The source's server may lose the end of its store, which then was never there; the target's copies of it stay."""
    with native_server(version) as source, native_server(version) as target:
        here = await Copies.make(await raw_peer(source.url), "S", target_peer=await raw_peer(target.url))
        connections = {"default": {"servers": [target.url]}, "there": {"servers": [source.url]}}
        rule = here.rule(entry={"from": "there"})
        async with running(settings_for(target.url, rule, connections=connections)) as bridge:
            load = Load(here.peer, here.name)
            for _ in range(3):
                await load.burst(2000)
                await here.peer.store(f"{here.name}.end".encode(), b"end")
                await here.holds(1)
                server = source if away == "source" else target
                server.kill()
                server.start()
                peer = await raw_peer(server.url)
                if away == "source":
                    here.peer = peer
                    load = Load(peer, here.name)
                else:
                    here.target_peer = peer
                await until(lambda: bridge.runs[0].ready)
            await load.burst(500)
            last = int((await here.peer.store(f"{here.name}.end".encode(), b"last"))["seq"])

            async def copied() -> bool:
                stored = await here.stored()
                return bool(stored) and stored[-1].payload == b"last"

            await until(copied)
        sequences = await here.source_sequences()
        if away == "target":
            assert sequences == list(range(1, last + 1))
        else:
            # What the source holds now is there, once each and in order.
            present = {message.payload: None for message in await here.stored()}
            assert present
            await _holds_all_of_the_source(here)


async def _holds_all_of_the_source(here: Copies) -> None:
    state = (await here.peer.api(f"STREAM.INFO.{here.name}"))["state"]
    source = await stored_messages(here.peer, here.name, int(state["messages"]))
    copies = [(record_of(message).sequence, message.payload) for message in await here.stored()]
    expected = [(message.sequence, message.payload) for message in source]
    there = set(copies)
    assert [each for each in expected if each not in there] == []
    assert len(copies) == len(there)


@pytest.mark.parametrize(
    "kind", ["max_msgs", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("max_bytes", "per_subject"))]
)
async def test_a_full_target_and_kills(
    kind: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """Whatever part of it the target takes before the kill, each message is stored once."""
    number = 1000
    url = await servers.url("2.10.27")
    peer = await raw_peer(url)
    limits: dict[str, dict[str, Any]] = {
        "max_msgs": {"max_msgs": 400},
        "max_bytes": {"max_bytes": 80_000},
        "per_subject": {"max_msgs_per_subject": 20, "discard_new_per_subject": True},
    }
    here = await Copies.make(peer, unique_name("fullkill"), target={"discard": "new", **limits[kind]})
    await Load(peer, here.name).burst(number)
    got: list[int] = []
    async with sidecar_processes(tmp_path) as start:
        while len(got) < number - 1:
            process = await start(url, here.rule())
            await process.ready()

            async def full_or_all_there(process: SidecarProcess = process, left: int = number - len(got)) -> bool:
                full = any("copying.waits" in line for line in process.log)
                return full or int((await here.state())["messages"]) == left

            await until(full_or_all_there)
            await process.kill()
            # What the process had written is stored even now, if there is room.
            stored = await here.stored()
            # The newest copy stays: it holds the position.
            got += [record_of(message).sequence for message in stored[:-1]]
            await peer.api(f"STREAM.PURGE.{here.target}", {"seq": stored[-1].sequence})
    assert sorted(got) == list(range(1, number))


async def test_local_messages_in_between_do_not_confuse_the_count(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    here = await Copies.make(peer, unique_name("local"))
    local = await raw_peer(url)

    async def write_locally() -> None:
        number = 0
        while True:
            number += 1
            await local.store(f"{here.target}.local".encode(), b"%d" % number)

    async with running(settings_for(url, here.rule())) as bridge:
        writing = asyncio.create_task(write_locally())
        load = Load(peer, here.name)
        for _ in range(5):
            await load.burst(2000)
        await until(lambda: bridge.runs[0].counters.as_dict()["copied"] >= 10_000)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        assert bridge.runs[0].counters.as_dict()["copied"] == 10_000
    copies = [m for m in await here.stored() if not m.subject.endswith(b".local")]
    assert [record_of(message).sequence for message in copies] == list(range(1, 10_001))


@pytest.mark.parametrize(
    ("version", "retention", "strict"),
    [
        ("2.15.3", "limits", False),
        ("2.15.3", "workqueue", False),
        pytest.param("2.15.3", "interest", False, marks=pytest.mark.exhaustive),
        pytest.param("2.15.3", "limits", True, marks=pytest.mark.exhaustive),
        *(
            pytest.param(version, retention, False, marks=pytest.mark.exhaustive)
            for version in LIVE_VERSIONS[:-1]
            for retention in ("limits", "workqueue", "interest")
        ),
    ],
)
async def test_leader_changes_of_both_streams_in_a_cluster(
    version: str, retention: str, strict: bool, raw_peer: OpenPeer
) -> None:
    """A change of leaders may lose messages in flight; they are stored afterwards, later ones before them. With

    strict_order nothing is in flight after a message that can be lost, so the order stays.
    What is published without an answer can be lost in the source, too: what counts is what the source stored.
    """
    async with _replicated(version, raw_peer, retention=retention) as (cluster, here):
        peer = here.peer
        connections = {"default": {"servers": cluster.urls}}
        rule = here.rule(strict_order=strict, entry={"acknowledge": retention != "limits"})
        settings = settings_for(cluster.urls[0], rule, connections=connections)
        async with running(settings) as bridge:
            load = Load(peer, here.name)
            for turn in range(4):
                before = await here.source_end()
                burst = asyncio.create_task(load.sent(300 if strict else 1500))
                await here.holds(before // 2)
                stream = here.target if turn % 4 else here.name
                with contextlib.suppress(nats.errors.Error):  # no leader at this moment: that is a change, too
                    await peer.client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", b"", timeout=2)
                await burst
            await until(lambda: bridge.runs[0].ready)
            end = await _stored_at_last(peer, here)
            await here.holds(end)
        sequences = await here.source_sequences()
        assert (sequences if strict else sorted(sequences)) == list(range(1, end + 1))


async def test_first_copies_that_are_lost_in_flight_are_sent_again(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster without a leader stores nothing and says nothing, and what comes a moment later is stored."""
    url = await servers.url(newest_version)
    peer = await raw_peer(url)
    # One that may refuse a message, as one of a cluster, is asked about every message and not for a count of all.
    here = await Copies.make(peer, unique_name("first"), target={"discard": "new"})
    async with running(settings_for(url, here.rule())) as bridge:
        lost: list[bytes] = []
        for connection in bridge.runs[0].connections:
            monkeypatch.setattr(connection.client, "write_raw", _losing_first_copies(connection.client.write_raw, lost))
        await Load(peer, here.name).burst(3000)
        await here.holds(3000)
    assert len(lost) == 1
    await here.are_exact()


def _losing_first_copies(write: Callable[..., None], lost: list[bytes]) -> Callable[..., None]:
    def losing(data: bytes, *fence: Any) -> None:
        if data.startswith(b"HPUB ") and not lost:
            lost.append(data)
        else:
            write(data, *fence)

    return losing


@asynccontextmanager
async def _replicated(version: str, raw_peer: OpenPeer, **source: Any) -> AsyncIterator[tuple[NativeCluster, Copies]]:
    """A cluster with a source and a target.

    Sometimes a server never learns a stream's leader, and no message is ever stored: another cluster then.
    """
    replicas = {"num_replicas": 3}
    # After a change of leaders a server can treat an id as pending until the window has passed (10158, 2.15.3):
    # copying waits for that. The shortest one with which answers are shared, as with the usual two minutes.
    window = {"duplicate_window": 20 * 10**9}
    for _ in range(5):
        async with NativeCluster(version) as cluster:
            peer = await raw_peer(cluster.urls[0])
            try:
                async with asyncio.timeout(LIMIT / 3):
                    here = await Copies.make(peer, "S", source=replicas | source, target=replicas | window)
                    for stream in (here.name, here.target):
                        await _refused_at_last(peer, f"{stream}.x")
            except TimeoutError:
                continue
            yield cluster, here
            return
    raise AssertionError(f"no cluster of {version} takes messages")


async def _refused_at_last(peer: RawPeer, subject: str) -> None:
    """Wait until a stream's leader answers, with a message that no stream stores."""
    beyond = {"Nats-Expected-Last-Sequence": str(2**63 - 1)}
    while True:
        with contextlib.suppress(nats.errors.Error):
            reply = await peer.client.request(subject, b"", timeout=1, headers=beyond)
            if json.loads(reply.data).get("error", {}).get("err_code") == 10071:
                return
        await asyncio.sleep(0.01)


async def _stored_at_last(peer: RawPeer, here: Copies) -> int:
    while True:
        with contextlib.suppress(nats.errors.Error):
            reply = await peer.client.request(f"{here.name}.end", b"end", timeout=2)
            answer = json.loads(reply.data)
            if "seq" in answer:
                return int(answer["seq"])


@pytest.mark.parametrize("at_once", [False, True], ids=["seen deleted", "recreated at once"])
async def test_an_idle_rule_notices_that_its_target_was_deleted(
    at_once: bool, twin_version: str, servers: SharedServers, raw_peer: OpenPeer, unique_name: Name
) -> None:
    url = await servers.url(twin_version)
    here = await Copies.make(await raw_peer(url), unique_name("idle"))
    await Load(here.peer, here.name).burst(7)
    async with running(settings_for(url, here.rule())) as bridge:
        (run,) = bridge.runs
        await here.holds(7)
        await until(lambda: run.ready)
        config = (await here.peer.api(f"STREAM.INFO.{here.target}"))["config"]
        await here.peer.api(f"STREAM.DELETE.{here.target}")
        if not at_once:
            await until(lambda: not run.ready and "to exist" in str(run.waiting_for))
        await here.peer.create_stream(**config)
        await here.holds(7)
        await until(lambda: run.ready)
    await here.are_exact()
