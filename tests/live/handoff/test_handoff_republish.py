"""Republishing handed over to the server and taken back: every message republished by exactly one of the two."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.errors import RuleRefusedError
from nats_bridge.settings import load
from nats_conformance.native_servers import NativeServer
from tests.live.commands import Ran, command_here
from tests.live.handoff.handoffs import UPGRADES, handoff
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load, Seen
from tests.live.sidecars import failure_of, running, settings_for
from tests.live.until import until


class Place:
    """A stream, a rule for it, and the sidecar's configuration."""

    def __init__(self, url: str, stream: str, directory: Path) -> None:
        self.url, self.stream = url, stream
        self.config = directory / "bridge.yaml"
        self.connection: dict[str, Any] = {"servers": [url]}
        self.rule: dict[str, Any] = {
            "name": "rule",
            "kind": "republish",
            "stream": stream,
            "republish": {"src": f"{stream}.>", "dest": f"out{stream}.>"},
            "start": "first",
        }
        self.settings: dict[str, Any] = {}
        self.configure()

    def configure(self, **more: Any) -> None:
        self.rule |= more
        document = {"connections": {"default": self.connection}, "http": {"listen": ""}, "rules": [self.rule]}
        document |= self.settings
        self.config.write_text(json.dumps(document), "utf-8")

    async def handoff(self, *options: str) -> Ran:
        return await handoff(self.config, "rule", *options)


def kept_position(server: NativeServer, sequence: int) -> dict[Path, bytes]:
    """The files of a server's store, with what they hold, that have a consumer's position: two numbers of a byte each.

    It writes them a tenth of a second later.
    """
    states = {file: file.read_bytes() for file in server.store_dir.rglob("o.dat")}
    return {file: state for file, state in states.items() if bytes([sequence, sequence]) in state}


def stop_without_loss(server: NativeServer, kept: dict[Path, bytes]) -> None:
    """Stop a server. One that writes a position again just then may leave an empty file (2.9.10)."""
    server.stop()
    for file, state in kept.items():
        if not file.read_bytes():
            file.write_bytes(state)


@pytest.mark.parametrize("versions", UPGRADES, ids=lambda pair: "_to_".join(pair))
async def test_an_upgrade_in_place(
    versions: tuple[str, str], native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    before, after = versions
    server = native_server(before).start()
    peer = await raw_peer(server.url)
    await peer.create_stream(name="S", subjects=["S.>"])
    place = Place(server.url, "S", tmp_path)
    old = await Seen.of(peer, "outS.>")
    async with running(load(place.config)):
        await Load(peer, "S").burst(20)
        await old.until_sequence(20)
    await Load(peer, "S").burst(10)
    kept: dict[Path, bytes] = {}

    def is_kept() -> bool:
        kept.update(kept_position(server, 20))
        return bool(kept)

    await until(is_kept)
    await peer.close()
    await asyncio.to_thread(stop_without_loss, server, kept)
    await asyncio.to_thread(server.upgrade, after)
    peer = await raw_peer(server.url)
    new = await Seen.of(peer, "outS.>")
    await Load(peer, "S").burst(10)
    ran = await place.handoff("--apply")
    assert ran.code == 0, ran.err
    assert "everything up to sequence 40 was republished by the bridge" in ran.err
    await Load(peer, "S").burst(10)
    await new.until_sequence(50)
    assert old.sequences + new.sequences == list(range(1, 51))
    assert not (await peer.api("CONSUMER.LIST.S")).get("consumers")


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_applied_while_publishers_continue(
    version: str, delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    peer, publisher = await raw_peer(url), await raw_peer(url)
    stream = unique_name("flow")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    place = Place(url, stream, tmp_path)
    place.configure(delivery=delivery)
    seen = await Seen.of(peer, f"out{stream}.>")
    load_on = Load(publisher, stream)
    async with running(load(place.config)):
        await load_on.burst(200)
        await seen.until_sequence(200)
    done = asyncio.Event()

    async def flow() -> None:
        while not done.is_set():
            await seen.count(load_on.published - 2000)
            await load_on.burst(50)

    flowing = asyncio.create_task(flow())
    ran = await place.handoff("--apply")
    done.set()
    assert ran.code == 0, ran.err
    await flowing
    last = (await peer.store(f"{stream}.end".encode()))["seq"]
    await seen.count(last)
    await peer.flushed()
    assert sorted(seen.sequences) == list(range(1, last + 1))


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_with_publishers_stopped_and_back(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    peer = await raw_peer(await servers.url(version))
    stream = unique_name("paused")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    place = Place(await servers.url(version), stream, tmp_path)
    seen = await Seen.of(peer, f"out{stream}.>")
    load_on = Load(peer, stream)
    async with running(load(place.config)):
        await load_on.burst(20)
        await seen.until_sequence(20)
        ran = await place.handoff()
        first, by_hand = ran.err.split("   Or by hand:\n")
        assert "2. Run this command again with --apply." in first
        assert by_hand.startswith("1. Stop the publishers for a moment")
    answer = await peer.api(f"STREAM.UPDATE.{stream}", ran.document)
    assert "error" not in answer, answer
    await load_on.burst(20)
    await seen.until_sequence(40)
    assert "is handed over" in (await place.handoff()).err

    back = await place.handoff("--back")
    assert "nats-bridge clean" in back.err
    assert "start: {sequence: 41}" in back.err
    answer = await peer.api(f"STREAM.UPDATE.{stream}", back.document)
    assert "error" not in answer, answer
    await peer.api(f"CONSUMER.DELETE.{stream}.nats-bridge_rule")
    place.configure(start={"sequence": 41})
    await load_on.burst(5)
    async with running(load(place.config)):
        await load_on.burst(15)
        await seen.until_sequence(60)
    assert seen.sequences == list(range(1, 61))


async def test_a_running_sidecar_keeps_its_rule(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    peer = await raw_peer(await servers.url("2.15.3"))
    stream = unique_name("bound")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    place = Place(await servers.url("2.15.3"), stream, tmp_path)
    async with running(load(place.config)):
        ran = await place.handoff("--apply")
    assert ran.code == 1
    assert "a sidecar still runs the rule (consumer 'nats-bridge_rule' of stream" in ran.err
    assert "stop all replicas of the sidecar, then run this command again" in ran.err
    assert "republish" not in (await peer.api(f"STREAM.INFO.{stream}"))["config"]


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_replica_that_was_left_running_keeps_the_rule_and_its_lease(
    delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    peer = await raw_peer(await servers.url("2.15.3"))
    stream, bucket = unique_name("replica"), unique_name("leases")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    place = Place(await servers.url("2.15.3"), stream, tmp_path)
    place.settings = {"leadership": {"bucket": bucket}}
    place.configure(delivery=delivery)
    plan = await place.handoff()
    assert "1. Stop all replicas of the sidecar (SIGTERM, or scale to 0). Publishers need not pause." in plan.err
    async with running(load(place.config)) as sidecar:
        await until(lambda: sidecar.supervisors[0].ready)
        ran = await place.handoff("--apply")
        lease = await peer.api(f"STREAM.MSG.GET.KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.lease.nats-bridge.rule"})
    assert ran.code == 1
    assert "stop all replicas of the sidecar, then run this command again" in ran.err
    assert "republish" not in (await peer.api(f"STREAM.INFO.{stream}"))["config"]
    assert lease["message"]["data"], lease
    ran = await place.handoff("--apply")
    assert ran.code == 0, ran.err


async def test_a_user_that_may_not_receive_what_the_server_sends(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    users = '{user: rule, password: secret, permissions: {subscribe: {deny: "outS.>"}}}, {user: all, password: secret}'
    server = native_server("2.15.3", config=f"authorization {{ users: [{users}] }}").start()
    peer = await raw_peer(server.url.replace("//", "//all:secret@"))
    await peer.create_stream(name="S", subjects=["S.>"])
    (tmp_path / "password").write_text("secret", "utf-8")
    place = Place(server.url, "S", tmp_path)
    place.connection |= {"user": "rule", "password_file": str(tmp_path / "password")}
    place.configure()
    ran = await place.handoff("--apply")
    assert ran.code == 2
    assert "may not subscribe to outS.>, by which handoff sees with which message the server begins" in ran.err
    assert "republish" not in (await peer.api("STREAM.INFO.S"))["config"]


async def test_what_cannot_be_handed_over(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    old, new = await servers.url("2.9.10"), await servers.url("2.15.3")
    stream = unique_name("not")
    for url in (old, new):
        await (await raw_peer(url)).create_stream(name=stream, subjects=[f"{stream}.>"])
    ran = await Place(old, stream, tmp_path).handoff()
    assert (ran.code, ran.out) == (1, "")
    assert "server 2.9.10 refuses to change republish of an existing stream (10052): upgrade it first" in ran.err
    place = Place(new, stream, tmp_path)
    place.configure(exclude=[f"{stream}.x"])
    assert "servers have no such option" in (await place.handoff()).err
    place.configure(exclude=[], where={"header": "A", "equals": "b"})
    assert "where: servers cannot select messages by a header" in (await place.handoff()).err
    place.configure(where=None, republish={"src": ">", "dest": f"{stream}.again.>"})
    ran = await place.handoff()
    assert "forms a cycle (10052)" in ran.err
    place.configure(republish={"src": ">", "dest": f"o{stream}.>"})
    await (await raw_peer(new)).api(f"STREAM.UPDATE.{stream}", (await place.handoff()).document)
    place.configure(republish={"src": ">", "dest": f"other{stream}.>"})
    assert "a stream has only one republish" in (await place.handoff()).err
    assert "write the rule's republish as the server's" in (await place.handoff("--back")).err


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_a_rule_that_was_handed_over_is_not_run_again(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    peer = await raw_peer(url)
    stream = unique_name("fenced")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    place = Place(url, stream, tmp_path)
    load_on = Load(peer, stream)
    await load_on.burst(5)
    ran = await place.handoff("--apply")
    assert ran.code == 0, ran.err
    seen = await Seen.of(peer, f"out{stream}.>")
    said = f"natively republishes {stream}.> to out{stream}.>: messages on {stream}.> would arrive twice"
    for more in ({}, {"durable": False}, {"delivery": "at_least_once", "durable": True}):
        place.configure(**more)
        error = await failure_of(load(place.config))
        assert isinstance(error, RuleRefusedError)
        assert said in str(error)
    checked = await command_here("check", "-c", str(place.config), "--server", "config")
    assert checked.code == 1
    assert said in checked.err
    await load_on.burst(5)
    await seen.until_sequence(10)
    assert seen.sequences == list(range(6, 11))


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_a_stream_that_begins_to_republish_the_same_ends_a_rule(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    peer = await raw_peer(url)
    stream = unique_name("repeated")
    config = (await peer.create_stream(name=stream, subjects=[f"{stream}.>"]))["config"]
    republish = {"src": f"{stream}.*.x", "dest": f"out{stream}.$1.x"}
    sidecar = Sidecar(settings_for(url, {"name": "rule", "stream": stream, "republish": republish}))
    await sidecar.start()
    try:
        # Subjects that the rule does not send there.
        for native in (
            {"src": f"{stream}.>", "dest": f"other{stream}.>"},
            {"src": f"{stream}.a", "dest": f"out{stream}"},
        ):
            assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", config | {"republish": native})
            seen = await Seen.of(peer, f"out{stream}.>")
            last = int((await peer.store(f"{stream}.a.x".encode()))["seq"])
            await seen.until_sequence(last)
            assert sidecar.error is None
        native = {"src": f"{stream}.>", "dest": f"out{stream}.>"}
        assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", config | {"republish": native})
        await until(lambda: sidecar.error is not None)
        assert isinstance(sidecar.error, RuleRefusedError)
        assert f"messages on {stream}.*.x would arrive twice" in str(sidecar.error)
    finally:
        await sidecar.stop()
