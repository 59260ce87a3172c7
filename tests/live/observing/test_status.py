"""`GET /status` of real sidecars: what it says, and that it says everything that its readers were tested with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.cli import main
from nats_bridge.client.connection import open_connection
from tests import status_documents as samples
from tests.live.copies import Copies
from tests.live.observing.test_health import FREE, get, status_of
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load, Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import until


def shape(value: Any) -> Any:
    """The names in a document, without what they say."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name not in ("counters", "sources")}
    return None


async def test_it_says_what_the_page_was_tested_with(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("status"))
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        await here.load.burst(50)
        await here.bridged.count(50)
        await until(lambda: not bridge.runs[0].has_work)
        real = await status_of(bridge)
    sample = samples.document(samples.rule("rule"))
    assert shape(real) == shape(sample)
    assert shape(real["rules"][0]) | {"measures": None} == shape(sample["rules"][0]) | {"measures": None}
    assert set(real["rules"][0]["measures"]) == set(sample["rules"][0]["measures"])
    assert set(real["rules"][0]["measures"]["history"]) == set(sample["rules"][0]["measures"]["history"])
    assert shape(real["connections"][0]) == shape(sample["connections"][0])
    (rule,) = real["rules"]
    assert (real["ready"], real["draining"], real["why_not_ready"]) == (True, False, [])
    assert (rule["name"], rule["kind"], rule["condition"], rule["leader"]) == ("rule", "republish", "ready", None)
    assert rule["position"] == 50
    assert (rule["measures"]["messages_in"], rule["measures"]["messages_out"]) == (50, 50)
    (connection,) = real["connections"]
    assert connection["connected"]
    assert connection["server_version"] == "2.15.3"
    assert connection["servers"] == [url]


async def test_history_can_be_left_out(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("short"))
    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        reported = json.loads((await get(bridge, "/status?history=no"))[1])
    assert "history" not in reported["rules"][0]["measures"]


async def test_connections_remember_what_went_wrong_and_print_no_secret(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    word = tmp_path / "password"
    word.write_text("s3cret-word", "utf-8")
    config = 'accounts { A { jetstream: enabled, users: [{user: "bridge", password: "s3cret-word"}] } }\n'
    async with native_server("2.15.3", config=config) as server:
        peer = await raw_peer(server.url.replace("nats://", "nats://bridge:s3cret-word@"))
        here = await Scene.make(peer, "S")
        connection = {"servers": [server.url], "user": "bridge", "password_file": str(word)}
        async with running(settings_for("", here.rule(), connections={"default": connection}, **FREE)) as bridge:
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await until(lambda: bridge.connections["default"].reconnects == 1)
            await until(lambda: bridge.runs[0].ready)
            text = (await get(bridge, "/status"))[1]
    (reported,) = json.loads(text)["connections"]
    assert "s3cret-word" not in text
    assert (reported["servers"], reported["reconnects"]) == ([server.url], 1)
    assert reported["last_error"]
    assert reported["last_error_at"].endswith("Z")


async def test_an_address_with_a_password_is_shown_without_it(servers: SharedServers) -> None:
    """Contexts of the command line may hold such addresses."""
    url = await servers.url("2.15.3")
    connection = await open_connection(
        "default", {"servers": [url.replace("://", "://me:s3cret-word@")]}, client_name="test"
    )
    assert connection.servers == (url,)
    await connection.close()


async def test_each_kind_says_what_it_waits_for(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    peer = await raw_peer(url)
    one, two, three = unique_name("one"), unique_name("two"), unique_name("three")
    copies = await Copies.make(peer, one)
    await peer.create_stream(name=three, subjects=[f"in{three}.>"])
    rules = [
        copies.rule(),
        {"name": "missing", "stream": two, "republish": {"src": f"{two}.>", "dest": f"out{two}.>"}},
        {
            "name": "ingress",
            "kind": "subject_transform",
            "stream": three,
            "subject_transform": {"src": f"{three}.*", "dest": f"in{three}.{{{{wildcard(1)}}}}"},
        },
    ]
    async with running(settings_for(url, *rules, **FREE)) as bridge:
        reported = {rule["name"]: rule["waiting_for"] for rule in (await status_of(bridge))["rules"]}
        assert (reported["rule"], reported["ingress"]) == (None, None)
        assert str(reported["missing"]).startswith(f"stream '{two}' does not exist on connection 'default'")
        await peer.api(f"STREAM.DELETE.{copies.target}")
        await peer.api(f"STREAM.DELETE.{three}")
        # Only what is sent shows a copying rule that its target is gone.
        await Load(peer, one).burst(1)

        state: dict[str, Any] = {}

        async def both() -> bool:
            state.update(await status_of(bridge))
            reported = {rule["name"]: str(rule["waiting_for"]) for rule in state["rules"]}
            return "its streams to exist and answer" in reported["rule"] and "its stream: " in reported["ingress"]

        await until(both)
        assert not state["ready"]
        assert len(state["why_not_ready"]) == 3
        assert {rule["condition"] for rule in state["rules"]} == {"waiting"}


async def test_the_command_shows_it(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, capsys: pytest.CaptureFixture[str]
) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("command"))

    def call() -> int:
        assert bridge.http is not None
        with pytest.raises(SystemExit) as ended:
            main(["status", "--url", f"127.0.0.1:{bridge.http[1]}"])
        return int(str(ended.value.code))

    async with running(settings_for(url, here.rule(), **FREE)) as bridge:
        assert await asyncio.to_thread(call) == 0
        out = capsys.readouterr().out
        assert "nats-bridge is ready (nats-bridge " in out
        address = url.partition("://")[2]
        assert f"connection default: nats-server 2.15.3 {servers['2.15.3'].name} at {address}\n" in out
        bridge.draining = True
        assert await asyncio.to_thread(call) == 1
        assert "nats-bridge is draining (" in capsys.readouterr().out
