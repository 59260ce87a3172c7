"""A server keeps a durable consumer's position, and loses messages before it: the next process of the rule finds out.

A position has no time, but the lease and the last clean stop keep one. The stream has stored other messages under the
lost sequences before the process starts, and is longer than before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.kinds.republish.run import RepublishRun
from nats_conformance.native_servers import NativeServer
from nats_transforms.timestamp import nanoseconds_of
from tests.live.cut_wire import cut_wire
from tests.live.faults.power_cut import LostEnd, PowerCut
from tests.live.leadership.leases import LONG, free, lease, write_lease
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Scene, Seen, differing, sidecar_processes
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns
from tests.live.until import until

VERSIONS = ["2.10.27", "2.15.3", pytest.param("2.9.10", marks=pytest.mark.exhaustive)]
DURABLE = "nats-bridge_rule"


async def _served(version: str, native_server: Servers, enduring_peer: OpenPeer) -> tuple[NativeServer, RawPeer, Scene]:
    """A server, a connection that survives its power cuts, and the stream."""
    server = native_server(version).start()
    peer = await enduring_peer(server.url)
    return server, peer, await Scene.make(peer, "S")


async def _last(peer: RawPeer) -> int:
    return int((await peer.api("STREAM.INFO.S"))["state"]["last_seq"])


async def _older_position(peer: RawPeer) -> None:
    """Write the lease of a process that was killed: its position is older than the consumer's."""
    message = (await peer.api("STREAM.MSG.GET.S", {"seq": 40}))["message"]
    position = {"stream": "S", "sequence": 40, "time_ns": nanoseconds_of(message["time"])}
    await write_lease(peer, "S", **((await lease(peer, "S")) or {}) | {"position": position})


async def _no_position(peer: RawPeer) -> None:
    """Leave the consumer of a process without a lease that was killed."""
    config = (await peer.api(f"CONSUMER.INFO.S.{DURABLE}"))["config"]
    config["description"] = config["description"].partition(" (done")[0]
    body = {"stream_name": "S", "config": config}
    assert "error" not in await peer.api(f"CONSUMER.DURABLE.CREATE.S.{DURABLE}", body)


async def _delivered_in_vain(here: Scene, killed: RawPeer) -> None:
    """Let the consumer deliver ten messages to a process that is killed before it acknowledges them."""
    received = await killed.collect("killed")
    config = (await here.durable())["config"] | {"deliver_subject": "killed"}
    body = {"stream_name": "S", "config": config}
    assert "error" not in await here.peer.api(f"CONSUMER.DURABLE.CREATE.S.{DURABLE}", body)
    await here.load.burst(10)
    await received.count(10)
    await killed.close()


@by_turns(
    "version, delivery, with_lease, killed, found",
    VERSIONS,
    [
        ("at_least_once", True, False, "rule.position_restored"),
        ("at_least_once", True, True, "rule.position_restored"),
        ("at_least_once", False, False, "rule.position_restored"),
        ("at_least_once", False, True, "rule.position_unproven"),
        ("at_most_once", False, False, "rule.position_restored"),
    ],
)
async def test_new_messages_before_the_position(
    version: str,
    delivery: str,
    with_lease: bool,
    killed: bool,
    found: str,
    native_server: Servers,
    enduring_peer: OpenPeer,
) -> None:
    server, peer, here = await _served(version, native_server, enduring_peer)
    await free(peer, "S")
    more: dict[str, Any] = {"leadership": {"bucket": "S", "ttl": LONG}} if with_lease else {}
    settings = settings_for(server.url, here.rule(delivery=delivery, start="first"), dialect="native", **more)
    end = LostEnd(server, peer, "S")

    async def run_for(messages: int) -> None:
        async with running(settings):
            await here.load.burst(messages)
            await here.bridged.until_sequence(await here.end())

    await run_for(50)
    synced = await _last(peer)
    await end.sync()
    await run_for(50)
    if killed:
        await (_older_position if with_lease else _no_position)(peer)
    await end.lose(here.load.burst(70))
    seen, last = len(here.bridged.messages), await _last(peer)
    with structlog.testing.capture_logs() as log:
        await run_for(1)
    after = {(True, True): 40, (False, True): 102}.get((with_lease, killed), synced)
    assert [(line["event"], line["after"]) for line in log if line["event"].startswith("rule.position")] == [
        (found, after)
    ]
    assert here.bridged.sequences[seen:] == list(range(after + 1, last + 3))


@pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])
async def test_new_messages_before_deliveries_that_were_not_acknowledged(
    version: str, native_server: Servers, enduring_peer: OpenPeer, raw_peer: OpenPeer
) -> None:
    """The position is in the stream, but a killed process has received messages that are lost. 2.9 says so."""
    server, peer, here = await _served(version, native_server, enduring_peer)
    settings = settings_for(server.url, here.rule(delivery="at_least_once", start="first"), dialect="native")
    end = LostEnd(server, peer, "S")
    async with running(settings):
        await here.load.burst(50)
        await here.bridged.until_sequence(50)
    await end.sync()
    await _delivered_in_vain(here, await raw_peer(server.url))
    await end.lose(here.load.burst(3))
    async with running(settings):
        await here.load.burst(1)
        await here.bridged.until_sequence(54)
    assert here.bridged.sequences == list(range(1, 55))


@by_turns("version, is_lost", VERSIONS, [False, True])
async def test_a_stop_acknowledges_only_a_message_that_the_stream_holds(
    version: str, is_lost: bool, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The connection is lost before the last acknowledgement, which says that the server has lost nothing since."""
    server, peer, here = await _served(version, native_server, enduring_peer)
    end = LostEnd(server, peer, "S")
    await here.load.burst(3)
    await end.sync()

    async def is_acknowledged() -> bool:
        return bool((await here.durable())["ack_floor"]["stream_seq"] == 5)

    async with cut_wire(server.url) as wire:
        rule = here.rule(delivery="at_least_once", start="first")
        async with running(settings_for(wire.url, rule, dialect="native")) as bridge:
            await here.load.burst(2)
            await until(is_acknowledged)
            run = bridge.runs[0]
            assert isinstance(run, RepublishRun)
            wire.hold_back()
            wire.cut()
            stopping = asyncio.create_task(bridge.stop())
            await until(lambda: run._is_drained)
            if is_lost:
                await end.lose(here.load.burst(2))
            acknowledgements = await peer.collect("$JS.ACK.S.>")
            wire.let_through()
            await stopping
    await peer.flushed()
    # It is sent again if its answer comes late.
    assert len({subject for subject, *_ in acknowledgements.messages}) == (0 if is_lost else 1)


@by_turns("version, delivery", VERSIONS, ["at_least_once", "at_most_once"])
async def test_new_messages_before_a_position_that_is_still_the_first_one(
    version: str, delivery: str, native_server: Servers, enduring_peer: OpenPeer, tmp_path: Path
) -> None:
    """A rule begins at the end of its stream, and is killed before another message comes."""
    server, peer, here = await _served(version, native_server, enduring_peer)
    end = LostEnd(server, peer, "S")
    await here.load.burst(50)
    await end.sync()
    await here.load.burst(50)
    async with sidecar_processes(tmp_path) as start:
        killed = await start(server.url, here.rule(delivery=delivery, start="new"))
        await killed.ready()
        await killed.kill()
        await end.lose(here.load.burst(70))
        following = await start(server.url, here.rule(delivery=delivery, start="new"))
        await here.load.burst(1)
        await here.bridged.until_sequence(121)
        assert (await following.said("rule.position_restored"))["after"] == 50
    assert here.bridged.sequences == list(range(51, 122))


@by_turns("version, delivery", VERSIONS, ["at_least_once", "at_most_once"])
async def test_new_messages_before_the_start_of_a_new_consumer(
    version: str, delivery: str, native_server: Servers, enduring_peer: OpenPeer, tmp_path: Path
) -> None:
    """A rule continues after a power cut, and a second one comes when it is killed, before another message."""
    server, peer, here = await _served(version, native_server, enduring_peer)
    end = LostEnd(server, peer, "S")
    await here.load.burst(45)
    await end.sync()
    await here.load.burst(5)
    rule = here.rule(delivery=delivery, start="first")
    async with PowerCut.of(server, peer) as power, sidecar_processes(tmp_path) as start:
        await power.sync()
        killed = await start(power.url, rule)
        await here.load.burst(50)
        await here.bridged.until_sequence(100)
        await power.lose()
        power.back()
        await killed.said("reader.consumer_recreated")
        await killed.said("connection.back")
        await until(lambda: _begins_after(here, 50))
        await killed.kill()
        await end.lose(here.load.burst(20))
        seen = len(here.bridged.messages)
        following = await start(server.url, rule)
        await following.ready()
        await here.load.burst(1)
        await here.bridged.count(seen + 21)
        assert (await following.said("rule.position_restored"))["after"] == 45
    assert here.bridged.sequences[seen:] == list(range(46, 67))


async def _begins_after(here: Scene, sequence: int) -> bool:
    info = await here.durable()
    return "error" not in info and info["config"].get("opt_start_seq") == sequence + 1


@by_turns("version, delivery", VERSIONS, ["at_least_once", "at_most_once"])
async def test_an_end_that_is_lost_while_a_rule_starts(
    version: str, delivery: str, native_server: Servers, enduring_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is read before the power cut, and the consumer is taken over after it."""
    server, peer, here = await _served(version, native_server, enduring_peer)
    rule = here.rule(delivery=delivery, start="first")
    take_over = RuleConsumer.take_over
    async with PowerCut.of(server, peer) as power:
        await here.load.burst(50)
        await power.sync()
        async with running(settings_for(power.url, rule, dialect="native")):
            await here.load.burst(50)
            await here.bridged.until_sequence(100)

        async def after_a_power_cut(consumer: RuleConsumer, handled: int | None) -> Json | None:
            monkeypatch.setattr(RuleConsumer, "take_over", take_over)
            await power.lose()
            await here.load.burst(70)
            power.back()
            return await take_over(consumer, handled)

        monkeypatch.setattr(RuleConsumer, "take_over", after_a_power_cut)
        seen = len(here.bridged.messages)
        async with running(settings_for(power.url, rule, dialect="native")) as bridge:
            await here.load.burst(1)
            await here.bridged.count(seen + 71)
            assert bridge.runs[0].counters.shorter_streams == 1
    assert here.bridged.sequences[seen:] == list(range(51, 122))


@by_turns("version, moment, is_lost", VERSIONS, ["take over", "read again"], [True, False])
async def test_an_end_that_is_lost_before_unacknowledged_messages_are_read(
    version: str,
    moment: str,
    is_lost: bool,
    native_server: Servers,
    enduring_peer: OpenPeer,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer has delivered them to a killed process. The next one loses its connection while it starts."""
    server, peer, here = await _served(version, native_server, enduring_peer)
    rule = here.rule(delivery="at_least_once", start="first")
    end = LostEnd(server, peer, "S")
    await here.load.burst(30)
    await end.sync()
    async with running(settings_for(server.url, rule, dialect="native")):
        await here.load.burst(20)
        await here.bridged.until_sequence(50)
    await _delivered_in_vain(here, await raw_peer(server.url))
    of_class, name = {"take over": (RuleConsumer, "take_over"), "read again": (OrderedReader, "_read_again")}[moment]
    step = getattr(of_class, name)
    async with cut_wire(server.url) as wire:

        async def after_a_loss(*given: Any) -> Any:
            monkeypatch.setattr(of_class, name, step)
            wire.hold_back()
            wire.cut()
            if is_lost:
                await end.lose(here.load.burst(60))
            wire.let_through()
            return await step(*given)

        monkeypatch.setattr(of_class, name, after_a_loss)
        async with running(settings_for(wire.url, rule, dialect="native")) as bridge:
            await here.load.burst(1)
            await here.bridged.until_sequence(91 if is_lost else 61)
            assert bridge.runs[0].counters.shorter_streams == is_lost
    again, read = Seen(), here.bridged.messages[50:]
    # The consumer may have sent the lost messages again before the power cut.
    again.messages = read[-61:] if is_lost and moment == "read again" else read
    assert again.sequences == list(range(31, 92) if is_lost else range(51, 62))
    assert differing(again, here.native) == []


@pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])
async def test_messages_that_did_not_arrive_before_a_stop(
    version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The consumer has sent them to a connection that was lost, so its position is after them."""
    server, _, here = await _served(version, native_server, enduring_peer)
    async with cut_wire(server.url) as wire:
        settings = settings_for(wire.url, here.rule(start="first"), dialect="native")

        async def is_sent() -> bool:
            return bool((await here.durable())["delivered"]["stream_seq"] == 53)

        async def is_back() -> None:
            await until(lambda: "rule.drain_incomplete" in [line["event"] for line in log])
            wire.speak_again()
            wire.let_through()

        with structlog.testing.capture_logs() as log:
            async with running(settings) as bridge:
                await here.load.burst(50)
                await here.bridged.until_sequence(50)
                wire.hold_back()
                wire.fall_silent()
                await here.load.burst(3)
                await until(is_sent)
                wire.cut()
                await until(lambda: not bridge.connections["default"].client.is_connected)
                returning = asyncio.create_task(is_back())
            await returning
            async with running(settings):
                await here.load.burst(1)
                await here.bridged.until_sequence(54)
    assert here.bridged.sequences == list(range(1, 55))
    assert [line["after"] for line in log if line["event"] == "rule.position_restored"] == [50]


@by_turns("version, delivery", VERSIONS, ["at_least_once", "at_most_once"])
async def test_an_end_that_is_lost_before_a_stop(
    version: str, delivery: str, native_server: Servers, enduring_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule stops after the connection is back, and before it has compared the stream with what it read."""
    server, peer, here = await _served(version, native_server, enduring_peer)
    watch = OrderedReader._watch

    async def never(_: OrderedReader) -> None:
        await asyncio.Event().wait()

    async def is_done() -> bool:
        state = "ack_floor" if delivery == "at_least_once" else "delivered"
        return bool((await here.durable())[state]["stream_seq"] == 100)

    end = LostEnd(server, peer, "S")
    await here.load.burst(50)
    await end.sync()
    async with cut_wire(server.url) as wire:
        settings = settings_for(wire.url, here.rule(delivery=delivery, start="first"), dialect="native")
        monkeypatch.setattr(OrderedReader, "_watch", never)
        async with running(settings) as bridge:
            await here.load.burst(50)
            await here.bridged.until_sequence(100)
            await until(is_done)
            wire.hold_back()
            await end.lose(here.load.burst(70))
            wire.let_through()
            life = bridge.runs[0]._reader._life  # type: ignore[attr-defined]
            await until(lambda: sum(len(item) for item in life.items if isinstance(item, list)) == 20)
        monkeypatch.setattr(OrderedReader, "_watch", watch)
        async with running(settings):
            await here.load.burst(1)
            await here.bridged.until_sequence(121)
    assert here.bridged.sequences == [*range(1, 101), *range(51, 122)]
