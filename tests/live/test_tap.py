"""`nats-bridge tap`: messages of a rule before and after, next to its sidecar, of which it changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.bridge.jobs import tap as job
from nats_bridge.bridge.jobs.tap import Screen, Tapped, Wanted, tap
from nats_bridge.bridge.settings import Settings
from nats_bridge.native_servers import NativeServer
from nats_bridge.transforms.sourcing import Copied
from tests.live.commands import command_here
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

Servers = Callable[..., NativeServer]
PAGE = (Path(__file__).parents[2] / "docs" / "tap.md").read_text("utf-8")


class Watched:
    """A tap that runs in this process."""

    def __init__(self, settings: Settings, **wanted: Any) -> None:
        self.stop = asyncio.Event()
        self.seen: list[Tapped] = []
        self.skipped: list[tuple[str, int]] = []
        self._opened = asyncio.Event()
        screen = Screen(self._opened.set, self.seen.append, lambda *where: self.skipped.append(where))
        self.task = asyncio.create_task(tap(settings, Wanted(settings.rules[0], **wanted), self.stop, screen))

    async def opened(self) -> None:
        await until(lambda: self._opened.is_set() or self.task.done())
        if self.task.done():
            await self.task

    async def ended(self) -> list[Tapped]:
        async with asyncio.timeout(LIMIT):
            await self.task
        return self.seen


async def test_the_page_shows_what_is_printed(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    (config,), (shown,) = (re.findall(rf"```{name}\n(.*?)```", PAGE, re.DOTALL) for name in ("yaml", "console"))
    typed, _, printed = shown.partition("\n")
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="ORDERS", subjects=["orders.>"])
        eu, us = (f"NATS/1.0\r\nRegion: {region}\r\nKey: secret\r\n\r\n".encode() for region in ("eu", "us"))
        await peer.store(b"orders.eu.42", b"3 pears", eu)
        await peer.store(b"orders.test.1", b"3 pears", eu)
        await peer.store(b"orders.us.43", b"3 pears", us)
        await peer.store(b"orders.closed")
        (tmp_path / "bridge.yaml").write_text(config.replace("nats://127.0.0.1:4222", server.url), "utf-8")
        arguments = typed.removeprefix("$ nats-bridge ").split()
        ran = await command_here(*arguments, folder=tmp_path)
        time = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
        assert (ran.code, time.sub("…", ran.err + ran.out)) == (0, time.sub("…", printed))
        ran = await command_here(
            *arguments, "--json", "--payload", "3", "--headers", "--subject", "*.eu.>", "--limit", "1", folder=tmp_path
        )
        shown = ran.document
        (made,) = shown["made"]
        assert (shown["payload"], shown["headers"]) == ("3 p", [["Region", "eu"], ["Key", "secret"]])
        assert (made["subject"], made["added"]["Nats-Last-Sequence"], made["removed"]) == ("monitor.42.eu", None, [])


async def test_copies_of_two_streams_are_shown_as_they_are_stored(
    newest_version: str, servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    """Also of a work queue, which takes no second consumer."""
    url = await servers.url(newest_version)
    peer, name = await raw_peer(url), unique_name("tap")
    queue, plain, target = (f"{name}{each}" for each in "QPT")
    await peer.create_stream(name=queue, subjects=[f"{queue}.>"], retention="workqueue")
    await peer.create_stream(name=plain, subjects=[f"{plain}.>"])
    await peer.create_stream(name=target, subjects=[f"{target}.>"])
    worker = {"stream_name": queue, "config": {"durable_name": "worker", "ack_policy": "explicit"}}
    assert "error" not in await peer.api(f"CONSUMER.DURABLE.CREATE.{queue}.worker", worker)
    await peer.store(f"{plain}.before".encode())
    sources = [
        {"name": each, "subject_transforms": [{"src": f"{each}.*", "dest": f"{target}.$1"}]} for each in (queue, plain)
    ]
    watched = Watched(settings_for(url, {"name": "r", "kind": "sources", "stream": target, "sources": sources}), most=2)
    await watched.opened()
    await peer.store(f"{queue}.a".encode(), b"one")
    await peer.store(f"{plain}.b".encode(), b"two", b"NATS/1.0\r\nNats-Expected-Last-Sequence: 1\r\n\r\n")
    seen = {each.incoming.stream: each for each in await watched.ended()}
    assert {each.incoming.message.payload for each in seen.values()} == {b"one", b"two"}
    (copy,) = seen[plain].outcomes
    record = f"{plain} 2 {plain}.* {target}.$1 {plain}.b".encode()
    block = b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % record
    assert copy == Copied(f"{target}.b".encode(), block, b"two")
    listed = [(await peer.api(f"CONSUMER.LIST.{each}")).get("total") for each in (queue, plain)]
    assert (listed, watched.skipped) == ([1, 0], [])


async def test_publishers_get_their_answers_and_the_server_sends_no_more_than_the_rate(
    newest_version: str, servers: SharedServers, unique_name: Callable[[str], str], raw_peer: OpenPeer
) -> None:
    url = await servers.url(newest_version)
    peer, name = await raw_peer(url), unique_name("tap")
    await peer.create_stream(name=name, subjects=[f"{name}.in.>"])
    transform = {"src": f"{name}.from.*", "dest": f"{name}.in.$1"}
    settings = settings_for(
        url, {"name": "r", "kind": "subject_transform", "stream": name, "subject_transform": transform}
    )
    async with running(settings):
        watched = Watched(settings, rate=3)
        await watched.opened()
        assert json.loads(await peer.request_raw(f"{name}.from.x".encode(), b"one") or b"{}")["seq"] == 1
        for _ in range(10):
            peer.publish(f"{name}.from.y".encode())
        await peer.flushed()
        await until(lambda: len(watched.seen) >= 3)
        watched.stop.set()
        seen = await watched.ended()
    assert [each.incoming.message.subject.rpartition(b".")[2] for each in seen] == [b"x", b"y", b"y"]
    assert getattr(seen[0].outcomes[0], "subject", None) == f"{name}.in.x".encode()


async def test_the_printed_permissions_are_enough_and_sigterm_leaves_nothing(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    config = tmp_path / "bridge.yaml"

    def configure(url: str) -> None:
        config.write_text(
            f"connections: {{default: {{servers: ['{url}'], user: few, password_file: password}}}}\n"
            "rules:\n"
            "- {name: a, kind: republish, stream: S, republish: {src: '>', dest: 'seen.>'}}\n"
            "- {name: b, kind: advisories, republish: {src: $JS.EVENT.ADVISORY.API, dest: seen}}\n",
            "utf-8",
        )

    configure("nats://127.0.0.1:1")
    (tmp_path / "password").write_text("few", "utf-8")
    printed = await command_here("tap", "a", "-c", str(config), "--permissions")
    assert printed.code == 0, printed.err
    few = f"{{ user: few, password: few, permissions: {printed.out.partition('permissions:')[2]} }}"
    users = f"accounts {{ A {{ jetstream: enabled, users: [ {{ user: all, password: all }}, {few} ] }} }}\n"
    async with native_server(newest_version, config=users) as server:
        peer = await raw_peer(server.url.replace("//", "//all:all@"))
        await peer.create_stream(name="S", subjects=["S.>"])
        configure(server.url)
        options = ("tap", "a", "-c", str(config), "--json")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nats_bridge", *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(LIMIT):
            assert await process.stderr.readline() == b"tap of rule 'a' (republish); Ctrl-C ends it\n"
            await peer.store(b"S.x", b"secret", b"NATS/1.0\r\nKey: secret\r\n\r\n")
            line = await process.stdout.readline()
            process.terminate()
            out, err = await process.communicate()
        document = json.loads(line)
        assert (process.returncode, out, err, b"secret" in line) == (143, b"", b"", False)
        assert (document["subject"], document["size"]) == ("S.x", 6)
        assert [made["subject"] for made in document["made"]] == ["seen.S.x"]
        assert (await peer.api("CONSUMER.LIST.S"))["total"] == 0
        refused = await command_here("tap", "b", "-c", str(config))
        assert (refused.code, "allow the user to subscribe to $JS.EVENT.ADVISORY.API" in refused.err) == (2, True)


async def test_more_new_messages_than_the_rate_are_skipped_and_reported(
    newest_version: str,
    servers: SharedServers,
    unique_name: Callable[[str], str],
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "_BEHIND", 0)  # nanoseconds, so that the test need not wait
    url = await servers.url(newest_version)
    here = await Scene.make(await raw_peer(url), unique_name("tap"))
    watched = Watched(settings_for(url, here.rule()), rate=100)
    await watched.opened()
    while not watched.skipped:
        here.peer.publish(f"{here.name}.x".encode())
        here.peer.publish(f"{here.name}.x".encode())
        await here.peer.flushed()
    stream, position = watched.skipped[0]

    def shown() -> list[int]:
        return [each.incoming.message.sequence for each in watched.seen]

    while position not in shown():  # the next one, which may not be stored yet
        await here.end()
    watched.stop.set()
    await watched.ended()
    assert (stream, position - 1 in shown(), shown() == sorted(shown())) == (here.name, False, True)
