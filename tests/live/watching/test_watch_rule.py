"""Rules of kind watch: stalls of native mirrors and sources on real servers, found and named while a sidecar runs."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.app.preflight import check_server
from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.connection import open_connection
from nats_bridge.kinds.watching.request_rate import RequestRate
from nats_bridge.kinds.watching.watch import Watch
from nats_conformance.native_servers import NativeCluster, NativeServer
from tests.live.commands import command_here
from tests.live.observing.alert_rules import Look, fires
from tests.live.observing.metrics_endpoint import scrape
from tests.live.observing.test_health import FREE, get
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecars import running, settings_for
from tests.live.until import until
from tests.live.watching.test_watch import (
    API_EXPORT,
    DELIVER_EXPORT,
    DENIED,
    EXTERNAL,
    FC_EXPORT,
    IMPORTS,
    accounts,
    holds,
    hub_and_leaf,
    leaf_config,
    publish,
)

RULE: dict[str, Any] = {"name": "mirrors", "kind": "watch", "interval": 0.1, "stalled_after": 2}
BOTH_ENDS = pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])


class Watched:
    """A running sidecar with one watch rule."""

    def __init__(self, bridge: Sidecar, log: list[Any]) -> None:
        self.bridge, self.log = bridge, log

    @property
    def counters(self) -> dict[str, int]:
        return self.bridge.supervisors[0].counters()

    def copy(self, target: str) -> dict[str, Any]:
        """What the status says of a copy; empty while it says nothing."""
        copies = self.bridge.supervisors[0].status().get("copies", ())
        return next((copy for copy in copies if copy["target"] == target), {})

    async def is_complete(self, *targets: str) -> None:
        await until(lambda: all(self.copy(target).get("condition") == "complete" for target in targets))

    async def stalls(self, target: str, code: str) -> dict[str, Any]:
        """Wait until a copy is stalled for a reason; what a look says of it that begins now."""
        await until(lambda: (self.copy(target).get("reason") or {}).get("code") == code)
        await self.looks(2)
        return self.copy(target)

    async def looks(self, times: int) -> None:
        """Wait until it has looked so many times more."""
        wanted = self.counters["looks"] + times
        await until(lambda: self.counters["looks"] >= wanted)

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line["event"] == event]


@asynccontextmanager
async def watching(url: str, **rule: Any) -> AsyncIterator[Watched]:
    with capture_logs() as log:
        async with running(settings_for(url, {**RULE, **rule}, **FREE)) as bridge:
            yield Watched(bridge, log)


async def copied(peer: RawPeer, name: str, target: dict[str, Any], **source: Any) -> None:
    """A source of ten messages, and a stream T… that has them."""
    await peer.create_stream(**{"name": name, "subjects": [f"{name}.>"], "storage": "memory", **source})
    await publish(peer, name, 10)
    await peer.create_stream(name=f"T{name}", storage="memory", **target)
    await until(lambda: holds(peer, f"T{name}", 10))


async def update(peer: RawPeer, stream: str, **change: Any) -> None:
    config = (await peer.api(f"STREAM.INFO.{stream}"))["config"]
    assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", config | change)


def sources(name: str, **entry: Any) -> dict[str, Any]:
    return {"sources": [{"name": name, **entry}]}


@BOTH_ENDS
async def test_stalls_are_named_shown_counted_and_end(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    async with native_server(version) as server:
        peer = await raw_peer(server.url)
        await copied(peer, "WELL", {"mirror": {"name": "WELL"}})
        await copied(peer, "GONE", {"mirror": {"name": "GONE"}})
        await copied(peer, "NEW", sources("NEW"))
        await copied(peer, "LARGE", {"mirror": {"name": "LARGE"}, "max_msg_size": 1000})
        await copied(peer, "FULL", {**sources("FULL"), "max_msgs": 10, "discard": "new"})
        await update(peer, "FULL", max_msgs=5)
        names = ("WELL", "GONE", "NEW", "LARGE", "FULL")
        async with watching(server.url, on_stall="step_down") as here:
            await here.is_complete(*(f"T{name}" for name in names))
            assert not fires("NatsBridgeCopyStalled", Look.of(time.time(), await scrape(here.bridge)))
            await peer.api("STREAM.DELETE.GONE")
            await peer.recreate_stream("NEW")
            await publish(peer, "NEW", 3)
            await publish(peer, "LARGE", 1, b"x" * 2000)
            await publish(peer, "FULL", 30)  # its own limit removes 25 of them
            await here.stalls("TGONE", "source_missing")
            await here.stalls("TNEW", "source_recreated")
            await here.stalls("TLARGE", "message_too_large")
            full = await here.stalls("TFULL", "target_full")
            assert (full["missing"], full["overtaken"], full["position"]) == (5, 25, 10)
            assert full["step_down"] == "another leader does not help: target_full"
            assert here.copy("TWELL")["condition"] == "complete"
            assert (here.counters["stalls"], here.counters["recoveries"], here.counters["step_downs"]) == (4, 0, 0)
            stalled = {line["stream"]: line["code"] for line in here.events("watch.stalled")}
            assert stalled["TFULL"] == "target_full"
            assert {line["source"] for line in here.events("watch.stalled")} == {"GONE", "NEW", "LARGE", "FULL"}

            seen = await scrape(here.bridge)
            labels = {"rule": "mirrors", "kind": "watch", "stream": "TFULL", "source": "FULL", "entry": "0"}
            assert seen.value("watched_missing_messages", **labels) == 5
            assert seen.value("watched_stalled_seconds", **labels) >= 2
            assert seen.value("watched_state", state="stalled", **labels) == 1
            fired = fires("NatsBridgeCopyStalled", Look.of(time.time(), seen))
            assert {labels["stream"] for labels in fired} == {"TGONE", "TNEW", "TLARGE", "TFULL"}
            # A stall is the server's: the sidecar stays ready, and says why not where that is wanted.
            assert (await get(here.bridge, "/readyz"))[0] == 200

            await update(peer, "TFULL", max_msgs=100)
            await here.is_complete("TFULL")
            assert here.counters["recoveries"] == 1
            assert [line["stream"] for line in here.events("watch.recovered")] == ["TFULL"]
            assert (await scrape(here.bridge)).value("watched_state", state="complete", **labels) == 1


@BOTH_ENDS
async def test_exports_that_are_taken_away(version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    complete = accounts(API_EXPORT, DELIVER_EXPORT, FC_EXPORT, imports=", ".join(IMPORTS))
    async with native_server(version, config=complete) as server:
        source = await raw_peer(server.url.replace("//", "//a:a@"))
        await source.create_stream(name="S", subjects=["S.>"])
        await publish(source, "S", 10)
        peer = await raw_peer(server.url)
        await peer.create_stream(name="T", **EXTERNAL)
        await until(lambda: holds(peer, "T", 10))
        async with watching(server.url, on_stall="step_down") as here:
            await here.is_complete("T")

            async def with_config(config: str) -> None:
                server.config = config
                await asyncio.to_thread(server.restart)
                await publish(await raw_peer(server.url.replace("//", "//a:a@")), "S", 5)

            await with_config(accounts(API_EXPORT, FC_EXPORT, imports=f"{IMPORTS[0]}, {IMPORTS[2]}"))
            copy = await here.stalls("T", "deliveries_lost")
            assert copy["missing"] == 5
            await until(lambda: bool(here.events("watch.no_step_down")))
            assert here.copy("T")["step_down"].startswith("no other server can lead it")
            await with_config(accounts(DELIVER_EXPORT, FC_EXPORT, imports=f"{IMPORTS[1]}, {IMPORTS[2]}"))
            await here.stalls("T", "api_not_imported")
            await with_config(complete)
            await until(lambda: here.copy("T").get("position") == 25)
            await here.is_complete("T")
            assert (here.counters["stalls"], here.counters["recoveries"], here.counters["step_downs"]) == (1, 1, 0)


@BOTH_ENDS
async def test_a_leaf_whose_hub_stops_and_whose_permissions_go(
    version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    hub, leaf, _ = await hub_and_leaf(version, native_server, raw_peer)
    async with watching(leaf.url) as here:
        await here.is_complete("T")
        await asyncio.to_thread(hub.stop)
        copy = await here.stalls("T", "leaf_away")
        assert copy["missing"] is None
        await asyncio.to_thread(hub.start)
        await here.is_complete("T")
        leaf.config = leaf_config(hub, DENIED)
        await asyncio.to_thread(leaf.restart)
        await publish(await raw_peer(hub.url), "S", 5)
        await here.stalls("T", "leaf_away")


async def test_no_alarm_in_random_healthy_load(newest_version: str, native_server: Servers, raw_peer: OpenPeer) -> None:
    drawn = random.Random(21)
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="A", subjects=["A.>"], storage="memory", max_msgs=500)
        await peer.create_stream(name="B", subjects=["B.>"], storage="memory", max_msgs_per_subject=5)
        renamed = {"subject_transforms": [{"src": "A.*", "dest": "renamed.{{wildcard(1)}}"}]}
        for name, config in (
            ("MA", {"mirror": {"name": "A"}}),
            ("MB", {"mirror": {"name": "B", "filter_subject": "B.1"}}),
            ("TA", {"sources": [{"name": "A", **renamed}, {"name": "B"}]}),
            ("TB", {"sources": [{"name": "B", "filter_subject": "B.2"}], "max_msgs": 20}),
            ("QUEUE", {"sources": [{"name": "B", "filter_subject": "B.3"}], "retention": "workqueue"}),
        ):
            await peer.create_stream(name=name, storage="memory", **config)
        over = asyncio.Event()

        async def load() -> None:
            while not over.is_set():
                stream = drawn.choice("AB")
                for _ in range(drawn.randrange(100)):
                    await peer.store(f"{stream}.{drawn.randrange(5)}".encode(), b"x" * drawn.randrange(200))
                await asyncio.sleep(0.01)  # others need the processor, too
                match drawn.randrange(6):
                    case 0:
                        last = (await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
                        await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": max(last - drawn.randrange(20), 1)})
                    case 1:
                        await peer.api(f"STREAM.PURGE.{stream}", {"filter": f"{stream}.{drawn.randrange(5)}"})
                    case 2:
                        last = (await peer.api("STREAM.INFO.QUEUE"))["state"]["last_seq"]
                        await peer.api("STREAM.MSG.DELETE.QUEUE", {"seq": max(last - drawn.randrange(5), 1)})
                    case 3:
                        await here.looks(1)  # nothing happens for a while

        async with watching(server.url, stalled_after=10, max_requests=1000) as here:
            loading = asyncio.create_task(load())
            try:
                for _ in range(3):
                    await here.looks(10)
            finally:
                over.set()
                await loading
            await here.is_complete("MA", "MB", "TA", "TB", "QUEUE")
            assert (here.counters["stalls"], here.events("watch.stalled")) == (0, [])


async def test_a_leader_steps_down_once_in_a_stall(newest_version: str, raw_peer: OpenPeer) -> None:
    """The deliveries of an external source are not imported: the server of a leader that is new cannot copy, either."""
    lacking = accounts(API_EXPORT, FC_EXPORT, imports=f"{IMPORTS[0]}, {IMPORTS[2]}")
    async with NativeCluster(newest_version, config=lacking) as cluster:
        url = cluster.nodes[0].url
        source = await raw_peer(url.replace("//", "//a:a@"))
        await source.create_stream(name="S", subjects=["S.>"], num_replicas=3)
        await publish(source, "S", 10)
        peer = await raw_peer(url)
        for name in ("T", "U"):
            await peer.create_stream(name=name, num_replicas=3 if name == "T" else 1, **EXTERNAL)
        elected = await peer.collect("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.T")
        async with watching(url, on_stall="step_down", interval=0.2) as here:
            await until(lambda: here.counters["step_downs"] == 1)
            (asked,) = here.events("watch.stepped_down")
            assert (asked["stream"], asked["source"], asked["rule"]) == ("T", "S", "mirrors")
            assert here.copy("T")["step_down"] == f"asked of {asked['leader']}"
            assert here.copy("T")["reason"]["code"] == "deliveries_lost"
            await here.stalls("U", "deliveries_lost")
            await here.looks(10)
            assert here.counters["step_downs"] == 1
            assert here.copy("U")["step_down"].startswith("no other server can lead it")
            await elected.count(1)  # the server that stepped down can win the election again


async def test_a_new_leader_ends_a_stall(newest_version: str, raw_peer: OpenPeer) -> None:
    """The server that leads has read a configuration without an import which those of the other servers have."""
    complete = accounts(API_EXPORT, DELIVER_EXPORT, FC_EXPORT, imports=", ".join(IMPORTS))
    async with NativeCluster(newest_version, config=complete) as cluster:
        first = cluster.nodes[0].url
        source, peer = await raw_peer(first.replace("//", "//a:a@")), await raw_peer(first)
        await source.create_stream(name="S", subjects=["S.>"], num_replicas=3)
        await peer.create_stream(name="T", num_replicas=3, **EXTERNAL)
        await publish(source, "S", 10)
        await until(lambda: holds(peer, "T", 10))
        async with watching(first, on_stall="step_down") as here:
            await here.is_complete("T")
            while not here.events("watch.stalled"):
                leader = await leader_of(peer, "T")
                lacking = next(node for node in cluster.nodes if node.name == leader)
                await read_again(lacking, lacking.config.replace(f", {IMPORTS[1]}", ""))

                async def is_stalled_or_led_by_another(leader: str = leader) -> bool:
                    await publish(source, "S", 1)  # what is in flight as the server reads it still arrives
                    return bool(here.events("watch.stalled")) or await leader_of(peer, "T") != leader

                await until(is_stalled_or_led_by_another)
                if not here.events("watch.stalled"):
                    await read_again(lacking, lacking.config)
            await until(lambda: bool(here.events("watch.recovered")))
            (asked,) = here.events("watch.stepped_down")
            assert (asked["stream"], asked["leader"]) == ("T", leader)
            await here.is_complete("T")


async def read_again(node: NativeServer, config: str) -> None:
    """Have a server read another configuration."""
    read = "Reloaded server configuration"
    before = node.log_file.read_text("utf-8").count(read)
    (node.directory / "server.conf").write_text(f'server_name: "{node.name}"\n{config}', "utf-8")
    os.kill(node.pid, signal.SIGHUP)
    await until(lambda: node.log_file.read_text("utf-8").count(read) > before)


async def leader_of(peer: RawPeer, stream: str) -> str:
    """The server that leads a stream, when one does."""
    found = ""

    async def leads() -> bool:
        nonlocal found
        found = (await peer.api(f"STREAM.INFO.{stream}")).get("cluster", {}).get("leader", "")
        return bool(found)

    await until(leads)
    return found


async def test_a_leader_that_is_away(newest_version: str, raw_peer: OpenPeer) -> None:
    async with NativeCluster(newest_version) as cluster:
        first = cluster.nodes[0]
        peer = await raw_peer(first.url)
        await peer.create_stream(name="S", subjects=["S.>"], num_replicas=3)
        await publish(peer, "S", 10)
        placed = {}
        for number in range(12):  # one that another server holds
            await peer.create_stream(name=f"T{number}", mirror={"name": "S"})
            await until(lambda number=number: holds(peer, f"T{number}", 10))  # type: ignore[misc]
            placed[f"T{number}"] = (await peer.api(f"STREAM.INFO.T{number}"))["cluster"]["leader"]
            if placed[f"T{number}"] != first.name:
                break
        target = f"T{number}"
        async with watching(first.url) as here:
            await here.is_complete(target)
            away = next(node for node in cluster.nodes if node.name == placed[target])
            await asyncio.to_thread(away.stop)
            await here.stalls(target, "target_leaderless")
            await asyncio.to_thread(away.start)
            await here.is_complete(target)
            assert target in {line["stream"] for line in here.events("watch.recovered")}


async def test_a_stream_that_is_named_and_readiness_on_demand(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await copied(peer, "S", {**sources("S"), "max_msgs": 10, "discard": "new"})
        rule = {"streams": ["TS", "LATER"], "unready_on_stall": True, "on_stall": "step_down"}
        findings = await check_server(settings_for(server.url, {**RULE, **rule}), None)
        assert [finding.text for finding in findings if finding.code == "diverges"] == [
            "stream 'LATER' does not exist: there is nothing to watch until it has",
            "on_stall: step_down does nothing here: no watched stream has another server that can lead it",
        ]
        async with watching(server.url, **rule) as here:
            await here.is_complete("TS")
            code, text = await get(here.bridge, "/readyz")
            assert (code, "[-] rule mirrors: waiting: stream 'LATER', which does not exist" in text) == (503, True)
            (said,) = here.events("watch.nothing_to_watch")
            assert said["stream"] == "LATER"
            await peer.create_stream(name="LATER", mirror={"name": "S"})
            await until(lambda: here.bridge.supervisors[0].ready)
            await publish(peer, "S", 5)
            await here.stalls("TS", "target_full")
            code, text = await get(here.bridge, "/readyz")
            assert (code, "waiting: TS <- S, which is stalled: stream TS is full" in text) == (503, True)


async def test_the_printed_permissions_are_enough(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("few", "utf-8")
    config = tmp_path / "bridge.yaml"

    def written(url: str) -> None:
        document = {
            "connections": {"default": {"servers": [url], "user": "few", "password_file": "password"}},
            "rules": [{**RULE, "on_stall": "step_down"}],
        }
        config.write_text(json.dumps(document), "utf-8")

    written("nats://127.0.0.1:4222")
    printed = await command_here("check", "-c", str(config), "--permissions")
    assert printed.code == 0, printed.err
    assert "$JS.API.STREAM.LEADER.STEPDOWN.*" in printed.out
    few = f"{{ user: few, password: few, permissions: {printed.out.partition('permissions:')[2]} }}"
    users = f"accounts {{ A {{ jetstream: enabled, users: [ {{ user: all, password: all }}, {few} ] }} }}\n"
    async with native_server(newest_version, config=users) as server:
        peer = await raw_peer(server.url.replace("//", "//all:all@"))
        await copied(peer, "S", {**sources("S"), "max_msgs": 10, "discard": "new"})
        await publish(peer, "S", 5)
        connection = {"servers": [server.url], "user": "few", "password_file": str(tmp_path / "password")}
        with capture_logs() as log:
            async with running(settings_for("", RULE, connections={"default": connection}, **FREE)) as bridge:
                await Watched(bridge, log).stalls("TS", "target_full")
        assert [line for line in log if line["event"] == "connection.refused"] == []


async def test_a_link_that_may_not_be_asked_about_ends_nothing(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text("few", "utf-8")
    few = '{user: few, password: few, permissions: {publish: {deny: ["$JS.API.STREAM.INFO.SECRET"]}}}'
    users = f"accounts {{ A {{ jetstream: enabled, users: [ {{ user: all, password: all }}, {few} ] }} }}\n"
    async with native_server(newest_version, config=users) as server:
        peer = await raw_peer(server.url.replace("//", "//all:all@"))
        await copied(peer, "SECRET", {"mirror": {"name": "SECRET"}})
        await copied(peer, "S", {**sources("S"), "max_msgs": 10, "discard": "new"})
        await publish(peer, "S", 5)
        connection = {"servers": [server.url], "user": "few", "password_file": str(tmp_path / "password")}
        with capture_logs() as log:
            async with running(settings_for("", RULE, connections={"default": connection}, **FREE)) as bridge:
                here = Watched(bridge, log)
                await here.stalls("TS", "target_full")
                assert here.copy("TSECRET")["condition"] == "unknown"
                assert here.copy("TSECRET")["reason"]["code"] == "not_permitted"
                assert (bridge.supervisors[0].ready, here.counters["stalls"]) == (True, 1)
                assert [line["stream"] for line in here.events("watch.not_seen")] == ["TSECRET"]


class Counting(RequestRate):
    """A rate that lets everything pass, and counts."""

    turns = 0

    def delay(self, now: float, requests: int = 1) -> float:
        self.turns += requests
        return 0.0


async def test_every_request_waits_for_its_turn(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"], storage="memory")
        for number in range(10):
            copies = {"mirror": {"name": "S"}} if number % 2 else sources("S", filter_subject=f"S.{number}")
            await peer.create_stream(name=f"T{number}", storage="memory", **copies)
        connection = await open_connection("default", {"servers": [server.url]}, client_name="test")
        rate = Counting(1)
        watch = Watch(connection, 10, rate)

        async def requests() -> int:
            return int((await peer.api("INFO"))["api"]["total"])

        for _ in range(20):
            await publish(peer, "S", 20)
            before, rate.turns = await requests(), 0
            await watch.look()
            # Servers that copy ask as well when they were paused, and a lost connection asks again: never in each look.
            if 10 <= await requests() - before - 1 <= rate.turns:
                break
        else:
            pytest.fail("each of twenty looks sent more requests than waited for their turn")
        while not all(state.condition == "complete" for state in await watch.look()):
            pass
        rate.turns = 0
        assert {state.condition for state in await watch.look()} == {"complete"}
        assert rate.turns == 2  # where nothing changes, the account is listed, and no link is asked about
        await connection.close()
