"""Servers and accounts at their limits: rules wait, resume automatically, and report what they wait for."""

from __future__ import annotations

import os
import signal

import pytest
from structlog.testing import capture_logs

from nats_bridge.client import delivery_limit, ended_connections
from nats_bridge.kinds.copying.writing import publishing
from nats_conformance.native_servers import NativeServer
from tests.live.copies import Copies, record_of
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load, Scene, Seen
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

pytestmark = pytest.mark.usefixtures("quick_reconnects")


@pytest.fixture
def patient_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says why it ended a connection, and the limit stays, however slow the machine is."""
    monkeypatch.setattr(delivery_limit, "_SOON", 3600.0)
    monkeypatch.setattr(delivery_limit, "_CALM", 3600.0)
    monkeypatch.setattr(ended_connections, "_SAME_SERVER", LIMIT)


ROOM = 160_000  # bytes
MESSAGES = 2000
AT_ONCE = 600  # that find room
MAX_PAYLOAD = 2000  # bytes
ACCOUNT_LIMIT = f"""
accounts {{A: {{jetstream: {{max_file: {ROOM}, max_mem: 10MB}}, users: [{{user: a, password: a}}]}}}}
no_auth_user: a
"""
LITTLE_PENDING = "max_payload: 50000\nmax_pending: 100000"  # bytes; without a limit, consumers begin with 2 MiB
SERVER_LIMIT = f"jetstream: {{max_memory_store: {ROOM}, max_file_store: 10MB}}"


@pytest.mark.parametrize(
    ("version", "storage", "config", "said"),
    [
        ("2.9.10", "file", ACCOUNT_LIMIT, "resource limits exceeded for account"),
        pytest.param("2.10.27", "memory", SERVER_LIMIT, "insufficient resources", marks=pytest.mark.exhaustive),
        ("2.15.3", "file", ACCOUNT_LIMIT, "resource limits exceeded for account"),
        ("2.15.3", "memory", SERVER_LIMIT, "insufficient resources"),
    ],
)
async def test_copying_waits_for_room(
    version: str,
    storage: str,
    config: str,
    said: str,
    native_server: Servers,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "_STEPS", 400)  # fewer than find room, so that the pipeline opens again
    async with native_server("2.15.3") as source, native_server(version, config=config) as full:
        here = await Copies.make(
            await raw_peer(source.url), "S", target_peer=await raw_peer(full.url), target={"storage": storage}
        )
        await Load(here.peer, here.name).burst(MESSAGES)
        connections = {"default": {"servers": [full.url]}, "there": {"servers": [source.url]}}
        got: list[int] = []
        settings = settings_for("", here.rule(entry={"from": "there"}), connections=connections)
        with capture_logs() as logs:
            async with running(settings) as bridge:
                (run,) = bridge.runs
                await until(lambda: run.waiting_for is not None and "room" in run.waiting_for)
                assert not run.ready
                while len(got) < MESSAGES:
                    await here.holds(min(AT_ONCE, MESSAGES - len(got)))
                    stored = await here.stored()
                    got += [record_of(message).sequence for message in stored]
                    await here.target_peer.api(f"STREAM.PURGE.{here.target}", {"seq": stored[-1].sequence + 1})
                await until(lambda: run.ready and run.counters.as_dict()["copied"] >= MESSAGES)
                counted = run.counters.as_dict()
                assert (counted["copied"], counted["rejected"], counted["duplicates"]) == (MESSAGES, 0, 0)
        # How much was in flight when the target was full at first, and so how often it waits, is up to the network.
        assert {entry["server_says"] for entry in logs if entry["event"] == "copying.waits"} == {said}
    assert sorted(got) == list(range(1, MESSAGES + 1))


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_missing_messages_are_read_again_once_a_consumer_has_room(
    delivery: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("room"), max_consumers=2)
    async with cut_wire(url) as wire, running(settings_for(wire.url, here.rule(delivery=delivery))) as bridge:
        (run,) = bridge.runs
        other = {"stream_name": here.name, "config": {"durable_name": "other", "ack_policy": "none"}}
        assert "error" not in await here.peer.api(f"CONSUMER.DURABLE.CREATE.{here.name}.other", other)

        def held_up() -> bool:
            return "maximum consumers limit reached" in str(run.waiting_for)

        async def all_delivered() -> bool:
            return bool((await here.durable())["delivered"]["stream_seq"] == here.load.published)

        wire.fall_silent()  # so that the cut swallows deliveries
        await here.load.burst(10)
        await until(all_delivered)
        wire.cut()
        wire.speak_again()
        await until(held_up)
        assert not run.ready
        assert run.error is None
        await here.peer.api(f"CONSUMER.DELETE.{here.name}.other")
        end = await here.end()
        await until(lambda: run.position == end)
        await until(lambda: run.ready)
        assert (run.counters.received, run.counters.lost) == (end, 0)


async def test_a_limit_lowered_at_run_time_keeps_back_only_larger_messages(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        here = await Copies.make(await raw_peer(server.url), "S")
        await here.peer.create_stream(name="DEAD", subjects=["dead"])
        seen = await Seen.of(here.peer, "bridge.>")
        republish = {"kind": "republish", "stream": "S", "republish": {"src": "S.>", "dest": "bridge.>"}}
        settings = settings_for(
            server.url,
            {"name": "twice", "delivery": "at_least_once", **republish},
            {"name": "copies", **here.rule(on_rejected={"skip": "dead"})},
        )
        async with running(settings) as bridge:
            republishing, copying = bridge.runs
            await _reload(server, f"max_payload: {MAX_PAYLOAD}", raw_peer)
            for number in range(1, 31):  # what a third of them have in common: they fit, but not with more headers
                payload = b"x" * (MAX_PAYLOAD if number % 3 == 0 else 1)
                await here.peer.store(b"S.s", payload)
            await here.holds(20)
            await until(lambda: copying.counters.as_dict()["rejected"] == 10)
            await seen.until_sequence(29)
            await until(lambda: not republishing.has_work)
            assert republishing.counters.as_dict()["too_large"] == 10
            assert bridge.error is None
        assert await here.source_sequences() == [number for number in range(1, 31) if number % 3]
        assert sorted(set(seen.sequences)) == [number for number in range(1, 31) if number % 3]


@pytest.mark.usefixtures("patient_limit")
async def test_copies_progress_though_slow_consumers_are_disconnected_early(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(twin_version, config=LITTLE_PENDING) as server:
        here = await Copies.make(await raw_peer(server.url), "S")
        await _fill(here.peer)
        with capture_logs() as logs:
            async with running(settings_for(server.url, here.rule())) as bridge:
                (run,) = bridge.runs
                await here.holds(MESSAGES)
                limit = bridge.connections["default"].api.delivery_limit
                assert limit.messages is not None
                await until(lambda: run.ready)
                # The target can hold a copy whose answer is still under way, or was lost with the connection.
                await until(lambda: run.counters.copied + run.counters.duplicates == MESSAGES)
                assert run.counters.as_dict()["rejected"] == 0
        assert (await here.state())["messages"] == MESSAGES
        limits = [entry["messages"] for entry in logs if entry["event"] == "connection.slow_consumer"]
        assert limits == sorted(set(limits), reverse=True)


@pytest.mark.usefixtures("patient_limit")
async def test_a_position_moves_on_though_slow_consumers_are_disconnected(
    newest_version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with native_server(newest_version, config=LITTLE_PENDING) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="S", subjects=["S.>"])
        await _fill(peer)
        rule = {
            "name": "rule",
            "stream": "S",
            "start": "first",
            "delivery": "at_least_once",
            "republish": {"src": "S.>", "dest": "bridge.>"},
        }
        async with running(settings_for(server.url, rule)) as bridge:
            (run,) = bridge.runs
            await until(lambda: run.counters.received == MESSAGES)
            # What the server sends from now on is limited as well.
            asks = bridge.connections["default"].api.delivery_limit.messages

            async def limited() -> bool:
                info = await peer.api("CONSUMER.INFO.S.nats-bridge_rule")
                return bool(info["config"]["max_ack_pending"] == asks)

            await until(limited)
            await until(lambda: run.position == MESSAGES)
            assert run.counters.lost == 0


async def _fill(peer: RawPeer) -> None:
    for number in range(MESSAGES):
        await peer.store(b"S.s", b"%06d" % number + b"x" * 2000)


async def _reload(server: NativeServer, config: str, raw_peer: OpenPeer) -> None:
    """Have a server read another configuration, and wait until new connections show it."""
    (server.directory / "server.conf").write_text(f'server_name: "{server.name}"\n{config}', "utf-8")
    os.kill(server.pid, signal.SIGHUP)

    async def reported() -> bool:
        return (await raw_peer(server.url)).client.max_payload == MAX_PAYLOAD

    await until(reported)


async def test_a_limited_consumer_is_acknowledged_from_its_first_message(
    newest_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first messages can arrive together with the answer to its creation, and it sends no others before."""
    url = await servers.url(newest_version)
    here = await Copies.make(await raw_peer(url), unique_name("limited"))
    for number in range(200):
        await here.peer.store(f"{here.name}.a".encode(), b"%d" % number)
    monkeypatch.setattr(delivery_limit, "_CALM", 3600.0)
    begun = delivery_limit.DeliveryLimit.__init__

    def limited(self: delivery_limit.DeliveryLimit) -> None:
        begun(self)
        self.messages = 2

    monkeypatch.setattr(delivery_limit.DeliveryLimit, "__init__", limited)
    async with running(settings_for(url, here.rule())) as bridge:
        await here.holds(200)
        assert bridge.runs[0].counters.as_dict()["recreated_consumers"] == 0
    await here.are_exact()


@pytest.mark.parametrize("all_of_it", [True, False])
async def test_a_source_that_removed_messages_uncopied_is_reported(
    all_of_it: bool, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    peer = await raw_peer(url)
    subjects = [f"{(name := unique_name('uncopied'))}.>", *([] if all_of_it else [f"other{name}.>"])]
    here = await Copies.make(peer, name, source={"max_msgs": 30, "subjects": subjects})
    load, settings = Load(peer, name), settings_for(url, here.rule())
    await load.burst(20)
    async with running(settings):
        await here.holds(20)
    await load.burst(50)
    with capture_logs() as log:
        async with running(settings):
            await here.holds(50)
    said = [entry for entry in log if entry["event"] == "copying.removed_uncopied"]
    assert [(each["after_sequence"], each["first_sequence"]) for each in said] == ([(20, 41)] if all_of_it else [])
    with capture_logs() as log:
        async with running(settings):
            await here.holds(50)
    assert "copying.removed_uncopied" not in {entry["event"] for entry in log}


@pytest.mark.parametrize(("version", "ingress"), [("2.9.10", False), ("2.15.3", False), ("2.15.3", True)])
async def test_a_source_that_removed_unselected_messages_is_not_reported(
    version: str, ingress: bool, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Consumers of 2.9 take no second filter, and a stream with a transform stores subjects that it does not list."""
    url = await servers.url(version)
    peer, name = await raw_peer(url), unique_name("unselected")
    source = {"max_msgs": 30, "subject_transform": {"src": ">", "dest": f"in{name}.>"}} if ingress else {"max_msgs": 30}
    here = await Copies.make(peer, name, source=source)
    stored = f"in{name}.{name}" if ingress else name
    selected = [{"src": f"{stored}.{each}", "dest": f"{here.target}.{each}"} for each in ("a", "b")]
    entry = {
        "subject_transforms": [*selected, {"src": f"{name}.>", "dest": f"{here.target}.>"}] if ingress else selected
    }
    settings = settings_for(url, here.rule(entry=entry))
    await peer.store(f"{name}.a".encode())
    async with running(settings):
        await here.holds(1)
    for _ in range(60):
        await peer.store(f"{name}.c".encode())
    await peer.store(f"{name}.b".encode())
    with capture_logs() as log:
        async with running(settings):
            await here.holds(2)
    assert "copying.removed_uncopied" not in {entry["event"] for entry in log}
