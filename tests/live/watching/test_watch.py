"""Native mirrors and sources that stall, each in one of the ways there are: found, and named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from nats_conformance.native_servers import NativeServer
from nats_conformance.native_servers.native_server import HOST, LEAF_LISTENER
from tests.live.commands import command_here
from tests.live.creation_times import CHANGE_IT, change_creation_time
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.until import until


async def watched(url: str, *, stalled_after: float = 3, expected: int = 0) -> dict[str, dict[str, Any]]:
    """What the command says of each target."""
    ran = await command_here("watch", "--server", url, "--stalled-after", str(stalled_after), "--json")
    assert ran.code == expected, ran.out + ran.err
    return {link["target"]: link for link in json.loads(ran.out)["links"]}


async def stalls(url: str) -> dict[str, dict[str, Any]]:
    """What the command says of each target that stalls: without progress for a second, as it makes none at all."""
    found = await watched(url, stalled_after=1, expected=1)
    return {target: link for target, link in found.items() if link["reason"] is not None}


async def stalled(url: str, *targets: str) -> list[str]:
    """The codes of stalls, one for each of these targets."""
    found = await stalls(url)
    return [str(found[target]["reason"]["code"]) for target in targets]


async def holds(peer: RawPeer, stream: str, messages: int) -> bool:
    return bool((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"] >= messages)


async def publish(peer: RawPeer, stream: str, count: int, payload: bytes = b"x", block: bytes = b"") -> None:
    for _ in range(count):
        answer = await peer.store(f"{stream}.a".encode(), payload, block)
        assert "error" not in answer, answer


class Scene:
    """A server of its own with a source of ten messages, a mirror `M` and a stream `T` with sources that have them."""

    def __init__(self, peer: RawPeer) -> None:
        self.peer = peer

    @classmethod
    async def make(cls, peer: RawPeer, source: dict[str, Any] | None = None, **target: Any) -> Scene:
        here = cls(peer)
        await peer.create_stream(**{"name": "S", "subjects": ["S.>"], "storage": "memory", **(source or {})})
        await publish(peer, "S", 10)
        await peer.create_stream(**{"name": "M", "storage": "memory", "mirror": {"name": "S"}, **target})
        await peer.create_stream(**{"name": "T", "storage": "memory", "sources": [{"name": "S"}], **target})
        for name in ("M", "T"):
            await until(lambda name=name: holds(peer, name, 10))  # type: ignore[misc]
        return here

    async def change(self, stream: str, **config: Any) -> None:
        before = (await self.peer.api(f"STREAM.INFO.{stream}"))["config"]
        answer = await self.peer.api(f"STREAM.UPDATE.{stream}", before | config)
        assert "error" not in answer, answer


async def test_all_is_well(twin_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(twin_version) as server:
        here = await Scene.make(await raw_peer(server.url))
        for found in (await watched(server.url)).values():
            assert (found["missing"], found["position"], found["source_last"], found["reason"]) == (0, 10, 10, None)
        # A removal in the source, and messages of others in the target, are nothing that is missing.
        await here.peer.api("STREAM.MSG.DELETE.S", {"seq": 10})
        assert [found["missing"] for found in (await watched(server.url)).values()] == [0, 0]


async def test_no_alarm_under_load(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(newest_version) as server:
        here = await Scene.make(await raw_peer(server.url))
        over = asyncio.Event()

        async def load() -> None:
            while not over.is_set():
                await publish(here.peer, "S", 20)
                await asyncio.sleep(0.01)  # others need the processor, too

        loading = asyncio.create_task(load())
        try:
            for _ in range(2):
                await watched(server.url)
        finally:
            over.set()
            await loading


async def all_is_well(url: str) -> None:
    ran = await command_here("watch", "--server", url, "--stalled-after", "3")
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert [line for line in ran.out.splitlines() if not line.startswith("ok ")] == []


async def test_links_that_wait_for_what_will_come(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(twin_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        await publish(peer, "S", 10)
        starts: list[dict[str, Any]] = [{"opt_start_seq": 100}, {"opt_start_time": "2999-01-01T00:00:00Z"}]
        for number, start in enumerate([*starts, {"filter_subject": "S.none"}]):
            await peer.create_stream(name=f"M{number}", mirror={"name": "S", **start})
            await peer.create_stream(name=f"T{number}", sources=[{"name": "S", **start}])
        await all_is_well(server.url)
        await publish(peer, "S", 100)
        await until(lambda: holds(peer, "M0", 11))
        await until(lambda: holds(peer, "T0", 11))
        await all_is_well(server.url)


async def test_a_target_that_has_removed_its_copies(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """The newest copies of a quiet source are removed for those of others, or were processed."""
    async with native_server(twin_version) as server:
        peer = await raw_peer(server.url)
        for name in ("QUIET", "BUSY"):
            await peer.create_stream(name=name, subjects=[f"{name}.>"])
        await peer.create_stream(name="NEWEST", max_msgs=10, sources=[{"name": "QUIET"}, {"name": "BUSY"}])
        await peer.create_stream(name="QUEUE", retention="workqueue", sources=[{"name": "QUIET"}])
        await publish(peer, "QUIET", 3)
        await until(lambda: holds(peer, "NEWEST", 3))
        await until(lambda: holds(peer, "QUEUE", 3))
        await publish(peer, "BUSY", 20)
        await until(lambda: ends_at(peer, "NEWEST", 23))
        for sequence in (3, 1):  # as a consumer that acknowledges the newest first
            await peer.api("STREAM.MSG.DELETE.QUEUE", {"seq": sequence})
        await all_is_well(server.url)
        await peer.api("STREAM.PURGE.QUEUE")
        await all_is_well(server.url)


async def test_a_target_that_has_removed_its_copies_and_stalls(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        await peer.create_stream(name="T", max_msg_size=1000, sources=[{"name": "S"}])
        await publish(peer, "S", 3)
        await until(lambda: holds(peer, "T", 3))
        await peer.api("STREAM.PURGE.T")
        await publish(peer, "S", 1, b"x" * 2000)
        assert await stalled(server.url, "T") == ["message_too_large"]


async def ends_at(peer: RawPeer, stream: str, last: int) -> bool:
    return bool((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"] == last)


async def test_a_work_queue_with_other_subjects(twin_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(twin_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"], retention="workqueue")
        await peer.create_stream(name="T", sources=[{"name": "S", "filter_subject": "S.a"}])
        await publish(peer, "S", 3)
        await until(lambda: holds(peer, "T", 3))
        await peer.store(b"S.b", b"x")
        await all_is_well(server.url)


async def test_a_mirror_of_a_mirror_that_is_younger_than_its_messages(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(twin_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        await publish(peer, "S", 3)
        for name, source in (("M", "S"), ("T", "M")):
            await peer.create_stream(name=name, mirror={"name": source})
            await until(lambda name=name: holds(peer, name, 3))  # type: ignore[misc]
        await all_is_well(server.url)
        await peer.api("STREAM.DELETE.M")
        await peer.create_stream(name="M", subjects=["M.>"])
        assert await stalled(server.url, "T") == ["source_recreated"]


async def test_an_import_of_no_more_than_servers_need(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    create = "$JS.API.CONSUMER.CREATE.S.>"
    exports = (f'{{service: "{create}"}}', '{service: "$JS.API.CONSUMER.CREATE.S"}', DELIVER_EXPORT, FC_EXPORT)
    imports = (
        f'{{service: {{account: A, subject: "{create}"}}, to: "JS.A.API.CONSUMER.CREATE.S.>"}}',
        '{service: {account: A, subject: "$JS.API.CONSUMER.CREATE.S"}, to: "JS.A.API.CONSUMER.CREATE.S"}',
        *IMPORTS[1:],
    )
    async with native_server(newest_version, config=accounts(*exports, imports=", ".join(imports))) as server:
        at_source = await raw_peer(server.url.replace("//", "//a:a@"))
        await at_source.create_stream(name="S", subjects=["S.>"])
        await publish(at_source, "S", 10)
        peer = await raw_peer(server.url)
        await peer.create_stream(name="T", **EXTERNAL, max_msg_size=1000)
        await until(lambda: holds(peer, "T", 10))
        await all_is_well(server.url)
        await publish(at_source, "S", 1, b"x" * 2000)
        found = (await stalls(server.url))["T"]
        assert (found["missing"], found["reason"]["code"]) == (1, "deliveries_lost")


async def test_a_source_that_was_deleted(twin_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(twin_version) as server:
        here = await Scene.make(await raw_peer(server.url))
        await here.peer.api("STREAM.DELETE.S")
        assert await stalled(server.url, "M", "T") == ["source_missing"] * 2


async def test_a_source_that_was_recreated(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(newest_version) as server:
        here = await Scene.make(await raw_peer(server.url))
        await here.peer.recreate_stream("S")
        await publish(here.peer, "S", 3)
        assert await stalled(server.url, "M", "T") == ["source_recreated"] * 2


@pytest.mark.parametrize("version", CHANGE_IT)
async def test_a_source_with_another_creation_time(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(version) as server:
        here = await Scene.make(await raw_peer(server.url), {"storage": "file"}, storage="file")
        here.peer = await change_creation_time(server, raw_peer, "S")
        await all_is_well(server.url)
        await here.peer.recreate_stream("S")
        await publish(here.peer, "S", 10, b"y")
        found = await stalls(server.url)
        assert {link["reason"]["code"] for link in found.values()} == {"source_recreated"}
        # Before 2.15, a server that resumes while the new source is still empty begins with its next message.
        assert all([await holds(here.peer, target, 11) for target in {"M", "T"} - found.keys()])


async def test_a_target_that_is_full(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(newest_version) as server:
        here = await Scene.make(await raw_peer(server.url), discard="new", max_msgs=10)
        await publish(here.peer, "S", 5)
        found = [(link["reason"]["code"], link["missing"]) for link in (await stalls(server.url)).values()]
        assert found == [("target_full", 5)] * 2
        for target in ("M", "T"):
            await here.change(target, max_msgs=100)
        await until(lambda: holds(here.peer, "T", 15))
        # A mirror may stay wedged, or have skipped what it could not store, or recover: that is its server's affair.
        await here.peer.api("STREAM.DELETE.M")
        await all_is_well(server.url)


async def test_a_source_whose_limits_overtook_the_target(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        here = await Scene.make(await raw_peer(server.url), {"max_msgs": 20}, discard="new", max_msgs=10)
        await publish(here.peer, "S", 30)
        found = [(link["missing"], link["reason"]["code"]) for link in (await stalls(server.url)).values()]
        assert found == [(20, "target_full")] * 2


async def test_a_message_that_is_too_large(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(newest_version) as server:
        here = await Scene.make(await raw_peer(server.url), max_msg_size=1000)
        await publish(here.peer, "S", 1, b"x" * 2000)
        await publish(here.peer, "S", 1)
        assert await stalled(server.url, "M", "T") == ["message_too_large"] * 2


@pytest.mark.parametrize("version", ["2.9.10", "2.10.27"])
async def test_an_expectation_that_an_old_server_enforces(
    version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(version) as server:
        here = await Scene.make(await raw_peer(server.url))
        await publish(here.peer, "S", 1, block=b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n")
        assert await stalled(server.url, "M") == ["expectation"]


@pytest.mark.parametrize("version", ["2.9.10", pytest.param("2.12.15", marks=pytest.mark.exhaustive)])
async def test_a_rollup_that_an_old_server_refuses(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(version) as server:
        here = await Scene.make(await raw_peer(server.url), {"allow_rollup_hdrs": True})
        await publish(here.peer, "S", 1, block=b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n")
        assert await stalled(server.url, "M", "T") == ["rollup"] * 2


async def test_an_account_that_is_full(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    account = "accounts { A { jetstream: {max_mem: 100KB, max_file: 1MB}, users: [{user: a, password: a}] } }"
    config = f"{account}\nno_auth_user: a\n"
    async with native_server(newest_version, config=config) as server:
        here = await Scene.make(await raw_peer(server.url), {"storage": "file"})
        await publish(here.peer, "S", 30, b"x" * 8000)
        assert await stalled(server.url, "M", "T") == ["account_full"] * 2


def accounts(*exports: str, imports: str) -> str:
    return (
        "accounts { A { jetstream: enabled, users: [{user: a, password: a}], exports: [" + ", ".join(exports) + "] }\n"
        " B { jetstream: enabled, users: [{user: b, password: b}], imports: [" + imports + "] } }\nno_auth_user: b\n"
    )


API_EXPORT = '{service: "$JS.API.>"}'
DELIVER_EXPORT = '{stream: "deliver.>"}'
FC_EXPORT = '{service: "$JS.FC.>"}'
IMPORTS = (
    '{service: {account: A, subject: "$JS.API.>"}, to: "JS.A.API.>"}',
    '{stream: {account: A, subject: "deliver.>"}}',
    '{service: {account: A, subject: "$JS.FC.>"}}',
)
EXTERNAL = {"mirror": {"name": "S", "external": {"api": "JS.A.API", "deliver": "deliver"}}}


async def test_exports_that_are_missing_or_taken_away(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    complete = accounts(API_EXPORT, DELIVER_EXPORT, FC_EXPORT, imports=", ".join(IMPORTS))
    async with native_server(newest_version, config=complete) as server:
        at_source = await raw_peer(server.url.replace("//", "//a:a@"))
        await at_source.create_stream(name="S", subjects=["S.>"])
        await publish(at_source, "S", 10)
        peer = await raw_peer(server.url)
        await peer.create_stream(name="T", **EXTERNAL)
        await until(lambda: holds(peer, "T", 10))
        assert (await watched(server.url))["T"]["missing"] == 0

        async def with_config(config: str) -> RawPeer:
            server.config = config
            await asyncio.to_thread(server.restart)
            at_source = await raw_peer(server.url.replace("//", "//a:a@"))
            await publish(at_source, "S", 5)
            return await raw_peer(server.url)

        await with_config(accounts(API_EXPORT, FC_EXPORT, imports=f"{IMPORTS[0]}, {IMPORTS[2]}"))
        assert await stalled(server.url, "T") == ["deliveries_lost"]
        await with_config(accounts(DELIVER_EXPORT, FC_EXPORT, imports=f"{IMPORTS[1]}, {IMPORTS[2]}"))
        assert await stalled(server.url, "T") == ["api_not_imported"]
        peer = await with_config(complete)
        await until(lambda: holds(peer, "T", 20))
        await watched(server.url)


async def hub_and_leaf(
    version: str, native_server: Servers, raw_peer: OpenPeer
) -> tuple[NativeServer, NativeServer, RawPeer]:
    """A hub with a stream of ten messages, its leaf with a mirror that has them, and a connection to the leaf."""
    hub = native_server(version, config=f"leafnodes {{{LEAF_LISTENER}}}\njetstream {{domain: hub}}").start()
    leaf = native_server(version, config=leaf_config(hub)).start()
    at_source = await raw_peer(hub.url)
    await at_source.create_stream(name="S", subjects=["S.>"])
    await publish(at_source, "S", 10)
    peer = await raw_peer(leaf.url)
    await peer.create_stream(name="T", mirror={"name": "S", "external": {"api": "$JS.hub.API"}})
    await until(lambda: holds(peer, "T", 10))
    return hub, leaf, peer


def leaf_config(hub: NativeServer, more: str = "") -> str:
    remote = f'url: "nats-leaf://{HOST}:{hub.leaf_port}"{more}'
    return f"leafnodes {{remotes: [{{{remote}}}]}}\njetstream {{domain: leaf}}"


DENIED = ', deny_exports: ["$JS.hub.API.>"]'


async def test_a_leaf_that_lost_its_hub(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    hub, leaf, _ = await hub_and_leaf(newest_version, native_server, raw_peer)
    assert (await watched(leaf.url))["T"]["missing"] == 0
    hub.stop()
    assert await stalled(leaf.url, "T") == ["leaf_away"]


async def test_permissions_of_a_leaf_that_were_taken_away(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    hub, leaf, _ = await hub_and_leaf(newest_version, native_server, raw_peer)
    leaf.config = leaf_config(hub, DENIED)
    await asyncio.to_thread(leaf.restart)
    await publish(await raw_peer(hub.url), "S", 5)
    assert await stalled(leaf.url, "T") == ["leaf_away"]


async def test_a_work_queue_and_several_sources(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="A", subjects=["A.>"], retention="workqueue")
        await peer.create_stream(name="B", subjects=["B.>"])
        sources = [{"name": "A"}, {"name": "B", "filter_subject": "B.a"}, {"name": "B", "filter_subject": "B.b"}]
        await peer.create_stream(name="T", sources=sources)
        await publish(peer, "A", 3)
        await publish(peer, "B", 3)
        await until(lambda: holds(peer, "T", 6))
        ran = await command_here("watch", "--server", server.url, "--stalled-after", "3")
        assert ran.code == 0, ran.out
        assert ran.out.splitlines() == [
            "ok  T <- A: up to date, at 3",
            "ok  T <- B (B.a): up to date, at 3",
            "ok  T <- B (B.b): up to date, at 0",
        ]


async def test_the_printed_permissions_are_enough(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    printed = await command_here("--permissions", "watch", "--server", "nats://127.0.0.1:1")
    assert printed.code == 0, printed.err
    few = f"{{ user: few, password: few, permissions: {printed.out.partition('permissions:')[2]} }}"
    users = f"accounts {{ A {{ jetstream: enabled, users: [ {{ user: all, password: all }}, {few} ] }} }}\n"
    (tmp_path / "password").write_text("few", "utf-8")
    async with native_server(newest_version, config=users) as server:
        await Scene.make(await raw_peer(server.url.replace("//", "//all:all@")))
        config = tmp_path / "bridge.yaml"
        config.write_text(
            f"connections: {{default: {{servers: ['{server.url}'], user: few, password_file: password}}}}\n"
            "rules: [{name: a, kind: republish, stream: S, republish: {src: '>', dest: 'seen.>'}}]\n",
            "utf-8",
        )
        ran = await command_here("watch", "-c", str(config))
        assert (ran.code, ran.out) == (0, "ok  M <- S: up to date, at 10\nok  T <- S: up to date, at 10\n"), ran.err


async def test_an_account_without_links(newest_version: str, native_server: Servers) -> None:
    async with native_server(newest_version) as server:
        ran = await command_here("watch", "--server", server.url)
        assert (ran.code, ran.out) == (0, "no stream in this account is a mirror or has sources\n")
