"""Deliveries that are lost between the server and the rule, or come twice, while the connection stands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client import delivery_limit
from nats_bridge.client.wire import Delivered
from nats_bridge.consuming.ordered_reader import OrderedReader
from nats_bridge.consuming.replay import Replay
from nats_transforms import header_block
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecar_process import Scene
from tests.live.sidecars import lead_lost, running, settings_for
from tests.live.until import LIMIT, until

Payloads = Callable[[bytes], bool]


class _Way:
    """The way from the wire to the first rule's reader: some deliveries, or all heartbeats, are lost on it; or all
    deliveries come twice.
    """

    def __init__(
        self,
        bridge: Sidecar,
        *,
        loses: Payloads = lambda _: False,
        loses_beats: bool = False,
        doubles: bool = False,
        held: list[Delivered] | None = None,
    ) -> None:
        subscription = bridge.runs[0]._reader._subscription  # type: ignore[attr-defined]
        routes = subscription.client._batches.routes
        self._loses = loses
        self._held = held
        self._loses_beats = loses_beats
        self._doubles = doubles
        self._on = routes[subscription.sid]
        self.lost = 0
        self.beats: list[int] = []  # the consumer sequences in heartbeats
        routes[subscription.sid] = replace(self._on, on_batch=self._on_batch, on_control=self._on_control)

    def _on_batch(self, batch: list[Delivered]) -> None:
        kept = [message for message in batch if not self._loses(message[3])]
        self.lost += len(batch) - len(kept)
        if self._held is not None:
            self._held += [message for message in batch if message not in kept]
        if kept:
            self._on.on_batch(kept)
        if kept and self._doubles:
            self._on.on_batch(kept)

    def deliver_held(self) -> None:
        """Deliver what was lost until now."""
        assert self._held is not None
        self._on.on_batch(self._held)

    def _on_control(self, reply: bytes, block: bytes) -> None:
        if self._loses_beats:
            return
        self._on.on_control(reply, block)
        self.beats.append(int(header_block.read(block, b"Nats-Last-Consumer") or 0))


async def _scene(servers: SharedServers, raw_peer: OpenPeer, name: str, **config: Any) -> tuple[str, Scene]:
    url = await servers.url("2.15.3")
    return url, await Scene.make(await raw_peer(url), name, **config)


async def _stored(here: Scene, *payloads: bytes) -> None:
    for payload in payloads:
        await here.peer.store(f"{here.name}.x".encode(), payload)


def _counted(bridge: Sidecar, *names: str) -> list[int]:
    counters = bridge.runs[0].counters.as_dict()
    return [counters[name] for name in names]


MODES = ["at_most_once", "at_least_once"]


@pytest.mark.parametrize("delivery", MODES)
async def test_deliveries_that_are_missing_are_read_again(
    delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, here = await _scene(servers, raw_peer, unique_name("missing"))
    async with running(settings_for(url, here.rule(delivery=delivery))) as bridge:
        way = _Way(bridge, loses=lambda payload: payload in (b"2", b"3"), loses_beats=True)
        await _stored(here, b"1", b"2", b"3", b"4")
        await here.bridged.until_sequence(4)
        assert way.lost == 2
        assert _counted(bridge, "gaps", "recovered", "lost") == [1, 2, 0]
    assert here.bridged.sequences == [1, 2, 3, 4]


async def test_a_last_delivery_that_is_missing_is_missed_at_the_next_heartbeat(
    quick_heartbeats: None, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, here = await _scene(servers, raw_peer, unique_name("beat"))
    async with running(settings_for(url, here.rule())) as bridge:
        way = _Way(bridge, loses=lambda payload: payload == b"3")
        await _stored(here, b"1", b"2", b"3")
        await until(lambda: 3 in way.beats)
        await bridge.runs[0]._reader.idle()  # type: ignore[attr-defined]
        assert _counted(bridge, "received", "recovered", "lost") == [3, 1, 0]
        await here.bridged.until_sequence(3)
    assert here.bridged.sequences == [1, 2, 3]


async def test_messages_removed_before_they_are_read_again_count_as_lost(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, here = await _scene(servers, raw_peer, unique_name("gone"))
    async with running(settings_for(url, here.rule())) as bridge:
        way = _Way(bridge, loses=lambda payload: payload in (b"2", b"3"), loses_beats=True)
        await _stored(here, b"1", b"2", b"3")
        await until(lambda: way.lost == 2)  # what is deleted before the consumer reaches it is no loss
        await here.peer.api(f"STREAM.MSG.DELETE.{here.name}", {"seq": 3})
        await _stored(here, b"4")
        await here.bridged.until_sequence(4)
        assert _counted(bridge, "recovered", "lost") == [1, 1]
    assert here.bridged.sequences == [1, 2, 4]


@pytest.mark.parametrize("delivery", MODES)
async def test_what_is_delivered_twice_is_republished_once(
    delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, here = await _scene(servers, raw_peer, unique_name("twice"))
    async with running(settings_for(url, here.rule(delivery=delivery))) as bridge:
        _Way(bridge, doubles=True)
        for number in range(1, 4):
            await _stored(here, b"%d" % number)
            await here.bridged.until_sequence(number)
        await until(lambda: _counted(bridge, "repeated") == [3])
    assert here.bridged.sequences == [1, 2, 3]


async def test_a_clean_stop_reads_again_what_was_sent_and_did_not_arrive(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    """For the server's consumer, sent is done: it would never send them again."""
    url, here = await _scene(servers, raw_peer, unique_name("stop"))
    async with running(settings_for(url, here.rule())) as bridge:
        way = _Way(bridge, loses=lambda payload: payload in (b"2", b"3"))
        await _stored(here, b"1", b"2", b"3")
        await until(lambda: way.lost == 2)
        run: Any = bridge.runs[0]
    await here.bridged.until_sequence(3)
    assert here.bridged.sequences == [1, 2, 3]
    assert run.counters.as_dict()["lost"] == 0


async def test_a_limited_consumer_continues_when_all_sent_ahead_is_missing(
    quick_heartbeats: None,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for an acknowledgement, and no later delivery can cause one."""
    monkeypatch.setattr(delivery_limit, "_CALM", 3600.0)  # the limit stays
    url, here = await _scene(servers, raw_peer, unique_name("window"))
    async with running(settings_for(url, here.rule(durable=False))) as bridge:
        run: Any = bridge.runs[0]
        bridge.connections["default"].api.delivery_limit.messages = 4
        await until(lambda: run._reader.consumer.limit == 4 and run.ready)
        payloads = [b"%d" % number for number in range(1, 11)]
        way = _Way(bridge, loses=lambda payload: payload in payloads[:4])
        await _stored(here, *payloads)
        await here.bridged.until_sequence(10)
        assert way.lost == 4
        assert _counted(bridge, "recovered", "lost") == [4, 0]
    assert here.bridged.sequences == list(range(1, 11))


@pytest.mark.parametrize(
    ("lost", "silent"),
    [
        pytest.param(False, False, id="as another rule raises it"),
        pytest.param(True, False, id="as the connection is lost"),
        pytest.param(True, True, id="as the connection is lost when heartbeats are missing"),
    ],
)
async def test_a_limit_that_changes_while_the_consumer_is_checked(
    lost: bool,
    silent: bool,
    quick_heartbeats: None,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An ephemeral consumer is recreated; its configuration cannot be set again under a durable's name."""
    monkeypatch.setattr(delivery_limit, "_CALM", 3600.0)
    url, here = await _scene(servers, raw_peer, unique_name("limit"))
    resume_point, changed = OrderedReader._resume_point, list[int]()

    async def late(self: OrderedReader, last: int) -> int | None:
        if not changed:
            changed.append(last)
            self.connection.api.delivery_limit.messages = 4
            if lost:
                self._disconnected()
                self._reconnected()
        return await resume_point(self, last)

    async with running(settings_for(url, here.rule(durable=False))) as bridge:
        run: Any = bridge.runs[0]
        monkeypatch.setattr(OrderedReader, "_resume_point", late)
        if silent:
            await run._reader._subscription.release()
            run._reader._last_read = -LIMIT

            async def unbound() -> bool:
                return not (await run._reader.consumer.info()).get("push_bound")

            await until(unbound)
        run._reader._reconnected()
        await until(lambda: run._reader.consumer.limit == 4 and run.ready)
        await _stored(here, *(b"%d" % number for number in range(1, 11)))
        await here.bridged.until_sequence(10)
    assert here.bridged.sequences == list(range(1, 11))


@pytest.mark.parametrize("read_again", [False, True])
async def test_what_is_read_again_when_the_lead_is_lost_is_in_doubt(
    read_again: bool, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has sent it, so the next leader does not read it; what was written from there is not in doubt."""
    url, here = await _scene(servers, raw_peer, unique_name("cut"))
    between, waits = Replay.between, asyncio.Event()

    async def held(replay: Replay, first: int, last: int) -> AsyncGenerator[list[Delivered], None]:
        if read_again:
            async with contextlib.aclosing(between(replay, first, last)) as batches:
                async for batch in batches:
                    yield batch
        waits.set()
        await asyncio.Event().wait()

    async with running(settings_for(url, here.rule())) as bridge:
        way = _Way(bridge, loses=lambda payload: payload in (b"2", b"3"), loses_beats=True)
        monkeypatch.setattr(Replay, "between", held)
        run: Any = bridge.runs[0]
        await _stored(here, b"1", b"2", b"3", b"4")
        await asyncio.wait_for(waits.wait(), LIMIT)
        await _stored(here, b"5")
        await until(lambda: len(run._reader._life.queue) == 1)
        assert way.lost == 2
        await until(lambda: not run._delivery.has_work)
        monkeypatch.setattr(Replay, "between", between)
        await lead_lost(bridge)
        assert run.counters.as_dict()["in_doubt"] == (2 if read_again else 4)


async def test_a_last_delivery_read_again_at_a_lost_lead_is_in_doubt(
    quick_heartbeats: None,
    servers: SharedServers,
    unique_name: Name,
    raw_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, here = await _scene(servers, raw_peer, unique_name("beat"))
    between, waits = Replay.between, asyncio.Event()

    async def held(*_: object) -> AsyncGenerator[list[Delivered], None]:
        waits.set()
        await asyncio.Event().wait()
        yield []

    async with running(settings_for(url, here.rule())) as bridge:
        _Way(bridge, loses=lambda payload: payload in (b"2", b"3"))
        monkeypatch.setattr(Replay, "between", held)
        await _stored(here, b"1", b"2", b"3")
        await asyncio.wait_for(waits.wait(), LIMIT)
        run: Any = bridge.runs[0]
        await until(lambda: not run._delivery.has_work)
        monkeypatch.setattr(Replay, "between", between)
        await lead_lost(bridge)
        assert run.counters.as_dict()["in_doubt"] == 2


@pytest.mark.parametrize("delivery", MODES)
async def test_deliveries_of_a_stream_that_was_recreated_since_are_dropped(
    delivery: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read from a lost connection, after the loss was known, and have sequences of the new stream."""
    # In memory: a file store that is created right behind its deletion may hold the old messages.
    url, here = await _scene(servers, raw_peer, unique_name("late"), storage="memory")
    held: list[Delivered] = []
    async with running(settings_for(url, here.rule(delivery=delivery))) as bridge:
        way = _Way(bridge, loses=lambda payload: payload.startswith(b"late"), held=held)
        recreated = OrderedReader._stream_recreated

        async def late(reader: OrderedReader, stream: dict[str, Any], lives: int) -> None:
            way.deliver_held()
            await recreated(reader, stream, lives)

        monkeypatch.setattr(OrderedReader, "_stream_recreated", late)
        await _stored(here, b"1", b"2", b"3", b"late 4", b"late 5")
        await until(lambda: len(held) == 2)
        await here.peer.recreate_stream(here.name)
        await _stored(here, b"new 1", b"new 2", b"new 3")
        await here.bridged.count(6)
        await _stored(here, b"new 4", b"new 5", b"new 6")
        await here.bridged.until_sequence(6)
        assert _counted(bridge, "recreated_streams", "shorter_streams") == [1, 0]
    assert [message[3] for message in here.bridged.messages] == [
        *(b"1", b"2", b"3"),
        *(b"new %d" % number for number in range(1, 7)),
    ]
