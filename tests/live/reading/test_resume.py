"""What a rule's position promises across stops and kills of the sidecar's process."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.jetstream_api import JetStreamApi
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.consumer_plan import ConsumerPlan, consumer_owner
from nats_bridge.consuming.reader import Reader
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.settings import load
from tests.live.commands import Ran, command_here
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Load, Scene, differing, document, sidecar_processes
from tests.live.sidecars import failure_of, running, settings_for
from tests.live.until import until


async def scene(url: str, name: str, raw_peer: OpenPeer) -> Scene:
    return await Scene.make(await raw_peer(url), name)


async def all_is_republished(here: Scene, url: str, rule: dict[str, Any]) -> None:
    """Store one more message; a next sidecar, in this process, republishes what is left and that."""
    async with running(settings_for(url, rule, dialect="native")):
        await here.bridged.until_sequence(await here.end())


# Both ways on every version, but each version and each way once in `make test`: a process starts for a second.
@pytest.mark.parametrize(
    ("version", "delivery"),
    [
        ("2.9.10", "at_least_once"),
        ("2.15.3", "at_most_once"),
        *(
            pytest.param(*more, marks=pytest.mark.exhaustive)
            for more in [
                ("2.9.10", "at_most_once"),
                ("2.10.27", "at_most_once"),
                ("2.10.27", "at_least_once"),
                ("2.15.3", "at_least_once"),
            ]
        ),
    ],
)
async def test_clean_stops_under_load_lose_and_double_nothing(
    version: str, delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(version)
    here = await scene(url, unique_name("stops"), raw_peer)
    publisher = await raw_peer(url)
    load = Load(publisher, here.name)
    rule = here.rule(delivery=delivery, start="first")
    async with sidecar_processes(tmp_path) as start:
        flowing = asyncio.create_task(load.flow(here.bridged))
        for _ in range(2):
            process = await start(url, rule)
            await process.ready()
            await here.bridged.count(len(here.bridged.messages) + 500)
            assert await process.stop() == 0, process.log
        flowing.cancel()
        await asyncio.gather(flowing, return_exceptions=True)
        await publisher.client.flushed()
        await all_is_republished(here, url, rule)
    end = here.bridged.newest
    assert here.bridged.sequences == list(range(1, end + 1))
    assert differing(here.bridged, here.native) == []
    (consumer,) = await here.consumers()
    assert consumer["name"] == "nats-bridge_rule"
    position = consumer["ack_floor" if delivery == "at_least_once" else "delivered"]
    assert position["stream_seq"] == end


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_kills_at_random_moments_under_load(
    delivery: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    url = await servers.url("2.15.3")
    here = await scene(url, unique_name("kills"), raw_peer)
    chance = random.Random(delivery)
    rule = here.rule(delivery=delivery, start="first")
    async with sidecar_processes(tmp_path) as start:
        for _ in range(2):
            process = await start(url, rule)
            await process.ready()
            seen = len(here.bridged.messages)
            burst = asyncio.create_task(here.load.burst(3000))
            await here.bridged.count(seen + chance.randrange(1, 2500))
            await process.kill()
            await burst
        await all_is_republished(here, url, rule)
    end = here.bridged.newest
    came = here.bridged.sequences
    first = list(dict.fromkeys(came))
    record_property("messages", end)
    record_property("lost", end - len(first))
    record_property("duplicated", len(came) - len(first))
    assert differing(here.bridged, here.native) == []
    assert first == sorted(first)
    if delivery == "at_most_once":
        assert came == first
    else:
        assert first == list(range(1, end + 1))
        consumer = await here.durable()
        assert consumer["ack_floor"]["stream_seq"] == end
        assert consumer["num_ack_pending"] == 0


async def test_a_kill_while_starting_moves_no_position(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await scene(url, unique_name("starting"), raw_peer)
    await here.load.burst(2000)
    rule = here.rule(start="first", delivery="at_least_once")
    async with sidecar_processes(tmp_path) as start:
        for event in ("sidecar.starting", "rule.ready"):
            process = await start(url, rule)
            await process.said(event)
            await process.kill()
        await all_is_republished(here, url, rule)
    assert list(dict.fromkeys(here.bridged.sequences)) == list(range(1, here.bridged.newest + 1))


async def test_a_second_process_is_refused_until_the_first_is_killed(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    here = await scene(url, unique_name("second"), raw_peer)
    rule = here.rule()
    async with sidecar_processes(tmp_path) as start:
        first = await start(url, rule)
        await first.ready()
        refused = await failure_of(settings_for(url, rule))
        assert f"consumer 'nats-bridge_rule' of stream '{here.name}' is in use by another process" in str(refused)
        # Another name would be a second rule, which publishes everything again.
        assert "set `leadership: {}` for both" in str(refused)
        assert getattr(refused, "exit_code", None) == 2
        # The first one has not noticed anything.
        await here.load.burst(10)
        await here.bridged.count(10)
        first.send(signal.SIGKILL)
        await all_is_republished(here, url, rule)
    assert here.bridged.sequences == list(range(1, here.bridged.newest + 1))
    assert differing(here.bridged, here.native) == []


async def test_durable_false_leaves_nothing_behind(
    twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url(twin_version)
    here = await scene(url, unique_name("nothing"), raw_peer)
    await here.load.burst(100)
    rule = here.rule(durable=False, start="first")

    async def all_came(times: int) -> None:
        await here.bridged.count(times * 100)
        (consumer,) = await here.consumers()
        assert "durable_name" not in consumer["config"]

    async with running(settings_for(url, rule, dialect="native")):
        await all_came(1)
    assert await here.consumers() == []
    async with sidecar_processes(tmp_path) as start:
        process = await start(url, rule)
        await all_came(2)
        await process.kill()
    # The server removes it after the consumer's inactive_threshold; nothing shows when.
    await until(lambda: _nothing_left(here))
    assert differing(here.bridged, here.native) == []


async def test_clean_removes_the_durables_of_the_named_rules(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.15.3")
    here = await scene(url, unique_name("clean"), raw_peer)
    rules = [here.rule() | {"name": name} for name in ("one", "two", "three")]
    config = tmp_path / "bridge.yaml"
    config.write_text(json.dumps(document(url, *rules)), "utf-8")
    async with running(load(config)):
        pass
    assert {c["name"] for c in await here.consumers()} == {f"nats-bridge_{r['name']}" for r in rules}
    cleaned = await command_here("clean", "-c", str(config), "two")
    assert cleaned == Ran(0, f"rule 'two': removed consumer 'nats-bridge_two' of stream '{here.name}'\n", "")
    assert {c["name"] for c in await here.consumers()} == {"nats-bridge_one", "nats-bridge_three"}
    ran = await command_here("clean", "-c", str(config))
    assert (ran.code, ran.out.count("removed"), ran.out.count("nothing to remove")) == (0, 2, 1)
    assert await here.consumers() == []


async def _nothing_left(here: Scene) -> bool:
    return not await here.consumers()


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_subscription_to_everything_is_not_taken_for_another_process(
    delivery: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url = await servers.url(twin_version)
    here = await scene(url, unique_name("watched"), raw_peer)
    rule = here.rule(delivery=delivery)
    everything = await here.peer.client.subscribe(">")
    for _ in range(2):
        async with running(settings_for(url, rule, dialect="native")):
            await here.load.burst(50)
            await here.bridged.count(here.load.published)
        await here.load.burst(50)
    await everything.unsubscribe()
    await all_is_republished(here, url, rule)
    assert here.bridged.sequences == list(range(1, here.bridged.newest + 1))
    assert differing(here.bridged, here.native) == []
    assert [consumer["name"] for consumer in await here.consumers()] == ["nats-bridge_rule"]


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_consumer_that_was_deleted_is_reported(
    delivery: str, twin_version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """Servers keep the position nowhere else: what came since is skipped, unless `start` says where it begins."""
    url = await servers.url(twin_version)
    here = await scene(url, unique_name("gone"), raw_peer)
    with structlog.testing.capture_logs() as log:
        async with running(settings_for(url, here.rule(delivery=delivery), dialect="native")):
            await here.load.burst(20)
            await here.bridged.count(20)
        assert not [line for line in log if line["event"] == "rule.begins_new"]
        assert (await here.peer.api(f"CONSUMER.DELETE.{here.name}.nats-bridge_rule"))["success"]
        await here.load.burst(50)
        async with running(settings_for(url, here.rule(delivery=delivery), dialect="native")):
            (line,) = [line for line in log if line["event"] == "rule.begins_new"]
    assert (line["log_level"], line["after"]) == ("warning", 70)
    assert (await here.peer.api(f"CONSUMER.DELETE.{here.name}.nats-bridge_rule"))["success"]
    await all_is_republished(here, url, here.rule(delivery=delivery, start={"sequence": 21}))
    assert here.bridged.sequences == list(range(1, 72))


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
async def test_a_position_that_moves_before_the_takeover_is_read_again(
    delivery: str,
    twin_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a rolling update: another process works between the next one's look at the position and its takeover."""
    url = await servers.url(twin_version)
    here = await scene(url, unique_name("moves"), raw_peer)
    settings = settings_for(url, here.rule(delivery=delivery), dialect="native")
    take_over, held = RuleConsumer.take_over, False

    async with running(settings):
        await here.load.burst(100)
        await here.bridged.count(100)

    async def after_another_process(consumer: RuleConsumer, handled: int | None) -> dict[str, Any] | None:
        nonlocal held
        if not held:
            held = True
            async with running(settings):
                await here.load.burst(100)
                await here.bridged.count(200)
        return await take_over(consumer, handled)

    monkeypatch.setattr(RuleConsumer, "take_over", after_another_process)
    second = Sidecar(settings)
    await second.start()
    try:
        await until(lambda: bool(second.runs) and second.runs[0].ready)
        await here.load.burst(100)
        await here.bridged.count(300)
    finally:
        await second.stop()
    assert here.bridged.sequences == list(range(1, 301))
    assert differing(here.bridged, here.native) == []


async def test_a_message_that_was_read_again_is_not_repeated_after_a_clean_stop(
    twin_version: str,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = await servers.url(twin_version)
    here = await scene(url, unique_name("again"), raw_peer)
    rule = here.rule(delivery="at_least_once")
    on_batch, is_losing = Reader._on_batch, False

    def lose(reader: Reader, batch: list[Delivered]) -> None:
        if not is_losing:
            on_batch(reader, batch)

    monkeypatch.setattr(Reader, "_on_batch", lose)
    async with running(settings_for(url, rule, dialect="native")):
        await here.load.burst(5)
        await here.bridged.count(5)
        is_losing = True
        await here.load.burst(5)
        await here.bridged.count(10)  # a heartbeat has named them
        is_losing = False
    await all_is_republished(here, url, rule)
    assert here.bridged.sequences == list(range(1, 12))


@pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])
async def test_a_change_of_the_delivery_mode_keeps_the_position(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """A process deletes the consumer of the former mode, and is killed before it creates another one."""
    url = await servers.url(version)
    here = await Scene.make(await raw_peer(url), unique_name("mode"))
    await here.load.burst(20)
    async with running(settings_for(url, here.rule(start="first"), dialect="native")):
        await here.bridged.until_sequence(20)
    plan = ConsumerPlan(
        stream=here.name,
        filters=(),
        headers_only=False,
        position="confirmed",
        durable_name="nats-bridge_rule",
        owner=consumer_owner("nats-bridge", "rule"),
        rule="rule",
        description="",
    )
    killed = RuleConsumer(JetStreamApi(here.peer.client, "default"), plan)
    killed.inbox = unique_name("inbox")
    position = await killed.position()
    assert position == 20
    assert await killed.take_over(position) is None
    assert "error" in await here.durable()
    await here.load.burst(5)
    async with running(settings_for(url, here.rule(delivery="at_least_once"), dialect="native")):
        await here.bridged.until_sequence(25)
    assert here.bridged.sequences == list(range(1, 26))
