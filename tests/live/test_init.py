"""`nats-bridge init` on real servers: what it sees, writes and refuses; and that what it writes does what was meant."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # ships without types
import pytest
from jsonschema import Draft202012Validator

from nats_bridge.bridge.settings import load
from nats_bridge.bridge.settings.schema import configuration_schema
from nats_bridge.marked_yaml import compose
from nats_bridge.native_servers import NativeServer, free_port
from tests.live.commands import Ran, command_here
from tests.live.credentials import JETSTREAM, Operator
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecar_process import SidecarProcess
from tests.live.sidecars import running
from tests.live.stored_messages import stored_messages
from tests.live.until import until

Servers = Callable[..., NativeServer]

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


async def done_as_printed(peer: RawPeer, said: str, *, again: bool = False) -> None:
    """Do what the lines ask the user to do; with `again`, as they say for copying all again."""
    for line in said.partition("before it can run")[2].splitlines():
        match shlex.split(line.strip()) if line.startswith("  nats ") else []:
            case ["nats", "request", subject, body]:
                api = subject.removeprefix("$JS.API.")
                if again and ".UPDATE." in api:
                    assert (await peer.api(api.replace("UPDATE", "DELETE")))["success"]
                    api = api.replace("UPDATE", "CREATE")
                answer = await peer.api(api, json.loads(body))
                assert "error" not in answer, answer
            case ["nats", "stream", "rm", stream]:
                assert (await peer.api(f"STREAM.DELETE.{stream}"))["success"]


async def test_what_2_9_ignored_of_a_2_10_configuration_is_done_as_2_15_does_it(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGE_HTTP__LISTEN", "")
    old_folder, new_folder = tmp_path / "old", tmp_path / "new"
    for folder in (old_folder, new_folder):
        folder.mkdir()
    async with native_server("2.9.10") as old_server, native_server("2.15.3") as new_server:
        old, new = await raw_peer(old_server.url), await raw_peer(new_server.url)
        await applied(old, old_folder)
        await applied(new, new_folder)
        await until(lambda: _all_copied(old))

        files = [word for name in WANTED for word in ("--from", f"{name}.json")]
        native = await init(new_folder, "--server", new_server.url, *files)
        assert (native.code, native.err) == (0, "")
        assert native.out.count("server 2.15.3 does it") == 3
        assert "nothing for a rule to do" in native.out
        assert not (new_folder / "bridge.yaml").exists()

        ran = await init(old_folder, "--server", old_server.url, *files)
        assert ran.code == 1, "it cannot run yet"
        assert ran.out.count("2.9.10 silently ignores") == 3
        assert "wrote bridge.yaml\n" in ran.out
        assert len(load(old_folder / "bridge.yaml", {}).rules) == 3
        value = compose((old_folder / "bridge.yaml").read_text("utf-8")).value
        assert [error.message for error in Draft202012Validator(configuration_schema()).iter_errors(value)] == []

        await done_as_printed(old, ran.out, again=True)
        again = await init(old_folder, "--server", old_server.url, *files, "-o", "again.yaml")
        assert again.code == 0, again
        assert "before it can run" not in again.out
        sidecar = await SidecarProcess.start(old_folder / "bridge.yaml")
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


async def _all_copied(peer: RawPeer) -> bool:
    return [await count(peer, stream) for stream in ("ORDERS_EU", "COPY")] == [30, 30]


async def test_a_stream_that_is_only_updated_keeps_what_the_server_copied_and_resumes_after_it(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server("2.9.10") as server:
        peer = await raw_peer(server.url)
        await applied(peer, tmp_path)
        await until(lambda: _all_copied(peer))
        ran = await init(tmp_path, "--server", server.url, "--from", "ORDERS_EU.json")
        assert "its 30 messages were copied otherwise than was meant" in ran.out
        assert "the rule resumes after them; to have all copied again" in ran.out
        await done_as_printed(peer, ran.out)
        async with running(load(tmp_path / "bridge.yaml", {"BRIDGE_HTTP__LISTEN": ""})):
            await peer.store(b"orders.eu.99", b"later")
            found = await holds(peer, "ORDERS_EU", 31)
        assert [subject for subject, _ in found[:2]] == [b"orders.eu.0", b"orders.us.1"]
        assert found[-1] == (b"eu.99", b"later")


async def test_a_republish_that_2_9_refuses_for_a_stream_that_is_there(
    servers: SharedServers, raw_peer: OpenPeer, unique_name: Callable[[str], str], twin_version: str, tmp_path: Path
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
    assert (tmp_path / "bridge.yaml").exists() == (twin_version == "2.9.10")
    if twin_version == "2.9.10":
        assert "can not change RePublish (10052)" in ran.out
        assert "next: nats-bridge run -c bridge.yaml" in ran.out
    else:
        assert f"can  republish {name}.> to mon.{name}.>" in ran.out


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_a_rule_that_would_loop_once_its_stream_is_changed(
    native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    async with native_server("2.9.10") as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(**ORDERS)
        back = {"src": ">", "dest": "orders.back.>"}
        source = {"name": "ORDERS", "subject_transforms": [{"src": "orders.>", "dest": "t.>"}]}
        wanted = {"name": "T", "subjects": ["other"], "sources": [source], "republish": back}
        # What 2.9 makes of it is a loop as well, which ends the copying: it is not begun here.
        await peer.create_stream(**{**wanted, "sources": []})
        ran = await init(tmp_path, "--server", server.url, "--from", "-", stdin=json.dumps(wanted))
        assert ran.code == 1, ran
        assert "loop: stream ORDERS → rule 't-sources' copies orders.> to t.> → stream T → native republish" in ran.err
        assert "nothing was written" in ran.err
        assert files_in(tmp_path) == []


READING = {"STREAM.LIST", "STREAM.NAMES", "STREAM.INFO", "CONSUMER.LIST", "CONSUMER.INFO"}


async def test_nothing_on_the_cluster_is_changed(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with native_server(twin_version) as server:
        peer, watch = await raw_peer(server.url), await raw_peer(server.url)
        await applied(peer, tmp_path)
        await peer.create_stream(name="JOBS", subjects=["jobs.>"], retention="workqueue")
        durable = {"durable_name": "workers", "ack_policy": "explicit", "max_deliver": 3}
        await peer.api("CONSUMER.DURABLE.CREATE.JOBS.workers", {"stream_name": "JOBS", "config": durable})
        await until(lambda: _all_copied_or_native(peer))
        before = await _everything(peer)
        asked = await watch.collect("$JS.API.>")
        rules = ["--republish", "ORDERS", "orders.>", "mon.>", "--dead-letters", "*", "dlq.$1.$2"]
        files = [word for name in WANTED for word in ("--from", f"{name}.json")]
        ran = await init(tmp_path, "--server", server.url, *files, *rules)
        assert len(load(tmp_path / "bridge.yaml", {}).rules) >= 2, ran
        await watch.flushed()
        verbs = {".".join(message[0].decode().split(".")[2:4]) for message in asked.messages}
        assert verbs <= READING
        assert {"STREAM.LIST", "STREAM.INFO"} <= verbs, "the requests can be seen"
        assert await _everything(peer) == before


async def _all_copied_or_native(peer: RawPeer) -> bool:
    return [await count(peer, stream) for stream in ("ORDERS_EU", "COPY")] in ([30, 30], [15, 30])


async def _everything(peer: RawPeer) -> list[Any]:
    """Configurations, messages and consumers; without counts that every client changes."""
    found = []
    for info in (await peer.api("STREAM.LIST"))["streams"]:
        name = info["config"]["name"]
        consumers = (await peer.api(f"CONSUMER.LIST.{name}")).get("consumers") or []
        found.append([info["config"], info["state"], sorted(consumer["name"] for consumer in consumers)])
    return sorted(found, key=lambda each: str(each[0]["name"]))


async def test_without_anything_asked_for_it_only_looks(
    servers: SharedServers, raw_peer: OpenPeer, unique_name: Callable[[str], str], twin_version: str, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    name = unique_name("SEEN")
    await (await raw_peer(url)).create_stream(name=name, subjects=[f"{name}.>"])
    ran = await init(tmp_path, "--server", url)
    assert (ran.code, ran.out.startswith(f"nats-server {twin_version} at {url}")) == (2, True)
    assert f"  {name} " in ran.out
    assert "nothing is asked for: say --from, or what a rule should do" in ran.err
    assert files_in(tmp_path) == []


async def test_rules_by_options(
    native_server: Servers, raw_peer: OpenPeer, newest_version: str, tmp_path: Path
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(**ORDERS)
        await peer.create_stream(name="KV_SETTINGS", subjects=["$KV.SETTINGS.>"], max_msgs_per_subject=1)
        words = ["--republish", "ORDERS", "orders.>", "watch.>"]
        words += ["--republish", "KV_SETTINGS", "$KV.SETTINGS.>", "changed.SETTINGS.>"]
        words += ["--dead-letters", "*", "dlq.{{wildcard(1)}}.{{wildcard(2)}}"]
        ran = await init(tmp_path, "--server", server.url, *words)
        assert ran.code == 0, ran
        printed = await init(tmp_path, "--server", server.url, *words, "-o", "-")
        assert printed.code == 0, printed
        assert printed.err.count("ok ") == 3
    assert (tmp_path / "bridge.yaml").read_text("utf-8") == printed.out
    settings = load(tmp_path / "bridge.yaml", {})
    assert [rule.kind for rule in settings.rules] == ["republish", "republish", "advisories"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--republish", "ORDERS", "orders.>", "orders.again.>"], "loop: stream ORDERS"),
        (["--republish", "ORDERS", "orders.*", "m.$2"], "republish.dest: from 'orders.*' to 'm.$2'"),
        (["--republish", "JOBS", "jobs.>", "mon.>"], "watching would remove its messages"),
        (["--dead-letters", "*", "$JS.x"], "belongs to servers"),
    ],
)
async def test_what_cannot_run_is_not_written(
    servers: SharedServers, raw_peer: OpenPeer, native_server: Servers, tmp_path: Path, words: list[str], said: str
) -> None:
    async with native_server("2.10.27") as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(**ORDERS)
        await peer.create_stream(name="EVENTS", subjects=["e.>"])
        await peer.create_stream(name="JOBS", subjects=["jobs.>"], retention="workqueue")
        ran = await init(tmp_path, "--server", server.url, *words)
        assert ran.code == 1, ran
        assert said in ran.err
        assert "nothing was written" in ran.err
        assert files_in(tmp_path) == []


async def test_a_credentials_file_is_found_from_the_configuration(native_server: Servers, tmp_path: Path) -> None:
    operator = Operator()
    (tmp_path / "conf").mkdir()
    (tmp_path / "me.creds").write_text(operator.creds(6), "utf-8")
    async with native_server("2.10.27", config=f"{JETSTREAM}\n{operator.config(7)}") as server:
        where = ["--server", server.url, "-o", "conf/bridge.yaml", "--dead-letters", "*", "dlq.$1.$2"]
        refused = await init(tmp_path, *where)
        assert (refused.code, "refuses the credentials" in refused.err) == (2, True)
        missing = await init(tmp_path, *where, "--creds", "no.creds")
        assert (missing.code, "no such file" in missing.err) == (2, True)
        ran = await init(tmp_path, *where, "--creds", "me.creds")
        assert ran.code == 0, ran
    text = (tmp_path / "conf/bridge.yaml").read_text("utf-8")
    assert load(tmp_path / "conf/bridge.yaml", {}).connections["default"].creds == tmp_path / "me.creds"
    seed = next(line for line in operator.creds(6).splitlines() if line.startswith("SU"))
    assert seed not in text + ran.out + ran.err
    assert nkeys.from_seed(bytearray(seed.encode()))  # it is one


async def test_a_context_stands_for_all_of_it(
    servers: SharedServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "nats/context").mkdir(parents=True)
    url = await servers.url("2.10.27")
    (tmp_path / "nats/context/here.json").write_text(json.dumps({"url": url}), "utf-8")
    ran = await init(tmp_path, "--context", "here", "--dead-letters", "*", "dlq.$1.$2")
    assert ran.code == 0, ran
    assert "    context: here\n" in (tmp_path / "bridge.yaml").read_text("utf-8")


async def test_no_listener(tmp_path: Path) -> None:
    ran = await init(tmp_path, "--server", f"nats://127.0.0.1:{free_port()}", "--dead-letters", "*", "dlq.$1.$2")
    assert (ran.code, ran.out) == (3, "")
    assert "no server answers" in ran.err
    assert files_in(tmp_path) == []


async def test_a_file_that_is_there_stays(servers: SharedServers, tmp_path: Path) -> None:
    words = ["--server", await servers.url("2.10.27"), "--dead-letters", "*", "dlq.$1.$2"]
    (tmp_path / "bridge.yaml").write_text("mine", "utf-8")
    refused = await init(tmp_path, *words)
    assert (refused.code, "--force overwrites it" in refused.err) == (2, True)
    assert (tmp_path / "bridge.yaml").read_text("utf-8") == "mine"
    assert (await init(tmp_path, *words, "--force")).code == 0
    assert load(tmp_path / "bridge.yaml", {}).rules
    assert files_in(tmp_path) == ["bridge.yaml"]
