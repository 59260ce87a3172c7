"""Replicas of one stream that hold different messages, on clusters of three: found, where a server reports nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.native_servers import NativeCluster, NativeServer
from nats_bridge.transforms.tested_versions import LIVE_VERSIONS
from tests.live.answered_load import AnsweredLoad
from tests.live.commands import Ran, command_here
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.stream_backup import backup, restore
from tests.live.until import until

Servers = Callable[..., NativeServer]

NEWEST = LIVE_VERSIONS[-1]
VERSIONS = [*(pytest.param(version, marks=pytest.mark.exhaustive) for version in LIVE_VERSIONS[:-1]), NEWEST]
MESSAGES = Path("jetstream", "A", "streams", "S", "msgs")


async def stored(peer: RawPeer, numbers: range, what: str = "message") -> None:
    for number in numbers:
        answer = await peer.store(b"S.%d" % number, f"{what} {number}".encode())
        assert "error" not in answer, answer


async def cluster_of(peer: RawPeer) -> dict[str, Any]:
    """What the stream's information says of its cluster, which answers nothing while it has no leader."""
    answer = await AnsweredLoad(peer.client, "S.none").api("STREAM.INFO.S")
    return dict(answer.get("cluster", {}))


async def is_current(peer: RawPeer) -> bool:
    replicas = (await cluster_of(peer)).get("replicas", ())
    return len(replicas) == 2 and all(
        each["current"] and not each.get("lag") and not each.get("offline") for each in replicas
    )


async def has_leader(peer: RawPeer) -> bool:
    return (await cluster_of(peer)).get("leader") in ("cluster-1", "cluster-2")


async def replica_diff(stream: str, *where: str) -> Ran:
    return await command_here("replica-diff", stream, "--settle", "0", *where)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_replica_with_another_store_is_found(
    version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """A server that was away gets the files of a store that lacks a message, and has another one.

    The command's user has the printed permissions.
    """
    printed = await replica_diff("S", "--server", "nats://127.0.0.1:1", "--permissions")
    assert printed.code == 0, printed.err
    few = f"{{ user: few, password: few, permissions: {printed.out.partition('permissions:')[2]} }}"
    (tmp_path / "password").write_text("few", "utf-8")
    accounts = f"accounts {{ A {{ jetstream: enabled, users: [ {{ user: all, password: all }}, {few} ] }} }}"
    settings = f"{accounts}\nno_auth_user: all\n"
    async with NativeCluster(version, config=settings) as cluster, native_server(version, config=settings) as apart:
        first, _, other = cluster.nodes
        peer = await raw_peer(first.url)
        config = tmp_path / "bridge.yaml"
        config.write_text(
            f"connections: {{default: {{servers: ['{first.url}'], user: few, password_file: password}}}}\n"
            "rules: [{name: a, kind: republish, stream: S, republish: {src: '>', dest: 'seen.>'}}]\n",
            "utf-8",
        )
        here = ("-c", str(config))
        await peer.create_stream(name="S", subjects=["S.>"], num_replicas=3)
        await stored(peer, range(1, 11))
        await until(lambda: is_current(peer))
        ran = await replica_diff("S", *here)
        assert (ran.code, ran.out.splitlines()[-1:]) == (0, ["EQUAL"]), (ran.out, ran.err)

        kept = await backup(peer, "S")
        await asyncio.to_thread(other.stop)
        odd = await raw_peer(apart.url)
        await restore(odd, kept.config | {"num_replicas": 1}, kept)
        await odd.api("STREAM.MSG.DELETE.S", {"seq": 5})
        await stored(odd, range(11, 12), "other")
        await odd.close()
        await asyncio.to_thread(apart.stop)
        shutil.rmtree(other.store_dir / MESSAGES)
        shutil.copytree(apart.store_dir / MESSAGES, other.store_dir / MESSAGES)
        await until(lambda: has_leader(peer))
        await stored(peer, range(11, 12))
        await asyncio.to_thread(cluster.bring_back, other)
        await stored(peer, range(12, 13))
        await until(lambda: is_current(peer))  # as the leader reports, which sees no difference

        async def stores_again() -> bool:  # a little later than it is current
            return "11 messages, 1 to 12" in (await replica_diff("S", *here)).out

        await until(stores_again)
        ran = await replica_diff("S", *here)
        assert ran.code == 1, (ran.out, ran.err)
        assert [line.replace(", leads", "") for line in ran.out.splitlines()] == [
            "S: 3 replicas, sequences 1 to 12",
            "  cluster-1  12 messages, 1 to 12",
            "  cluster-2  12 messages, 1 to 12",
            "  cluster-3  11 messages, 1 to 12",
            "missing on cluster-3: 1 (5)",
            "another payload, time on cluster-3: 1 (11)",
            "DIFFERENT in 2 sequences",
        ]
        ran = await replica_diff("S", *here, "--from-sequence", "6", "--to-sequence", "10")
        assert (ran.code, ran.out.splitlines()[-1:]) == (0, ["EQUAL"]), (ran.out, ran.err)


@pytest.mark.exhaustive
async def test_what_is_not_compared(newest_version: str, raw_peer: OpenPeer) -> None:
    async with NativeCluster(newest_version) as cluster:
        first = cluster.nodes[0]
        peer = await raw_peer(first.url)

        async def refused(**config: Any) -> str:
            await peer.create_stream(**{"name": "R", "subjects": ["R"], **config})
            ran = await replica_diff("R", "--server", first.url)
            await peer.api("STREAM.DELETE.R")
            assert ran.code == 2
            return ran.err

        assert "has one replica" in await refused()
        assert "has retention workqueue" in await refused(num_replicas=3, retention="workqueue")
        ran = await replica_diff("S", "--server", first.url)
        assert (ran.code, "stream 'S' does not exist" in ran.err) == (2, True)
