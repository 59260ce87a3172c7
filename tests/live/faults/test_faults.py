"""What happens to a rule when servers, streams, consumers and connections go away under it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.app import process as running_module
from nats_bridge.app import sidecar
from nats_bridge.app.process import run as run_sidecar
from nats_bridge.errors import ApiError
from nats_bridge.rules import open_run
from nats_bridge.settings import Settings
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer, connected
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Load, Scene, Seen, differing, document, sidecar_processes
from tests.live.sidecars import running
from tests.live.until import LIMIT, until

pytestmark = pytest.mark.usefixtures("quick_heartbeats", "quick_reconnects")

MODES = ["at_most_once", "at_least_once"]


def settings_of(url: str, *rules: dict[str, Any], **more: Any) -> Settings:
    return Settings.model_validate(document(url, *rules, **more))


@pytest.mark.parametrize(
    ("how", "delivery"),
    [
        ("kill", "at_least_once"),
        ("stop", "at_most_once"),
        pytest.param("kill", "at_most_once", marks=pytest.mark.exhaustive),
        pytest.param("stop", "at_least_once", marks=pytest.mark.exhaustive),
    ],
)
async def test_a_server_restart_in_the_middle(
    how: str, delivery: str, twin_version: str, native_server: Servers, raw_peer: OpenPeer, enduring_peer: OpenPeer
) -> None:
    async with native_server(twin_version) as server, native_server("2.15.3") as target:
        here = await Scene.make(await enduring_peer(server.url), "S", await raw_peer(target.url))
        await here.load.burst(3000)
        await here.native.count(3000)  # what is in flight at the restart would be lost
        connections = {"default": {"servers": [server.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(start="first", delivery=delivery, to="target")
        async with running(settings_of(server.url, rule, connections=connections)) as bridge:
            counters = bridge.runs[0].counters
            await here.bridged.count(1)
            await asyncio.to_thread(server.restart, kill=how == "kill")
            await connected(here.peer)
            await here.load.burst(500)
            end = await here.end()
            await here.bridged.until_sequence(end)
            await until(lambda: counters.reconnects >= 1)
            assert counters.lost == counters.in_doubt == 0
            assert here.bridged.sequences == list(range(1, end + 1))
        assert differing(here.bridged, here.native) == []


@pytest.mark.parametrize("delivery", MODES)
async def test_a_restart_of_the_server_that_is_read_and_published_to(
    delivery: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    async with native_server("2.15.3") as server:
        peer = await enduring_peer(server.url)
        here = await Scene.make(peer, "S")
        async with running(settings_of(server.url, here.rule(start="first", delivery=delivery))) as bridge:
            run = bridge.runs[0]
            for _ in range(3):
                burst = asyncio.create_task(here.load.burst(1000))
                await here.bridged.count(len(here.bridged.messages) + 1)
                await asyncio.to_thread(server.restart, kill=True)
                await connected(peer)
                burst.cancel()
                await asyncio.gather(burst, return_exceptions=True)
            # The subscribers lose what was in flight to them as well, so the counters show what was sent.
            sequence = int((await peer.store(b"S.end"))["seq"])
            await here.bridged.until_sequence(sequence)
            came = here.bridged.sequences
            assert list(dict.fromkeys(came)) == sorted(set(came))
            if delivery == "at_most_once":
                assert came == sorted(set(came))
                assert run.counters.republished == sequence
                assert run.counters.lost == 0
                assert run.counters.repeated_out == 0
            else:
                assert run.counters.republished == sequence
                assert run.counters.in_doubt == 0


@pytest.mark.parametrize("delivery", MODES)
async def test_a_deleted_consumer_is_recreated(
    delivery: str, servers: SharedServers, twin_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("deleted"))
    async with running(settings_of(url, here.rule(delivery=delivery))) as bridge:
        await here.load.burst(500)
        await here.bridged.count(200)
        await here.peer.api(f"CONSUMER.DELETE.{here.name}.nats-bridge_rule")
        await here.load.burst(500)
        end = await here.end()
        await here.bridged.until_sequence(end)
        assert bridge.runs[0].counters.recreated_consumers == 1
        assert bridge.runs[0].counters.lost == 0
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []
    (consumer,) = await here.consumers()
    assert consumer["name"] == "nats-bridge_rule"


@pytest.mark.parametrize("durable", [True, False])
async def test_a_recreated_stream_is_republished_from_its_beginning(
    durable: bool, servers: SharedServers, twin_version: str, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    # In memory: a file store that is created right behind its deletion may hold the old messages (2.10 to 2.15).
    here = await Scene.make(await raw_peer(url), unique_name("again"), storage="memory")
    config = (await here.peer.api(f"STREAM.INFO.{here.name}"))["config"]
    async with running(settings_of(url, here.rule(durable=durable))) as bridge:
        await here.load.burst(300)
        await here.bridged.count(300)
        await here.peer.api(f"STREAM.DELETE.{here.name}")
        await here.peer.create_stream(**config)
        here.native.messages.clear()
        here.bridged.messages.clear()
        here.bridged.newest = here.native.newest = 0
        await here.load.burst(100)
        end = await here.end()
        await here.bridged.until_sequence(end)
        assert end == 101
        assert bridge.runs[0].counters.recreated_streams == 1
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []


async def test_a_stream_away_for_a_while(servers: SharedServers, unique_name: Name, raw_peer: OpenPeer) -> None:
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("away"), storage="memory")
    config = (await here.peer.api(f"STREAM.INFO.{here.name}"))["config"]
    async with running(settings_of(url, here.rule())) as bridge:
        await here.load.burst(10)
        await here.bridged.count(10)
        missed = asyncio.Event()
        api = bridge.runs[0]._source.api
        asked = api.stream_info

        async def stream_info(stream: str, **more: Any) -> Any:
            try:
                return await asked(stream, **more)
            except ApiError:
                missed.set()
                raise

        api.stream_info = stream_info  # type: ignore[method-assign]
        await here.peer.api(f"STREAM.DELETE.{here.name}")
        async with asyncio.timeout(LIMIT):
            await missed.wait()  # it has looked for the stream while there was none
        await here.peer.create_stream(**config)
        await here.load.burst(10)
        await here.bridged.count(20)
        assert here.bridged.sequences == [*range(1, 11), *range(1, 11)]


@pytest.mark.parametrize("delivery", MODES)
async def test_the_target_is_away_for_a_while(
    delivery: str, native_server: Servers, enduring_peer: OpenPeer, raw_peer: OpenPeer
) -> None:
    async with native_server("2.10.27") as source, native_server("2.15.3") as target:
        listener = await enduring_peer(target.url)
        here = await Scene.make(await raw_peer(source.url), "S", listener)
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery=delivery)
        async with running(settings_of(source.url, rule, connections=connections)) as bridge:
            counters = bridge.runs[0].counters
            await here.load.burst(500)
            await here.bridged.count(500)
            await bridge.runs[0].settled()
            await asyncio.to_thread(target.kill)
            await here.load.burst(2000)
            await asyncio.to_thread(target.start)
            await connected(listener)
            end = await here.end()
            await here.native.count(end)
            await here.bridged.until_sequence(end)
            # What the sidecar wrote before the listener was back, no subscriber got; the sidecar counted all of it.
            assert counters.republished + counters.in_doubt >= end
            assert counters.received == end
            assert counters.lost == 0
        came = here.bridged.sequences
        assert came == sorted(set(came))
        assert differing(here.bridged, here.native) == []


@pytest.mark.parametrize("delivery", MODES)
async def test_connections_cut_at_any_moment(
    delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    source, target = await servers.url("2.10.27"), await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(source), unique_name("cuts"))
    keeper = await raw_peer(target)
    await keeper.create_stream(name=here.name, subjects=[f"bridge{here.name}.>"])
    chance = random.Random(delivery)
    async with cut_wire(source) as reading, cut_wire(target) as writing:
        connections = {"default": {"servers": [reading.url]}, "target": {"servers": [writing.url]}}
        rule = here.rule(to="target", delivery=delivery, start="first")
        async with running(settings_of(source, rule, connections=connections)) as bridge:
            run = bridge.runs[0]
            for number in range(8):
                wire = (reading, writing)[number % 2]
                connected_before = wire.connections
                burst = here.load.burst(chance.randrange(500, 3000))
                moment = run.counters.received + chance.randrange(1, 500)
                publishing = asyncio.create_task(burst)
                await until(lambda moment=moment: run.counters.received >= moment)  # type: ignore[misc]
                wire.cut()
                await publishing
                await until(lambda wire=wire, n=connected_before: wire.connections > n)  # type: ignore[misc]
            end = await here.end()
            await until(lambda: run.position >= end)
            await run.settled()
            counters = run.counters
        assert counters.received == end
        assert counters.lost == 0
    # A stream takes in what was published after the publisher's PONG; this answer comes behind all of it.
    stored = int((await keeper.store(f"bridge{here.name}.behind".encode()))["seq"]) - 1
    kept = await Seen.of(keeper, f"kept.{here.name}")
    await keeper.api(f"STREAM.MSG.DELETE.{here.name}", {"seq": stored + 1})
    await keeper.api(
        f"CONSUMER.CREATE.{here.name}",
        {"stream_name": here.name, "config": {"deliver_subject": f"kept.{here.name}", "ack_policy": "none"}},
    )
    await kept.count(stored)
    came = kept.sequences
    first = list(dict.fromkeys(came))
    if delivery == "at_most_once":
        assert came == first
        # What a server reads late from a connection that was cut, it takes behind what came over the next one.
        late = sum(sequence < furthest for sequence, furthest in zip(came, accumulate(came, max), strict=True))
        assert end - len(came) + late <= counters.in_doubt
    else:
        assert first == list(range(1, end + 1))
        assert (await here.durable())["ack_floor"]["stream_seq"] == end
    assert differing(kept, here.native) == []


@pytest.mark.parametrize("promise", [{"delivery": "at_most_once"}, {"delivery": "at_least_once"}, {"durable": False}])
async def test_a_subscription_considered_inactive_becomes_active_again(
    promise: dict[str, Any], twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """As after a cut at the worst moment: for the bridge the subscription is there, and nothing is delivered."""
    url = await servers.url(twin_version)
    here = await Scene.make(await raw_peer(url), unique_name("unbound"))
    async with running(settings_of(url, here.rule(**promise))) as bridge:
        await here.load.burst(10)
        await here.bridged.count(10)
        connection = bridge.connections["default"]
        subscription = bridge.runs[0]._reader._subscription  # type: ignore[attr-defined]
        connection.client.write_raw(b"UNSUB %b\r\n" % subscription.sid)
        await connection.flush()
        await here.load.burst(10)
        await here.bridged.count(20)
        counters = bridge.runs[0].counters.as_dict()
        assert (counters["lost"], counters["recreated_consumers"]) == (0, 0)
    assert here.bridged.sequences == list(range(1, 21))


@pytest.mark.parametrize("delivery", MODES)
async def test_a_drain_is_bounded_while_the_target_is_away_and_loses_nothing(
    delivery: str, native_server: Servers, enduring_peer: OpenPeer, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "_DRAIN", 0.5)
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        listener = await enduring_peer(target.url)
        here = await Scene.make(await raw_peer(source.url), "S", listener)
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        rule = here.rule(to="target", delivery=delivery, start="first")
        settings = settings_of(source.url, rule, connections=connections)
        made: list[sidecar.Sidecar] = []

        class Made(sidecar.Sidecar):
            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                made.append(self)

        monkeypatch.setattr(running_module, "Sidecar", Made)
        await here.load.burst(500)
        ended = asyncio.create_task(run_sidecar(settings, Path("sidecar.yaml")))
        await here.bridged.count(500)
        await until(lambda: _confirmed(here, delivery, 500))
        await asyncio.to_thread(target.stop)
        await until(lambda: not made[0].connections["target"].client.is_connected)  # or it would write to no server
        await here.load.burst(500)
        await until(lambda: _confirmed(here, "at_most_once", 1000))
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            assert await ended == 1
        await asyncio.to_thread(target.start)
        await connected(listener)
        async with running(settings):
            end = await here.end()
            await here.bridged.until_sequence(end)
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []


async def _confirmed(here: Scene, delivery: str, sequence: int) -> bool:
    state = (await here.durable())["ack_floor" if delivery == "at_least_once" else "delivered"]
    return bool(state["stream_seq"] == sequence)


async def test_a_second_signal_ends_at_once(native_server: Servers, raw_peer: OpenPeer, tmp_path: Path) -> None:
    async with native_server("2.15.3") as source, native_server("2.15.3") as target:
        here = await Scene.make(await raw_peer(source.url), "S", await raw_peer(target.url))
        connections = {"default": {"servers": [source.url]}, "target": {"servers": [target.url]}}
        async with sidecar_processes(tmp_path) as start:
            process = await start(source.url, here.rule(to="target"), connections=connections)
            await process.ready()
            await asyncio.to_thread(target.kill)
            await process.said("connection.lost")
            await here.load.burst(100)
            await until(lambda: _confirmed(here, "at_most_once", 100))  # it has all, and nowhere to put it
            process.send(signal.SIGTERM)
            await process.said("sidecar.draining")
            process.send(signal.SIGTERM)
            assert await process.ended() == 1
            assert not any("rule.drain_timeout" in line for line in process.log)


@pytest.mark.parametrize("fail_fast", [False, True])
async def test_a_connection_that_the_server_ends_permanently_is_replaced(
    fail_fast: bool, native_server: Servers, raw_peer: OpenPeer
) -> None:
    """Or ends the sidecar that is to fail fast."""
    async with native_server("2.15.3") as server:
        here = await Scene.make(await raw_peer(server.url), "S")
        bridge = sidecar.Sidecar(settings_of(server.url, here.rule(), fail_fast=fail_fast))
        await bridge.start()
        connection = bridge.connections["default"]
        connection.client.write_raw(b"NONSENSE\r\n")
        if not fail_fast:
            await until(lambda: bridge.connections["default"] is not connection and bridge.supervisors[0].ready)
            await here.bridged.until_sequence(await here.end())
            assert await bridge.stop()
            return
        async with asyncio.timeout(LIMIT):
            await bridge.finished.wait()
        assert "connection 'default': the server ended it" in str(bridge.error)
        assert getattr(bridge.error, "exit_code", None) == 3
        await bridge.stop()


async def test_a_replay_resumes_after_a_restart(
    native_server: Servers, enduring_peer: OpenPeer, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """A process killed with much unconfirmed; the next one reads that again, while the server restarts."""
    async with native_server("2.15.3") as server, native_server("2.15.3") as target:
        peer = await enduring_peer(server.url)
        here = await Scene.make(peer, "S", await raw_peer(target.url))
        connections = {"default": {"servers": [server.url]}, "target": {"servers": [target.url]}}
        await Load(peer, "S").burst(20_000)
        rule = here.rule(to="target", delivery="at_least_once", start="first")
        await peer.api(
            "CONSUMER.DURABLE.CREATE.S.nats-bridge_rule",
            {
                "stream_name": "S",
                "config": {
                    "durable_name": "nats-bridge_rule",
                    "description": "nats-bridge nats-bridge/rule:",
                    "deliver_subject": "earlier",
                    "ack_policy": "all",
                    "ack_wait": 3600 * 10**9,
                    "max_ack_pending": 1_000_000,
                    "flow_control": True,
                    "idle_heartbeat": 200_000_000,
                },
            },
        )
        earlier = await peer.client.subscribe_batches("earlier", lambda _: None, lambda r, _: _answer(peer, r))
        await until(lambda: _pending(here, 20_000))
        await earlier.unsubscribe()
        await earlier.release()
        await peer.flushed()
        bridge = sidecar.Sidecar(settings_of(server.url, rule, connections=connections))
        starting = asyncio.create_task(bridge.start())
        await here.bridged.count(1)
        await asyncio.to_thread(server.restart, kill=True)
        await connected(peer)
        async with asyncio.timeout(LIMIT):
            await starting
        end = await here.end()
        await here.bridged.until_sequence(end)
        assert await bridge.stop()
        assert here.bridged.sequences == list(range(1, end + 1))
        assert (await here.durable())["ack_floor"]["stream_seq"] == end


async def _pending(here: Scene, messages: int) -> bool:
    return bool((await here.durable())["num_ack_pending"] >= messages)


def _answer(peer: RawPeer, reply: bytes) -> None:
    if reply:
        peer.client.write_raw(b"PUB %b 0\r\n\r\n" % reply)
