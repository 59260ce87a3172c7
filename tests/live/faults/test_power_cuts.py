"""A server loses power and with it the end of its streams: a rule notices, resumes at what is left, and loses nothing.

Each time, 50 of 100 messages are lost, and the next ones are stored under their sequences before the sidecar is back:
fewer than were lost, or more, so that the stream looks longer than what was read of it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.consuming.rule_consumer import RuleConsumer
from nats_bridge.errors import ApiError, RuleRefusedError
from tests.live.copies import Copies
from tests.live.cut_wire import cut_wire
from tests.live.faults.power_cut import PowerCut
from tests.live.raw_messages import OpenPeer, connected
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import Load, Scene, Seen, differing
from tests.live.sidecars import running, settings_for
from tests.live.tiers import by_turns
from tests.live.until import until

pytestmark = pytest.mark.usefixtures("quick_heartbeats", "quick_reconnects")

KEPT, LOST = 50, 50
MORE = 70
END = KEPT + LOST


@pytest.mark.parametrize(
    ("delivery", "following"),
    [
        ("at_most_once", MORE),
        ("at_least_once", 20),
        pytest.param("at_most_once", 20, marks=pytest.mark.exhaustive),
        pytest.param("at_least_once", MORE, marks=pytest.mark.exhaustive),
    ],
)
async def test_republish(
    delivery: str, following: int, newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    async with _half_lost(delivery, following, newest_version, native_server, enduring_peer) as (here, power, bridge):
        await here.native.count(KEPT + LOST + following)
        power.back()
        await here.bridged.count(KEPT + LOST + following)
        again = list(range(KEPT + 1, KEPT + following + 1))
        assert here.bridged.sequences == [*range(1, KEPT + LOST + 1), *again]
        # The predecessors of the new messages were read again.
        here.bridged.messages, here.native.messages = (
            seen.messages[KEPT + LOST :] for seen in (here.bridged, here.native)
        )
        assert differing(here.bridged, here.native) == []
        assert bridge.runs[0].counters.shorter_streams == 1


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_a_lost_end_counts_once_though_a_check_gets_no_answer(
    delivery: str,
    newest_version: str,
    native_server: Servers,
    enduring_peer: OpenPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    move_back = RuleConsumer.move_back

    async def unanswered(*_: Any) -> None:
        monkeypatch.setattr(RuleConsumer, "move_back", move_back)
        raise ApiError("no answer", description="timeout", retriable=True)

    monkeypatch.setattr(RuleConsumer, "move_back", unanswered)
    async with _half_lost(delivery, MORE, newest_version, native_server, enduring_peer) as (here, power, bridge):
        power.back()
        await here.bridged.count(KEPT + LOST + MORE)
        assert here.bridged.sequences == [*range(1, KEPT + LOST + 1), *range(KEPT + 1, KEPT + MORE + 1)]
        assert bridge.runs[0].counters.shorter_streams == 1


@by_turns("version, delivery", ["2.9.10", "2.10.27", "2.15.3"], ["at_least_once", "at_most_once"])
async def test_a_deleted_message_under_the_sequence_of_the_last_lost_one(
    version: str, delivery: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """Then nothing is left to compare with the last message read, and the ones before it show the loss."""
    async with _half_lost(delivery, MORE, version, native_server, enduring_peer) as (here, power, bridge):
        deleted, end = range(KEPT + LOST - 2, KEPT + LOST + 3), KEPT + MORE
        await here.peer.delete_messages("S", deleted)
        power.back()
        await here.bridged.count(KEPT + LOST + MORE - len(deleted))
        again = [sequence for sequence in range(KEPT + 1, end + 1) if sequence not in deleted]
        assert here.bridged.sequences == [*range(1, KEPT + LOST + 1), *again]
        assert bridge.runs[0].counters.shorter_streams == 1


async def test_a_lost_message_is_not_acknowledged(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The acknowledgement would hold for the message that has its sequence now, if the sidecar was killed then."""
    async with _half_lost("at_least_once", 20, newest_version, native_server, enduring_peer) as (here, power, _):
        acks = await here.peer.collect("$JS.ACK.S.>")
        power.back()
        await here.bridged.count(KEPT + LOST + 20)
        await _acknowledged(here, KEPT + 20)
    sequences = {int(subject.split(b".")[-4]) for subject, *_ in acks.messages}
    assert sequences
    assert max(sequences) == KEPT + 20


@asynccontextmanager
async def _half_lost(
    delivery: str, following: int, version: str, native_server: Servers, enduring_peer: OpenPeer
) -> AsyncIterator[tuple[Scene, PowerCut, Sidecar]]:
    """A rule whose stream has lost messages that it republished, and has others now; its connection is still cut."""
    async with native_server(version) as server:
        peer = await enduring_peer(server.url)
        here = await Scene.make(peer, "S")

        async def done(messages: int) -> None:
            await here.bridged.count(messages)
            if delivery == "at_least_once":  # messages in doubt would be written again
                await _acknowledged(here, messages)

        rule = here.rule(start="first", delivery=delivery)
        async with PowerCut.of(server, peer) as power, running(settings_for(power.url, rule)) as bridge:
            await _lose_half(power, lambda _, messages: here.load.burst(messages), done)
            await here.load.burst(following)
            yield here, power, bridge


async def _acknowledged(here: Scene, sequence: int) -> None:
    """Wait until the rule has acknowledged everything up to a sequence."""

    async def is_acknowledged() -> bool:
        return bool((await here.durable())["ack_floor"]["stream_seq"] == sequence)

    await until(is_acknowledged)


async def _lose_half(
    power: PowerCut, store: Callable[[int, int], Awaitable[None]], arrived: Callable[[int], Awaitable[None]]
) -> None:
    """Store messages that the server keeps and, when all of them have arrived, others that it forgets."""
    await store(1, KEPT)
    await arrived(KEPT)
    await power.sync()
    await store(KEPT + 1, LOST)
    await arrived(KEPT + LOST)
    await power.lose()


def _answered(here: Copies, bridge: Sidecar) -> Callable[[int], Awaitable[None]]:
    """Wait until the target holds so many messages, and the rule knows it: unanswered copies would be sent again."""

    async def answered(messages: int) -> None:
        await here.holds(messages)
        await until(lambda: not bridge.runs[0].has_work)

    return answered


async def _numbered(here: Copies, first: int, messages: int) -> None:
    """Messages with ids of their publisher."""
    for number in range(first, first + messages):
        block = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % number
        await here.peer.store(b"%b.s%d" % (here.name.encode(), number % 7), b"%d" % number, block)


@pytest.mark.parametrize(
    ("with_ids", "following", "deleted"),
    [
        (False, MORE, range(0)),
        (True, MORE, range(0)),
        (False, MORE, range(END - 2, END + 3)),
        (True, MORE, range(END - 2, END + 3)),
        pytest.param(False, 20, range(0), marks=pytest.mark.exhaustive),
    ],
)
async def test_the_source_of_copies(
    with_ids: bool, following: int, deleted: range, newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """Of the new messages, some are deleted before the check, that under the sequence of the last copied one too."""
    async with native_server(newest_version) as server, native_server(newest_version) as target:
        peer = await enduring_peer(server.url)
        here = await Copies.make(peer, "S", target_peer=await enduring_peer(target.url))
        load = Load(peer, "S")

        async def store(first: int, messages: int) -> None:
            await (_numbered(here, first, messages) if with_ids else load.burst(messages))

        async with PowerCut.of(server, peer) as power:
            connections = {"default": {"servers": [target.url]}, "source": {"servers": [power.url]}}
            rule = here.rule(entry={"from": "source"})
            async with running(settings_for(target.url, rule, connections=connections)) as bridge:
                await _lose_half(power, store, _answered(here, bridge))
                await store(KEPT + LOST + 1, following)
                await peer.delete_messages("S", deleted)
                power.back()
                await here.holds(END + following - len(deleted))
                again = [sequence for sequence in range(KEPT + 1, KEPT + following + 1) if sequence not in deleted]
                assert await here.source_sequences() == [*range(1, END + 1), *again]
                assert bridge.supervisors[0].counters()["shorter_streams"] == 1


async def test_a_lost_end_counts_if_later_messages_are_deleted_before_a_round(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The reader notices it, while the target does not answer. Afterwards the source does not show it."""
    async with native_server(newest_version) as server, native_server(newest_version) as target:
        peer = await enduring_peer(server.url)
        here = await Copies.make(peer, "S", target_peer=await enduring_peer(target.url))
        load = Load(peer, "S")
        async with PowerCut.of(server, peer) as power, cut_wire(target.url) as wire:
            connections = {"default": {"servers": [wire.url]}, "source": {"servers": [power.url]}}
            rule = here.rule(entry={"from": "source"})
            async with running(settings_for(wire.url, rule, connections=connections)) as bridge:
                await _lose_half(power, lambda _, messages: load.burst(messages), here.holds)
                await load.burst(MORE)
                wire.fall_silent()
                power.back()
                await until(lambda: bridge.supervisors[0].counters()["shorter_streams"] == 1)
                await peer.delete_messages("S", range(KEPT + 1, END + 1))
                wire.speak_again()
                await here.holds(KEPT + MORE)
                assert await here.source_sequences() == list(range(1, KEPT + MORE + 1))
                assert bridge.supervisors[0].counters()["shorter_streams"] == 1


@pytest.mark.parametrize("others", [MORE, pytest.param(0, marks=pytest.mark.exhaustive)])
async def test_the_target_of_copies(
    others: int, newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """`others` are messages of another client, stored under the sequences of copies that were lost."""
    async with native_server(newest_version) as server, native_server(newest_version) as target:
        peer, target_peer = await enduring_peer(server.url), await enduring_peer(target.url)
        here = await Copies.make(peer, "S", target_peer=target_peer)
        load = Load(peer, "S")
        async with PowerCut.of(target, target_peer) as power:
            connections = {"default": {"servers": [power.url]}, "source": {"servers": [server.url]}}
            rule = here.rule(entry={"from": "source"})
            async with running(settings_for(power.url, rule, connections=connections)) as bridge:
                await _lose_half(power, lambda _, messages: load.burst(messages), _answered(here, bridge))
                for _ in range(others):
                    await target_peer.store(f"{here.target}.other".encode())
                power.back()
                await here.holds(KEPT + LOST + others)
                copies = [message for message in await here.stored() if not message.subject.endswith(b".other")]
                assert [int(message.payload) for message in copies] == list(range(1, KEPT + LOST + 1))
                assert bridge.supervisors[0].counters()["shorter_targets"] == 1
                assert bridge.supervisors[0].counters()["out_of_order"] == 0


async def test_a_target_that_lost_all_copies(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """Copies that were in flight are stored before the rule notices, so they have no gap."""
    async with _in_flight_after_a_loss(0, 3, newest_version, native_server, enduring_peer) as (here, bridge):
        await here.holds(LOST + 3)
        assert await here.source_sequences() == [LOST + 1, LOST + 3, *range(1, LOST + 1), LOST + 2]
        counters = bridge.supervisors[0].counters()
        assert (counters["shorter_targets"], counters["duplicates"]) == (1, 0)


async def test_newer_values_stay_in_a_target_that_lost_all_copies(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The source still holds older messages of the same subjects."""
    limit = {"max_msgs_per_subject": 1}
    async with _in_flight_after_a_loss(0, 3, newest_version, native_server, enduring_peer, **limit) as (here, _):

        async def is_copied() -> bool:
            return (await here.source_sequences())[-1] == LOST + 2

        await until(is_copied)
        subjects = 17  # which take turns
        others = range(LOST + 4 - subjects, LOST + 1)
        assert await here.source_sequences() == [LOST + 1, LOST + 3, *others, LOST + 2]


@by_turns("version", ["2.9.10", "2.10.27", "2.15.3"])
async def test_a_target_that_lost_all_copies_and_replaced_the_first_one(
    version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """So its first sequence is not 1, as if copies before the lost ones had been removed."""
    limit = {"max_msgs_per_subject": 1}
    async with _in_flight_after_a_loss(0, 3, version, native_server, enduring_peer, subjects=1, **limit) as (here, _):

        async def is_copied() -> bool:
            return (await here.source_sequences())[-1] == LOST

        await until(is_copied)
        assert await here.source_sequences() == [LOST + 3, *range(LOST - 15, LOST + 1)]  # one for each subject


async def test_a_target_that_removed_the_copies_before_the_lost_ones(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """Copies that a limit removed are not copied again, but the one that is missing between those in flight is."""
    limit = {"max_msgs": 10}
    async with _in_flight_after_a_loss(20, 15, newest_version, native_server, enduring_peer, **limit) as (here, bridge):
        await here.peer.store(b"S.new")
        new = LOST + 15 + 1

        async def is_copied() -> bool:
            return (await here.source_sequences())[-1] == new

        await until(is_copied)
        assert await here.source_sequences() == [*range(new - 9, new - 2), new - 1, new - 2, new]
        counters = bridge.supervisors[0].counters()
        assert (counters["shorter_targets"], counters["copied"]) == (1, LOST + 2)


@asynccontextmanager
async def _in_flight_after_a_loss(
    kept: int,
    in_flight: int,
    version: str,
    native_server: Servers,
    enduring_peer: OpenPeer,
    *,
    subjects: int = 17,
    **target_config: Any,
) -> AsyncIterator[tuple[Copies, Sidecar]]:
    """A rule whose target has lost the copies after the first ones, and stored those in flight but the last but one.

    Args:
        subjects: the number of subjects of the messages in flight.
    """
    async with native_server(version) as server, native_server(version) as target:
        peer, target_peer = await enduring_peer(server.url), await enduring_peer(target.url)
        here = await Copies.make(peer, "S", target_peer=target_peer, target=target_config)
        load, elsewhere = Load(peer, "S"), Copies(peer, peer, "S")
        await peer.create_stream(name=elsewhere.target, subjects=[f"{elsewhere.target}.>"])

        async def ends_at(sequence: int) -> bool:
            return bool((await here.state())["last_seq"] == sequence)

        async with PowerCut.of(target, target_peer) as power:
            connections = {"default": {"servers": [power.url]}, "source": {"servers": [server.url]}}
            settings = settings_for(power.url, here.rule(entry={"from": "source"}), connections=connections)
            async with running(settings) as bridge:
                if kept:
                    await load.burst(kept)
                    await until(lambda: ends_at(kept))
                    await until(lambda: not bridge.runs[0].has_work)
                await power.sync()
                await load.burst(LOST - kept)
                await until(lambda: ends_at(LOST))
                await until(lambda: not bridge.runs[0].has_work)  # or unanswered copies would be sent again
                await power.lose()
                await (load if subjects > 1 else Load(peer, "S", subjects)).burst(in_flight)
                async with running(settings_for(server.url, elsewhere.rule())):
                    await elsewhere.holds(LOST + in_flight)
                *others, _, last = (await elsewhere.stored())[LOST:]
                for copy in (*others, last):
                    await target_peer.store(copy.subject, copy.payload, copy.header_block)
                power.back()
                yield here, bridge


async def test_counters_of_the_target_of_copies(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """What was added is read from the target again, also where its newest message is a copy from another source."""
    async with native_server(newest_version) as server, native_server(newest_version) as target:
        peer, target_peer = await enduring_peer(server.url), await enduring_peer(target.url)
        for source in ("A", "B"):
            await peer.create_stream(name=source, subjects=[f"{source}.>"], allow_msg_counter=True)
        await target_peer.create_stream(name="SUMS", subjects=["sums.>"], allow_msg_counter=True)

        async def holds(messages: int) -> None:
            async def there() -> bool:
                return bool((await target_peer.api("STREAM.INFO.SUMS"))["state"]["messages"] == messages)

            await until(there)

        async def add(a: int, b: int, held: int) -> None:
            for stream, increment in ((b"A", a), (b"B", b)):
                await peer.store(b"%b.key" % stream, b"", b"NATS/1.0\r\nNats-Incr: +%d\r\n\r\n" % increment)
                held += 1
                await holds(held)

        async with PowerCut.of(target, target_peer) as power:
            sources = [
                {"name": name, "from": "source", "subject_transforms": [{"src": f"{name}.>", "dest": "sums.>"}]}
                for name in ("A", "B")
            ]
            rule = {"name": "sums", "kind": "sources", "stream": "SUMS", "sources": sources}
            connections = {"default": {"servers": [power.url]}, "source": {"servers": [server.url]}}
            async with running(settings_for(power.url, rule, connections=connections)) as bridge:
                await add(1, 10, 0)
                await power.sync()
                await add(2, 20, 2)
                await until(lambda: not bridge.runs[0].has_work)
                await power.lose()
                power.back()
                await holds(4)
                await add(4, 40, 4)
        last = await target_peer.api("STREAM.MSG.GET.SUMS", {"last_by_subj": "sums.key"})
        assert json.loads(base64.b64decode(last["message"]["data"])) == {"val": "77"}


async def test_source_and_target_of_copies_together(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    async with native_server(newest_version) as server:
        peer = await enduring_peer(server.url)
        here = await Copies.make(peer, "S")
        load = Load(peer, "S")
        async with PowerCut.of(server, peer) as power, running(settings_for(power.url, here.rule())) as bridge:
            await _lose_half(power, lambda _, messages: load.burst(messages), _answered(here, bridge))
            await load.burst(MORE)
            power.back()
            await here.holds(KEPT + MORE)
            await here.are_exact()


async def test_a_mirror_with_the_sources_sequences_stops(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The target holds other messages under these sequences: nothing may be stored behind them."""
    async with native_server(newest_version) as server, native_server(newest_version) as target:
        peer = await enduring_peer(server.url)
        here = await Copies.make(peer, "S", target_peer=await enduring_peer(target.url))
        mirror: dict[str, Any] = {
            "name": "rule",
            "kind": "mirror",
            "stream": here.target,
            "mirror": {"from": "source", "subject_transforms": [{"src": "S.>", "dest": "TS.>"}], "name": "S"},
            "keep_sequence": True,
        }
        load = Load(peer, "S")
        async with PowerCut.of(server, peer) as power:
            connections = {"default": {"servers": [target.url]}, "source": {"servers": [power.url]}}
            async with running(settings_for(target.url, mirror, connections=connections)) as bridge:
                await _lose_half(power, lambda _, messages: load.burst(messages), _answered(here, bridge))
                await load.burst(MORE)
                power.back()
                await until(lambda: bridge.error is not None)
                assert isinstance(bridge.error, RuleRefusedError)
                assert "sequences can be kept no longer" in str(bridge.error)
                assert (await here.state())["last_seq"] == KEPT + LOST


async def test_a_message_that_the_server_cannot_read(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """Bits flipped in its file: the server leaves it out, and the rules pass on what is behind it."""
    async with native_server(newest_version) as server:
        peer = await enduring_peer(server.url)
        here = await Copies.make(peer, "S")
        for number in range(1, 31):
            await peer.store(b"S.a", b"payload %d." % number)
        await asyncio.to_thread(server.stop)
        (file,) = server.store_dir.rglob("S/msgs/*.blk")
        file.write_bytes(file.read_bytes().replace(b"payload 15.", b"qayload 15."))
        await asyncio.to_thread(server.start)
        await connected(peer)
        seen = await Seen.of(peer, "out.>")
        republish = {"name": "seen", "stream": "S", "republish": {"src": "S.>", "dest": "out.>"}, "start": "first"}
        async with running(settings_for(server.url, republish, here.rule())) as bridge:
            await seen.until_sequence(30)
            await here.holds(29)
            readable = [number for number in range(1, 31) if number != 15]
            assert seen.sequences == readable
            assert await here.source_sequences() == readable
            await until(lambda: bridge.supervisors[0].counters()["vanished"] == 1)


async def test_a_target_whose_file_is_damaged(
    newest_version: str, native_server: Servers, enduring_peer: OpenPeer
) -> None:
    """The server drops the end of the stream, and still names the sequence of before as its last."""
    async with native_server(newest_version) as server:
        peer = await enduring_peer(server.url)
        here = await Copies.make(peer, "S")
        await Load(peer, "S").burst(30)
        async with running(settings_for(server.url, here.rule())):
            await here.holds(30)
        await asyncio.to_thread(server.stop)
        (file,) = server.store_dir.rglob("TS/msgs/*.blk")
        stored = bytearray(file.read_bytes())
        stored[stored.index(b"\r\n\r\n", len(stored) // 2) + 16] ^= 0xFF  # in the next record: its length, or near it
        file.write_bytes(stored)
        await asyncio.to_thread(server.start)
        await connected(peer)
        async with running(settings_for(server.url, here.rule())):
            await here.holds(30)
            await here.are_exact()
