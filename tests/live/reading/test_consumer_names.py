"""Ephemeral consumers have the same names after each restart, and none that another process uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from nats_bridge.client.connection import open_connection
from nats_bridge.client.consumer_names import place
from nats_bridge.consuming.replay import Replay, standing_config
from nats_bridge.settings.connect_options import connect_options
from tests.live.copies import Copies
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import until

PLACE = re.sub(r"[^A-Za-z0-9_-]", "-", place())
VERSIONS = ["2.10.27", "2.15.3", pytest.param("2.12.15", marks=pytest.mark.exhaustive)]


async def created(peer: RawPeer, stream: str, *ignored: str) -> Callable[[], list[str]]:
    """What returns the names of the ephemeral consumers that were created since, without repetition."""
    advisories = await peer.collect(f"$JS.EVENT.ADVISORY.CONSUMER.CREATED.{stream}.*")

    def names() -> list[str]:
        return sorted({message[0].decode().rpartition(".")[2] for message in advisories.messages} - {*ignored})

    return names


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_restart_creates_no_new_names(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(version)
    here = await Scene.make(await raw_peer(url), unique_name("names"))
    copies = await Copies.make(here.peer, unique_name("names"))
    rules = [here.rule(start="first"), copies.rule(name="copies")]
    names = [await created(here.peer, here.name, "nats-bridge_rule"), await created(here.peer, copies.name)]
    for published in (30, 60, 90):
        async with running(settings_for(url, *rules)):
            await here.load.burst(30)
            await here.bridged.count(published)
            for _ in range(30):
                await here.peer.store(f"{copies.name}.x".encode())
            await copies.holds(published)
    found = [name for each in names for name in each()]
    # A number, where one more is there at the same time; no random letters.
    stable = re.compile(rf"nats-bridge~(rule|copies)~(read|replay|last|count)~{PLACE}(~\d)?")
    assert all(map(stable.fullmatch, found)), found
    assert {f"nats-bridge~copies~read~{PLACE}", f"nats-bridge~rule~last~{PLACE}"} <= {*found}


@pytest.mark.parametrize("version", ["2.9.10", *VERSIONS])
async def test_a_name_that_is_in_use_is_left_alone(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """It can be that of a second process on the machine, or of the one before, which was killed."""
    url = await servers.url(version)
    peer, stream = await raw_peer(url), unique_name("taken")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for _ in range(5):
        await peer.store(f"{stream}.x".encode())
    name = f"nats-bridge~count~{PLACE}"
    config = standing_config((), {"deliver_policy": "all"}) | {"name": name}
    theirs = await peer.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
    options = settings_for(url, {"name": "rule", "stream": stream, "republish": {"src": "a", "dest": "b"}})
    connection = await open_connection(
        "default", connect_options(options.connections["default"]), client_name="nats-bridge"
    )
    names = await created(peer, stream)
    for _ in range(2):
        assert await Replay(connection.api, stream).after(2) == 3
    await connection.close()
    await until(lambda: len(names()) == 2)
    assert all(each.startswith(f"{name}~") for each in names())
    left: dict[str, Any] = await peer.api(f"CONSUMER.INFO.{stream}.{name}")
    assert (left["created"], left["config"]) == (theirs["created"], theirs["config"])
