"""Native copying through the sidecar while something changes: the rule, the lease, the servers, a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from nats_bridge.bridge.kinds.native_copy.run import NativeCopyRun
from nats_bridge.native_servers import NativeServer
from nats_bridge.native_servers.native_server import HOST
from tests.live.cut_wire import CutWire, cut_wire
from tests.live.native_copies import Pair, external, pair
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.reloading import Reloading, reloading
from tests.live.sidecar_process import SidecarProcess
from tests.live.sidecars import listeners_of
from tests.live.until import until

Servers = Callable[..., NativeServer]

PLAIN = {"kind": "republish", "name": "plain", "stream": "ORDERS", "republish": {"src": "none", "dest": "nowhere"}}
"""Another rule on the source's connection."""


class Gate:
    """A fence that a test closes for a while."""

    unsent_for = None

    def __init__(self) -> None:
        self.is_open = False
        self._opens = asyncio.Event()

    @property
    def holds_back(self) -> bool:
        return not self.is_open

    def open(self) -> None:
        self.is_open = True
        self._opens.set()

    async def opened(self) -> None:
        await self._opens.wait()


@asynccontextmanager
async def served(
    two: Pair, directory: Path, *rules: dict[str, Any], wire: CutWire | None = None
) -> AsyncIterator[tuple[Reloading, NativeCopyRun]]:
    """A sidecar with the usual rule, and others, whose configuration can change; perhaps with a wire to the source."""
    document = two.document(*rules or ({},))
    if wire is not None:
        document["connections"]["default"]["servers"] = [wire.url]
    (first, *_) = document["rules"]
    more = {"connections": document["connections"]}
    async with reloading("", directory, first, PLAIN, **more) as bridge:
        run = bridge.supervisor("orders").run
        assert isinstance(run, NativeCopyRun)
        await until(lambda: run.ready)
        yield bridge, run


async def make(two: Pair) -> None:
    await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
    await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})


async def mirror_error(two: Pair) -> str:
    """What the target's stream says of its mirror."""
    info = await two.at_target.api("STREAM.INFO.COPY")
    return str(info.get("mirror", {}).get("error", {}).get("description", ""))


async def test_a_stop_during_an_answer_leaves_nothing_on_the_sources_connection(
    native_server: Servers, raw_peer: OpenPeer, newest_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, newest_version) as two, cut_wire(two.source.url) as wire:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        # With a filter of the stream's own nothing is asked before the consumer.
        filtered = {"name": "ORDERS", "filter_subject": "orders.*", "external": external()}
        async with served(two, tmp_path, wire=wire) as (bridge, run):
            client = bridge.sidecar.connections["default"].client
            own = run._requests._subscription
            assert own is not None
            before = set(client._subs) - {int(own.sid)}
            wire.fall_silent()
            await two.at_target.create_stream(name="COPY", mirror=filtered)
            await until(lambda: len(client._subs) > len(before) + 1)
            await bridge.supervisor("orders").stop()
            assert set(client._subs) == before
            assert set(client._batches.routes) <= {b"%d" % sid for sid in before}
            wire.speak_again()


async def test_what_the_source_refuses_the_target_says(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        async with two.bridged() as sidecar:
            await until(lambda: sidecar.runs[0].ready)
            elsewhere = {"api": "bridge.orders.API", "deliver": "elsewhere"}
            await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": elsewhere})

            async def says(text: str) -> bool:
                return text in await mirror_error(two)

            await until(lambda: says("external.deliver is to be bridge.orders.deliver"))
            await two.at_target.api("STREAM.DELETE.COPY")
            await two.at_source.api("STREAM.DELETE.ORDERS")
            await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
            await until(lambda: says("stream not found"))
            assert sidecar.error is None


async def test_nothing_is_asked_under_a_closed_fence_and_other_rules_keep_their_connection(
    native_server: Servers, raw_peer: OpenPeer, newest_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, newest_version) as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        async with served(two, tmp_path) as (bridge, run):
            gate = Gate()
            run._context = replace(run._context, fence=gate)
            answering = asyncio.create_task(two.at_target.request_raw(b"bridge.orders.API.STREAM.INFO.ORDERS"))
            await until(lambda: bool(run._answering))
            two.at_target.publish(b"bridge.orders.fc.$JS.FC.ORDERS.x.y", b"")
            two.at_target.publish(b"bridge.orders.API.STREAM.INFO.OTHER", b"", b"", b"seen")
            await until(lambda: run.counters.refused_requests == 1)  # what came before is read
            connection = bridge.sidecar.connections["default"]
            assert await connection.flush()
            assert not answering.done()
            gate.open()
            answer = await answering
            assert answer is not None
            assert json.loads(answer)["config"]["name"] == "ORDERS"
            assert connection.reconnects == 0


async def test_a_rule_that_connects_leaves_alone_what_another_one_is_answering(
    native_server: Servers, raw_peer: OpenPeer, newest_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, newest_version) as two, cut_wire(two.source.url) as wire:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        async with served(two, tmp_path, wire=wire) as (_, run):
            wire.fall_silent()
            await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
            await until(lambda: bool(run._answering))
            async with two.bridged({"name": "another", "prefix": "bridge.another"}) as sidecar:
                (another,) = sidecar.runs
                assert isinstance(another, NativeCopyRun)
                await until(lambda: another.ready and not another._pending)  # it has seen the request as pending
                assert another.counters.woken == 0
            wire.speak_again()
            await two.at_source.store(b"orders.1")
            await two.reaches("COPY", 1)


async def test_a_watcher_of_all_deliveries_is_left_alone(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        seen = await two.at_target.collect("bridge.orders.deliver.>")
        await two.at_target.client.flush()
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"])
        async with two.bridged() as sidecar:
            await until(lambda: sidecar.runs[0].ready)
            await two.at_target.create_stream(name="COPY", mirror={"name": "ORDERS", "external": external()})
            await two.at_source.store(b"orders.1")
            await two.reaches("COPY", 1)
            assert sidecar.runs[0].counters.as_dict()["woken"] == 0
            assert not any(b">" in message[0] for message in seen.messages)


async def test_no_consumer_stays_when_the_server_that_copies_was_killed(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await make(two)
        async with served(two, tmp_path) as (bridge, run):
            client = bridge.sidecar.connections["default"].client
            await two.at_source.store(b"orders.0")
            await two.reaches("COPY", 1)
            subscriptions = len(client._batches.routes)
            await asyncio.to_thread(two.target.restart, kill=True)
            two.at_target = await raw_peer(two.target.url)
            await two.at_source.store(b"orders.1")
            await two.reaches("COPY", 2)

            # Natively, a server's consumers end with the interest in what they deliver.
            await until(lambda: len(client._batches.routes) == subscriptions)
            assert len(run._consumers) == 1


@pytest.mark.parametrize("cut", ["source", "leaf"])
async def test_a_cut_link_loses_and_doubles_nothing(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path, cut: str
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await make(two)
        far = two.source.url if cut == "source" else f"nats://{HOST}:{two.leaf_port}"
        async with cut_wire(far) as wire:
            if cut == "leaf":
                two.leaf_port = urlsplit(wire.url).port or 0
            async with served(two, tmp_path, wire=wire if cut == "source" else None) as (_, run):
                for turn in range(3):
                    for number in range(500):
                        two.at_source.publish(b"orders.%d" % (number % 7), b"%d %d" % (turn, number))
                    await two.reaches("COPY", 500 * turn + 100)
                    wire.cut()
                await two.at_source.store(b"orders.last")
                copies = await two.stored("COPY", 1501)
                assert [each.payload for each in copies[:-1]] == [
                    b"%d %d" % (t, n) for t in range(3) for n in range(500)
                ]
                assert run.counters.woken > 0


async def test_what_comes_while_a_source_asks_again_is_stored_once(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two, cut_wire(two.source.url) as wire:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*", "more.>"])
        await two.at_target.create_stream(name="COPY", sources=[{"name": "ORDERS", "external": external()}])
        async with served(two, tmp_path, wire=wire) as (_, run):
            await two.at_source.store(b"orders.first")
            await two.reaches("COPY", 1)
            # The source's server has not noticed when the sidecar is back: its consumer still delivers.
            woken, consumers = run.counters.woken, run.counters.consumers
            wire.cut()
            await until(lambda: run.counters.woken > woken)
            for number in range(200):
                two.at_source.publish(b"orders.%d" % (number % 7), b"%d" % number)
            await until(lambda: run.counters.consumers > consumers)
            await two.at_source.store(b"orders.last")
            copies = await two.ending_with("COPY", b"west.last.new")
            assert [each.payload for each in copies[1:-1]] == [b"%d" % number for number in range(200)]


async def test_a_rule_is_added_changed_and_removed_while_messages_come(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await make(two)
        document = two.document()
        more = {"connections": document["connections"]}
        (rule,) = document["rules"]
        changed = {**rule, "subject_transforms": [{"src": "orders.*", "dest": "east.{{wildcard(1)}}"}]}
        published = 0

        async def publish() -> None:
            nonlocal published
            while True:
                published += 1
                await two.at_source.store(b"orders.x", b"%d" % published)

        async with reloading("", tmp_path, PLAIN, **more) as bridge:
            connection = bridge.sidecar.connections["default"]
            subscriptions, listeners = len(connection.client._batches.routes), listeners_of(connection)
            publishing = asyncio.create_task(publish())
            for rules in ((PLAIN, rule), (PLAIN, changed), (PLAIN, rule)):
                await bridge.applied(*rules, **more)
                await two.reaches("COPY", published + 20)
            await bridge.applied(PLAIN, **more)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            assert (len(connection.client._batches.routes), listeners_of(connection)) == (subscriptions, listeners)
            last = int((await two.at_source.store(b"orders.last", b"last"))["seq"])
            await bridge.applied(PLAIN, rule, **more)
            copies = await two.stored("COPY", last)
            assert [each.sequence for each in copies] == list(range(1, last + 1))
            subjects = [each.subject for each in copies]
            runs = [each for n, each in enumerate(subjects) if n == 0 or subjects[n - 1] != each]
            assert runs == [b"west.x.new", b"east.x", b"west.x.new", b"west.last.new"]


async def test_a_sidecar_that_gets_a_signal_ends_well_while_messages_come(
    native_server: Servers, raw_peer: OpenPeer, twin_version: str, tmp_path: Path
) -> None:
    async with pair(native_server, raw_peer, twin_version) as two:
        await make(two)
        config = tmp_path / "bridge.yaml"
        config.write_text(json.dumps({**two.document(), "log": {"format": "json"}}), "utf-8")
        last = 0
        for _ in range(2):
            sidecar = await SidecarProcess.start(config)
            try:
                await sidecar.ready()
                for number in range(3000):
                    two.at_source.publish(b"orders.%d" % (number % 7), b"x" * 100)
                last += 3000
                await two.reaches("COPY", last - 2900)
                assert await sidecar.stop() == 0
                assert not [entry for entry in sidecar.entries if entry["level"] == "error"]
            finally:
                await sidecar.kill()
        sidecar = await SidecarProcess.start(config)
        try:
            copies = await two.stored("COPY", last)
            assert [each.sequence for each in copies] == list(range(1, last + 1))
        finally:
            await sidecar.kill()


async def test_a_header_that_2_10_stalls_at_natively_is_taken_out(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with pair(native_server, raw_peer, "2.10.27") as two:
        await two.at_source.create_stream(name="ORDERS", subjects=["orders.*"], duplicate_window=100_000_000)
        await two.at_target.create_stream(name="LOCAL", subjects=["local.*"], duplicate_window=100_000_000)
        await _one_id_twice(two.at_source, b"orders")
        await _one_id_twice(two.at_target, b"local")
        await two.at_target.create_stream(name="NATIVE", sources=[{"name": "LOCAL"}])
        source = {"name": "ORDERS", "external": external()}
        async with two.bridged() as sidecar:
            await two.at_target.create_stream(name="COPY", sources=[source])
            # It asks again and again for the second message, and stores nothing behind the first.
            await until(lambda: sidecar.runs[0].counters.as_dict()["consumers"] >= 3)
            assert await two.last_sequence("COPY") == 1
            assert await two.last_sequence("NATIVE") == 1
        async with two.bridged({"remove_headers": ["Nats-Msg-Id"]}):
            copies = await two.stored("COPY", 3)
            assert [each.payload for each in copies] == [b"1", b"2", b"3"]


async def _one_id_twice(peer: RawPeer, subject: bytes) -> None:
    """Three messages; the second has the id of the first, which its stream has forgotten."""
    block = b"NATS/1.0\r\nNats-Msg-Id: same\r\nA: b\r\n\r\n"
    await peer.store(subject + b".1", b"1", block)

    async def forgotten() -> bool:
        return "duplicate" not in await peer.store(subject + b".2", b"2", block)

    await until(forgotten)
    await peer.store(subject + b".3", b"3")
