"""`nats-bridge init` on real servers: the rules do what a newer server does of the same configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # ships without types
import pytest

from nats_bridge.settings import load
from nats_conformance.native_servers import free_port
from tests.live.commands import Ran, command_here
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.security.credentials import JETSTREAM, Operator
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import SidecarProcess
from tests.live.stored_messages import stored_messages
from tests.live.until import until

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"]}
WANTED: dict[str, dict[str, Any]] = {
    "ORDERS_EU": {
        "name": "ORDERS_EU",
        "sources": [{"name": "ORDERS", "subject_transforms": [{"src": "orders.eu.*", "dest": "eu.{{wildcard(1)}}"}]}],
    },
    "COPY": {
        "name": "COPY",
        "mirror": {"name": "ORDERS", "subject_transforms": [{"src": "orders.*.*", "dest": "copy.$2.$1"}]},
    },
    "EVENTS": {
        "name": "EVENTS",
        "subjects": ["events.*"],
        "subject_transform": {"src": "events.*", "dest": "events.{{partition(4,1)}}.{{wildcard(1)}}"},
    },
}
"""A configuration written for 2.10."""
NEEDED = {
    "ORDERS_EU": ("take eu.*, and to have no native source ORDERS", ["eu.*"]),
    "COPY": ("take copy.*.*, and to be no native mirror", ["copy.*.*"]),
    "EVENTS": ("take events.*.* instead of events.*", ["events.*.*"]),
}
"""What its rules need of each stream, as it is printed, and the subjects that the stream gets."""
FILES = [word for name in WANTED for word in ("--from", f"{name}.json")]


async def init(folder: Path, *arguments: str, stdin: str = "") -> Ran:
    """Run it in a folder, in this process."""
    return await command_here("init", *arguments, folder=folder, stdin=stdin)


async def applied(peer: RawPeer, folder: Path) -> None:
    """The application's streams, with these configurations, and messages from before."""
    await peer.create_stream(**ORDERS)
    for number in range(30):
        await peer.store(b"orders.%s.%d" % ((b"eu", b"us")[number % 2], number), b"%d" % number)
    for name, config in WANTED.items():
        await peer.create_stream(**config)
        (folder / f"{name}.json").write_text(json.dumps(config), "utf-8")


async def count(peer: RawPeer, stream: str) -> int:
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"])


async def holds(peer: RawPeer, stream: str, messages: int) -> list[tuple[bytes, bytes]]:
    """Subjects and payloads of a stream, once it has so many messages, and not more."""
    found = await stored_messages(peer, stream, messages)
    assert await count(peer, stream) == messages
    return [(message.subject, message.payload) for message in found]


async def test_what_2_9_ignores_of_a_2_10_configuration_is_done_as_2_15_does_it(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGE_HTTP__LISTEN", "")
    async with native_server("2.9.10") as old_server, native_server("2.15.3") as new_server:
        old, new = await raw_peer(old_server.url), await raw_peer(new_server.url)
        await applied(old, tmp_path)
        await applied(new, tmp_path)
        native = await init(tmp_path, "--server", new_server.url, *FILES)
        assert (native.code, native.out, native.err.count("server 2.15.3 does it")) == (0, "", 3)
        assert "no rule needed" in native.err

        ran = await init(tmp_path, "--server", old_server.url, *FILES)
        assert (ran.code, ran.err.count("2.9.10 silently ignores")) == (0, 3), ran
        config = tmp_path / "bridge.yaml"
        config.write_text(ran.out, "utf-8")
        refused = await command_here("check", "-c", str(config), "--server", "config")
        assert (refused.code, refused.err.count("no  rule")) == (1, 3), refused
        comments = " ".join(line.strip(" #") for line in ran.out.splitlines() if line.startswith("  #"))
        for name, (said, subjects) in NEEDED.items():
            assert f"It needs stream {name} to {said}" in comments
            await old.api(f"STREAM.DELETE.{name}")
            await old.create_stream(name=name, subjects=subjects)
        sidecar = await SidecarProcess.start(config)
        try:
            await sidecar.ready()
            for peer in (old, new):
                for number in range(30, 60):
                    await peer.store(b"orders.%s.%d" % ((b"eu", b"us")[number % 2], number), b"%d" % number)
                    await peer.store(b"events.%d" % number, b"%d" % number)
            for stream, messages in (("ORDERS_EU", 30), ("COPY", 60), ("EVENTS", 30)):
                assert await holds(old, stream, messages) == await holds(new, stream, messages)
        finally:
            assert await sidecar.stop() == 0


async def test_a_stream_of_a_newer_server_gives_the_rules_next_to_an_older_one(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server("2.15.3") as server:
        await applied(await raw_peer(server.url), tmp_path)
        streams = [word for name in WANTED for word in ("--from", name)]
        of_streams = await init(tmp_path, "--server", server.url, *streams, "--dialect", "2.9.10")
        missing = await init(tmp_path, "--server", server.url, "--from", "COPPY")
    assert (missing.code, "no such stream; did you mean 'COPY'" in missing.err) == (2, True), missing
    # With files, no server is asked.
    of_files = await init(tmp_path, "--server", server.url, *FILES, "--dialect", "2.9.10")
    assert (of_streams.code, of_files.code) == (0, 0)
    rules, others = ((ran.out.partition("connections:")[2]) for ran in (of_streams, of_files))
    assert rules == others
    assert rules.count("- name:") == 3


async def test_a_republish_that_2_9_refuses_for_a_stream_that_is_there(
    servers: SharedServers, raw_peer: OpenPeer, unique_name: Name, twin_version: str, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    peer, name = await raw_peer(url), unique_name("MONITORED")
    await peer.create_stream(name=name, subjects=[f"{name}.>"])
    config = (await peer.api(f"STREAM.INFO.{name}"))["config"]
    wanted = {"config": {**config, "republish": {"src": f"{name}.>", "dest": f"mon.{name}.>"}}}
    answer = await peer.api(f"STREAM.UPDATE.{name}", {"name": name, **wanted["config"]})
    await peer.api(f"STREAM.UPDATE.{name}", config)  # where it was taken: back again
    ran = await init(tmp_path, "--server", url, "--from", "-", stdin=json.dumps(wanted))
    assert ("error" in answer) == (twin_version == "2.9.10")
    assert ran.code == 0, ran
    assert bool(ran.out) == (twin_version == "2.9.10")
    assert ("can not change RePublish (10052)" in ran.err) == (twin_version == "2.9.10")
    if ran.out:
        (tmp_path / "bridge.yaml").write_text(ran.out, "utf-8")
        checked = await command_here("check", "-c", "bridge.yaml", "--server", "config", folder=tmp_path)
        assert checked.code == 0, checked


READING = {"STREAM.LIST", "STREAM.NAMES", "STREAM.INFO"}


async def test_nothing_on_the_server_is_changed(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with native_server(twin_version) as server:
        peer, watch = await raw_peer(server.url), await raw_peer(server.url)
        await applied(peer, tmp_path)
        await until(lambda: _all_copied_or_native(peer))
        before = await _everything(peer)
        asked = await watch.collect("$JS.API.>")
        ran = await init(tmp_path, "--server", server.url, *FILES, "--from", "ORDERS")
        assert ran.code == 0, ran
        await watch.flushed()
        verbs = {".".join(message[0].decode().split(".")[2:4]) for message in asked.messages}
        assert {"STREAM.LIST"} <= verbs <= READING
        assert await _everything(peer) == before


async def _all_copied_or_native(peer: RawPeer) -> bool:
    return [await count(peer, stream) for stream in ("ORDERS_EU", "COPY")] in ([30, 30], [15, 30])


async def _everything(peer: RawPeer) -> list[Any]:
    """Configurations, messages and consumers; without counts that every client changes."""
    found = []
    for info in (await peer.api("STREAM.LIST"))["streams"]:
        consumers = (await peer.api(f"CONSUMER.LIST.{info['config']['name']}")).get("consumers") or []
        found.append([info["config"], info["state"], sorted(consumer["name"] for consumer in consumers)])
    return sorted(found, key=lambda each: str(each[0]["name"]))


async def test_credentials_are_named_and_not_copied(
    native_server: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator()
    (tmp_path / "me.creds").write_text(operator.creds(6), "utf-8")
    (tmp_path / "EU.json").write_text(json.dumps(WANTED["ORDERS_EU"]), "utf-8")
    async with native_server("2.9.10", config=f"{JETSTREAM}\n{operator.config(7)}") as server:
        where = ["--server", server.url, "--from", "EU.json"]
        refused = await init(tmp_path, *where)
        assert (refused.code, "refuses the credentials" in refused.err) == (2, True)
        monkeypatch.setenv("NATS_CREDS", str(tmp_path / "me.creds"))
        ran = await init(tmp_path, *where)
        assert ran.code == 0, ran
    (tmp_path / "bridge.yaml").write_text(ran.out, "utf-8")
    assert load(tmp_path / "bridge.yaml", {}).connections["default"].creds == tmp_path / "me.creds"
    seed = next(line for line in operator.creds(6).splitlines() if line.startswith("SU"))
    assert seed not in ran.out + ran.err
    assert nkeys.from_seed(bytearray(seed.encode()))  # it is one


async def test_a_context_stands_for_all_of_it(
    servers: SharedServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nats/context").mkdir(parents=True)
    context = {"url": await servers.url("2.9.10")}
    (tmp_path / "nats/context/here.json").write_text(json.dumps(context), "utf-8")
    ran = await init(tmp_path, "--server", "here", "--from", "-", stdin=json.dumps(WANTED["EVENTS"]))
    assert (ran.code, "  default: {context: here}\n" in ran.out) == (0, True), ran


async def test_what_cannot_be_read(tmp_path: Path) -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    ran = await init(tmp_path, "--server", url, "--from", "X")
    assert (ran.code, ran.out, "no server answers" in ran.err) == (3, "", True)
    for name, said in (("no.json", "no.json: cannot be read"), ("./list", "./list: not a stream configuration")):
        (tmp_path / "list").write_text("[]", "utf-8")
        ran = await init(tmp_path, "--from", name, "--dialect", "2.9")
        assert (ran.code, said in ran.err, ran.err.count(name)) == (2, True, 1), ran
