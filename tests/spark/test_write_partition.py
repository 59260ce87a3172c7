"""One task's rows, with real servers and without Spark: what an earlier attempt stored, faults, streams that change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nats_bridge.client.stream_identity import KnownStream
from nats_bridge.client.tasks import end_tasks
from nats_bridge_spark.connections import connection_of
from nats_bridge_spark.errors import DataLostError, PipelineError, RowError, UnreachableError
from nats_bridge_spark.sink import partition_write
from nats_bridge_spark.sink.partition_write import PartitionWrite, WrittenPartition
from nats_bridge_spark.sink.plan import RowLayout, WriteOptions, WritePlan
from nats_bridge_spark.sink.rounds import Rounds
from nats_bridge_spark.sink.stored_rows import TaskPlace
from nats_conformance.native_servers import NativeServer
from tests.live.copying.forgotten_ids import FORGETFUL, forgotten
from tests.live.cut_wire import cut_wire
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name
from tests.live.stored_messages import stored_messages
from tests.live.until import until

VERSIONS = ("2.9.10", "2.10.27", "2.15.3")
PERMISSIONS = Path("docs/spark-streams.md").read_text().partition("**Permissions.** ")[2].partition("\n\n")[0]
"""What the page says of them."""
_writes = count(1)


def plan_of(url: str, stream: str, layout: RowLayout | None = None, **options: object) -> WritePlan:
    """A plan as the driver makes it for an empty stream."""
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    read = WriteOptions.of({"servers": url, "stream": stream, **given})
    return WritePlan(read, layout or RowLayout(0, 1), f"write-{next(_writes)}", after=0)


def rows(stream: str, first: int, last: int, ids: Sequence[str] | None = None, size: int = 0) -> pa.RecordBatch:
    """Rows first to last, without the last one."""
    columns = {
        "subject": pa.array([f"{stream}.{number % 10}" for number in range(first, last)]),
        "data": pa.array([b"%d" % number + bytes(size) for number in range(first, last)], pa.binary()),
    }
    if ids is not None:
        columns["id"] = pa.array(ids)
    return pa.RecordBatch.from_pydict(columns)


async def write(plan: WritePlan, task: TaskPlace, *batches: pa.RecordBatch) -> WrittenPartition:
    """A whole task."""
    writing = PartitionWrite(plan, task)
    try:
        for batch in batches:
            await writing.add(batch)
        return await writing.finish()
    finally:
        await writing.close()


async def left_off(plan: WritePlan, task: TaskPlace, *batches: pa.RecordBatch) -> None:
    """A task that is over before its end."""
    await write(plan, task, *batches)


async def ended(writing: PartitionWrite, batch: pa.RecordBatch) -> None:
    """The last of a task's rows, and its end."""
    await writing.add(batch)
    await writing.finish()


def _rounds(writing: PartitionWrite) -> Rounds:
    assert writing._begun is not None
    return writing._begun[0]


def new_worker() -> None:
    """Know nothing of earlier tasks, as a new worker process."""
    partition_write._written.clear()


async def info(peer: RawPeer, stream: str) -> dict[str, Any]:
    return await peer.api(f"STREAM.INFO.{stream}")


async def payloads(peer: RawPeer, stream: str) -> list[bytes]:
    """All that the stream holds, without probes and without what only makes rows large."""
    state = (await info(peer, stream))["state"]
    found = await stored_messages(peer, stream, state["messages"]) if state["messages"] else []
    return [message.payload.rstrip(b"\0") for message in found if message.payload != b"probe"]


def expected(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.fixture
async def stream(peer: RawPeer, unique_name: Name) -> str:
    name = unique_name("TASK")
    await peer.create_stream(name=name, subjects=[f"{name}.>"], **FORGETFUL)
    return name


# -- earlier attempts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_later_attempt_stores_what_is_left_after_the_window(url: str, peer: RawPeer, stream: str) -> None:
    plan = plan_of(url, stream)
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 700))
    await forgotten(peer, stream)
    again = await write(plan, TaskPlace(0, 1), rows(stream, 0, 600), rows(stream, 600, 1500))
    assert (again.rows, again.already) == (1500, 700)
    assert await payloads(peer, stream) == expected(1500)


async def test_a_task_of_a_retried_stage_reads_what_is_stored(url: str, peer: RawPeer, stream: str) -> None:
    plan = plan_of(url, stream)
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 50))
    await forgotten(peer, stream)
    again = await write(plan, TaskPlace(0, 0), rows(stream, 0, 100))
    assert again.already == 50
    assert await payloads(peer, stream) == expected(100)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layout", [RowLayout(0, 1), RowLayout(0, 1, message_id=2)], ids=["generated ids", "own ids"])
async def test_what_an_earlier_attempt_has_in_flight_is_waited_for(
    layout: RowLayout, url: str, peer: RawPeer, stream: str
) -> None:
    def rows_of(first: int, last: int) -> pa.RecordBatch:
        return rows(stream, first, last, None if layout.message_id is None else [str(n) for n in range(first, last)])

    async with cut_wire(url) as wire:
        plan = plan_of(url, stream, layout)
        options = replace(plan.options, connection=connection_of({"servers": wire.url}))
        failed = PartitionWrite(replace(plan, options=options), TaskPlace(0, 0))
        await failed.add(rows_of(0, 100))
        await failed.finish()
        wire.fall_silent()
        await failed.add(rows_of(100, 200))
        await until(lambda: b"HPUB " in wire.held)
        wire.hang_up()
        await failed.close()
        looks = await peer.collect(f"$JS.API.STREAM.INFO.{stream}")
        again = asyncio.create_task(write(plan, TaskPlace(0, 1), rows_of(0, 300)))
        await until(lambda: again.done() or len(looks.messages) > 3)
        wire.speak_again()
        assert (await again).already > 100
    assert await payloads(peer, stream) == expected(300)


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_a_connection_that_is_lost_has_in_flight_is_waited_for(url: str, peer: RawPeer, stream: str) -> None:
    async with cut_wire(url) as one, cut_wire(url) as two:
        writing = PartitionWrite(plan_of(f"{one.url},{two.url}", stream, connectTimeout=1), TaskPlace(0, 0))
        try:
            await writing.add(rows(stream, 0, 100))
            await writing.finish()
            wire = one if one.connections else two
            wire.fall_silent()
            await writing.add(rows(stream, 100, 200))
            await until(lambda: b"HPUB " in wire.held)
            looks = await peer.collect(f"$JS.API.STREAM.INFO.{stream}")
            wire.hang_up()
            finishing = asyncio.create_task(writing.finish())
            await until(lambda: finishing.done() or len(looks.messages) > 3)
            if finishing.done():
                await forgotten(peer, stream)
            wire.speak_again()
            assert (await finishing).interruptions == 1
            await until(lambda: not wire.passes)
        finally:
            await writing.close()
    assert await payloads(peer, stream) == expected(200)


async def test_ids_of_other_clients_are_not_awaited_if_the_stream_remembers_ids(
    url: str, peer: RawPeer, unique_name: Name
) -> None:
    stream = unique_name("SHARED")
    layout = RowLayout(0, 1, message_id=2)
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], duplicate_window=10**9)

    async def write_on() -> None:
        for number in count():
            await peer.store(f"{stream}.other".encode(), b"probe", b"NATS/1.0\r\nNats-Msg-Id: o%d\r\n\r\n" % number)

    writing_on = asyncio.create_task(write_on())
    try:
        again = rows(stream, 0, 10, [str(number) for number in range(10)])
        with pytest.raises(PipelineError, match=f"'{stream}': other clients .* for 1 s only: .* window of 2 s or more"):
            await write(plan_of(url, stream, layout, patience=2), TaskPlace(0, 1), again)
        assert (await write(plan_of(url, stream, layout, patience=0.5), TaskPlace(0, 1), again)).rows == 10
    finally:
        await end_tasks(writing_on)
    assert await payloads(peer, stream) == expected(10)


async def test_holes_that_an_attempt_left_are_filled(url: str, peer: RawPeer, stream: str) -> None:
    plan = plan_of(url, stream)
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 50))
    await forgotten(peer, stream)
    await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": 20})
    await write(plan, TaskPlace(0, 1), rows(stream, 0, 50))
    assert sorted(await payloads(peer, stream), key=int) == expected(50)


async def test_what_a_limit_has_removed_is_not_stored_again(url: str, peer: RawPeer, unique_name: Name) -> None:
    stream = unique_name("NEWEST")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], max_msgs_per_subject=1, **FORGETFUL)
    plan = plan_of(url, stream)
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 55))
    await forgotten(peer, stream)
    again = await write(plan, TaskPlace(0, 1), rows(stream, 0, 60))
    assert again.already == 55
    # Ten subjects, each with its newest row.
    assert sorted(await payloads(peer, stream), key=int) == [b"%d" % number for number in range(50, 60)]


async def test_rows_that_come_in_another_order_are_no_repetition(url: str, peer: RawPeer, stream: str) -> None:
    plan = plan_of(url, stream)
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 50))
    with pytest.raises(RowError, match=r"row 0 of partition 0 .*do not come in the same order"):
        await write(plan, TaskPlace(0, 1), rows(stream, 1, 50))
    assert await payloads(peer, stream) == expected(50)


async def test_ids_of_the_rows_own_are_found_after_the_window(url: str, peer: RawPeer, stream: str) -> None:
    plan = plan_of(url, stream, RowLayout(0, 1, message_id=2))
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 50, [f"id {number}" for number in range(50)]))
    await forgotten(peer, stream)
    # In another order: ids of their own say which message is which.
    again = await write(plan, TaskPlace(0, 1), rows(stream, 40, 90, [f"id {number}" for number in range(40, 90)]))
    assert (again.rows, again.already) == (50, 10)
    assert await payloads(peer, stream) == expected(90)


async def test_duplicates_that_the_stream_knows_are_counted(url: str, peer: RawPeer, stream: str) -> None:
    layout = RowLayout(0, 1, message_id=2)
    done = await write(plan_of(url, stream, layout), TaskPlace(0, 0), rows(stream, 0, 4, ["a", "b", "a", "b"]))
    assert (done.rows, done.already) == (4, 2)
    assert await payloads(peer, stream) == expected(2)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
async def test_what_a_work_queue_still_holds_is_found(
    retention: str, url: str, peer: RawPeer, unique_name: Name
) -> None:
    stream = unique_name("QUEUE")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], retention=retention, **FORGETFUL)
    await peer.api(
        f"CONSUMER.DURABLE.CREATE.{stream}.worker",
        {"stream_name": stream, "config": {"durable_name": "worker", "ack_policy": "explicit"}},
    )
    plan = plan_of(url, stream)
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 50))
    await forgotten(peer, stream)
    again = await write(plan, TaskPlace(0, 1), rows(stream, 0, 60))
    assert again.already == 50
    probes = (await info(peer, stream))["state"]["last_seq"] - 60
    assert (await info(peer, stream))["state"]["messages"] == 60 + probes


# -- micro-batches ---------------------------------------------------------------------------------------------------


def batch_place(number: int) -> TaskPlace:
    return TaskPlace(0, write=f"query-{next(_writes)}", batch=number)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_micro_batch_that_is_played_again_is_found(url: str, peer: RawPeer, stream: str) -> None:
    plan = replace(plan_of(url, stream), streaming=True, after=None)
    place = batch_place(0)
    await write(plan, place, rows(stream, 0, 100))
    # Other messages are between, more than one look backwards takes in.
    for number in range(30):
        await peer.store(f"{stream}.other".encode(), b"probe", b"NATS/1.0\r\nA: %d\r\n\r\n" % number)
    await left_off(plan, replace(place, batch=1), rows(stream, 100, 150))
    for number in range(5000):
        peer.publish(f"{stream}.other".encode(), b"probe")
        if number % 500 == 0:
            await peer.client.flush()
    await forgotten(peer, stream)
    # The query begins again, in another worker: batch 1 has 200 rows this time, as its offsets say.
    new_worker()
    again = await write(plan, replace(place, batch=1), rows(stream, 100, 300))
    assert again.already == 50
    later = await write(plan, replace(place, batch=2), rows(stream, 300, 400))
    assert later.already == 0
    assert await payloads(peer, stream) == expected(400)


async def test_the_first_micro_batch_that_is_played_again_is_found(url: str, peer: RawPeer, stream: str) -> None:
    plan = replace(plan_of(url, stream, lookBack=3600), streaming=True, after=None)
    place = batch_place(0)
    await left_off(plan, place, rows(stream, 0, 100))
    await forgotten(peer, stream)
    new_worker()
    again = await write(plan, place, rows(stream, 0, 120))
    assert again.already == 100
    assert await payloads(peer, stream) == expected(120)


async def test_micro_batches_with_ids_of_their_own_are_found(url: str, peer: RawPeer, stream: str) -> None:
    plan = replace(plan_of(url, stream, RowLayout(0, 1, message_id=2)), streaming=True, after=None)
    place = batch_place(0)
    await write(plan, place, rows(stream, 0, 50, [f"id {number}" for number in range(50)]))
    await left_off(plan, replace(place, batch=1), rows(stream, 50, 70, [f"id {number}" for number in range(50, 70)]))
    await forgotten(peer, stream)
    new_worker()
    left = rows(stream, 50, 90, [f"id {number}" for number in range(50, 90)])
    again = await write(plan, replace(place, batch=1), left)
    assert again.already == 20
    assert await payloads(peer, stream) == expected(90)


@pytest.mark.parametrize("layout", [RowLayout(0, 1), RowLayout(0, 1, message_id=2)], ids=["generated ids", "own ids"])
async def test_a_worker_finds_the_batch_that_another_one_has_begun(
    layout: RowLayout, url: str, peer: RawPeer, stream: str
) -> None:
    plan = replace(plan_of(url, stream, layout), streaming=True, after=None)
    place = batch_place(0)
    batches = [rows(stream, 0, 50, [str(n) for n in range(50)]), rows(stream, 50, 90, [str(n) for n in range(50, 90)])]
    await write(plan, place, batches[0])
    known = dict(partition_write._written)
    new_worker()
    await left_off(plan, replace(place, batch=1), batches[1].slice(0, 20))
    await forgotten(peer, stream)
    new_worker()
    partition_write._written.update(known)
    assert (await write(plan, replace(place, batch=1), batches[1])).already == 20
    assert await payloads(peer, stream) == expected(90)


# -- faults ----------------------------------------------------------------------------------------------------------


async def test_connections_that_break_lose_and_double_nothing(url: str, peer: RawPeer, stream: str) -> None:
    async with cut_wire(url) as wire:
        writing = PartitionWrite(plan_of(wire.url, stream), TaskPlace(0, 0))
        try:
            for first in range(0, 40_000, 10_000):
                await writing.add(rows(stream, first, first + 10_000))
                wire.cut()
            done = await writing.finish()
        finally:
            await writing.close()
    assert done.rows == 40_000
    assert done.interruptions > 0
    assert sorted(await payloads(peer, stream), key=int) == expected(40_000)


@pytest.mark.parametrize("version", VERSIONS)
async def test_another_writer_changes_nothing(url: str, peer: RawPeer, unique_name: Name) -> None:
    stream = unique_name("SHARED")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    writing = PartitionWrite(plan_of(url, stream), TaskPlace(0, 0))
    try:
        for first in range(0, 30_000, 10_000):
            await writing.add(rows(stream, first, first + 10_000))
            await peer.store(f"{stream}.9".encode(), b"probe")
        done = await writing.finish()
    finally:
        await writing.close()
    assert (done.rows, done.already, done.interruptions) == (30_000, 0, 0)
    assert (await info(peer, stream))["state"]["messages"] == 30_003
    assert await payloads(peer, stream) == expected(30_000)


@pytest.mark.parametrize("kill", [True, False])
async def test_a_server_that_restarts_in_the_middle_loses_and_doubles_nothing(
    kill: bool, native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    with native_server("2.10.27") as server:
        stream = "RESTART"
        peer = await raw_peer(server.url)
        await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
        writing = PartitionWrite(plan_of(server.url, stream), TaskPlace(0, 0))
        try:
            await writing.add(rows(stream, 0, 5000))
            await asyncio.to_thread(server.restart, kill=kill)
            await writing.add(rows(stream, 5000, 10_000))
            done = await writing.finish()
        finally:
            await writing.close()
        assert done.rows == 10_000
        assert await payloads(await raw_peer(server.url), stream) == expected(10_000)


async def test_a_server_that_does_not_come_back_is_an_error(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    with native_server("2.10.27") as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="GONE", subjects=["GONE.>"])
        writing = PartitionWrite(plan_of(server.url, "GONE"), TaskPlace(0, 0))
        try:
            await ended(writing, rows("GONE", 0, 10))
            await peer.close()
            server.stop()
            await until(lambda: not writing._connection.client.is_connected)
            _rounds(writing).patience = 0.5
            with pytest.raises(UnreachableError, match=r"was lost and is not back after 0\.5 s"):
                await ended(writing, rows("GONE", 10, 20))
        finally:
            await writing.close()


async def test_a_full_stream_is_waited_for(url: str, peer: RawPeer, unique_name: Name) -> None:
    stream = unique_name("FULL")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], discard="new", max_msgs=500)
    writing = PartitionWrite(plan_of(url, stream), TaskPlace(0, 0))
    seen: list[bytes] = []
    try:
        adding = asyncio.create_task(writing.add(rows(stream, 0, 1200)))
        for _ in range(2):
            await until(lambda: _holds(peer, stream, 500))
            seen += await payloads(peer, stream)
            await peer.api(f"STREAM.PURGE.{stream}")
        await adding
        done = await writing.finish()
    finally:
        await writing.close()
    assert done.rows == 1200
    assert seen + await payloads(peer, stream) == expected(1200)


async def _holds(peer: RawPeer, stream: str, messages: int) -> bool:
    return bool((await info(peer, stream))["state"]["messages"] == messages)


async def test_a_stream_that_stays_full_is_an_error(url: str, peer: RawPeer, unique_name: Name) -> None:
    stream = unique_name("FULL")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], discard="new", max_msgs=500)
    writing = PartitionWrite(plan_of(url, stream), TaskPlace(0, 0))
    try:
        adding = asyncio.create_task(ended(writing, rows(stream, 0, 1200)))
        await until(lambda: writing._begun is not None and writing._begun[0]._present.waiting)
        _rounds(writing).patience = 0.5
        with pytest.raises(PipelineError, match=rf"stream '{stream}' takes no messages: it is full, for 0\.5 s; make"):
            await adding
    finally:
        await writing.close()
    assert await payloads(peer, stream) == expected(500)


async def test_a_task_that_waits_for_rows_is_patient(url: str, peer: RawPeer, stream: str) -> None:
    async with cut_wire(url) as wire:
        writing = PartitionWrite(plan_of(wire.url, stream), TaskPlace(0, 0))
        try:
            await writing.add(rows(stream, 0, 10))
            wire.cut()
            await until(lambda: writing._connection.reconnects > 0)
            _rounds(writing).patience = 0.1
            await asyncio.sleep(0.5)  # nothing is to be seen until then
            _rounds(writing).patience = 60
            await ended(writing, rows(stream, 10, 20))
        finally:
            await writing.close()
    assert await payloads(peer, stream) == expected(20)


# -- streams that change ---------------------------------------------------------------------------------------------


async def test_a_stream_that_is_deleted_is_an_error(url: str, peer: RawPeer, stream: str) -> None:
    writing = PartitionWrite(plan_of(url, stream), TaskPlace(0, 0))
    try:
        await writing.add(rows(stream, 0, 10))
        await peer.api(f"STREAM.DELETE.{stream}")
        with pytest.raises(PipelineError, match=f"stream '{stream}': not found at nats://127.0.0.1"):
            await ended(writing, rows(stream, 10, 20))
    finally:
        await writing.close()


async def test_a_stream_that_was_recreated_is_an_error(url: str, peer: RawPeer, stream: str) -> None:
    plan = replace(plan_of(url, stream), known=KnownStream.of(await info(peer, stream)))
    await left_off(plan, TaskPlace(0, 0), rows(stream, 0, 10))
    await peer.api(f"STREAM.DELETE.{stream}")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    with pytest.raises(DataLostError, match="was recreated while it was written to"):
        await write(plan, TaskPlace(0, 1), rows(stream, 0, 10))
    assert await payloads(peer, stream) == []


async def test_a_stream_that_is_recreated_during_a_write_is_an_error(url: str, peer: RawPeer, stream: str) -> None:
    async with cut_wire(url) as wire:
        writing = PartitionWrite(plan_of(wire.url, stream), TaskPlace(0, 0))
        try:
            await ended(writing, rows(stream, 0, 100))
            await peer.recreate_stream(stream)
            wire.cut()
            with pytest.raises(DataLostError, match=f"stream '{stream}' was recreated while it was written to"):
                await ended(writing, rows(stream, 100, 10_000))
        finally:
            await writing.close()


async def test_a_stream_that_loses_a_subject_names_the_row(url: str, peer: RawPeer, stream: str) -> None:
    writing = PartitionWrite(plan_of(url, stream), TaskPlace(0, 0))
    try:
        await writing.add(rows(stream, 0, 5))
        await writing.finish()
        config = (await info(peer, stream))["config"] | {"subjects": [f"{stream}.{number}" for number in range(7)]}
        assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", config)
        with pytest.raises(RowError, match=rf"row 7 of partition 0 \(subject '{stream}.7'\): .* any more"):
            await ended(writing, rows(stream, 5, 9))
    finally:
        await writing.close()


async def test_a_sealed_stream_is_an_error(url: str, peer: RawPeer, stream: str) -> None:
    config = (await info(peer, stream))["config"] | {"sealed": True}
    assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", config)
    with pytest.raises(Exception, match="sealed"):
        await write(plan_of(url, stream), TaskPlace(0, 0), rows(stream, 0, 5))


async def test_a_subject_can_be_one_that_the_account_maps(
    native_server: Callable[..., NativeServer], raw_peer: OpenPeer
) -> None:
    with native_server("2.10.27", config='mappings = {"outside.*": "MAPPED.$1"}') as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="MAPPED", subjects=["MAPPED.>"])
        with pytest.raises(RowError, match=r"subject 'outside.0'.*does not store this subject, but"):
            await write(plan_of(server.url, "MAPPED"), TaskPlace(0, 0), rows("outside", 0, 20))
        await write(plan_of(server.url, "MAPPED", checkSubjects=False), TaskPlace(0, 0), rows("outside", 0, 20))
        assert await payloads(peer, "MAPPED") == expected(20)


async def test_another_stream_that_answers_is_an_error(url: str, peer: RawPeer, stream: str, unique_name: Name) -> None:
    other = unique_name("OTHER")
    await peer.create_stream(name=other, subjects=[f"{other}.>"])
    with pytest.raises(Exception, match=f"'{other}.0' is stored by stream '{other}', not by '{stream}'"):
        await write(plan_of(url, stream, checkSubjects=False), TaskPlace(0, 0), rows(other, 0, 5))
    assert await payloads(peer, other) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("receives_others", [True, False])
async def test_a_user_with_the_permissions_of_the_page_writes_and_tries_again(
    receives_others: bool, version: str, native_server: Callable[..., NativeServer], raw_peer: OpenPeer, tmp_path: Path
) -> None:
    publish = ["P.>", *(found.replace("<stream>", "P") for found in re.findall(r"`(\$JS[^`]*)`", PERMISSIONS))]
    assert len(publish) == 6
    (tmp_path / "password").write_text("some")
    subscribe = ["_INBOX.>", "P.>"] if receives_others else ["_INBOX.>"]
    allowed = f"{{ publish: {json.dumps(publish)}, subscribe: {json.dumps(subscribe)} }}"
    config = f"""
        accounts {{ A: {{ jetstream: enabled, users: [
            {{ user: all, password: all }}, {{ user: some, password: some, permissions: {allowed} }},
        ] }} }}
        no_auth_user: all
    """
    async with native_server(version, config=config) as server:
        peer = await raw_peer(server.url)
        await peer.create_stream(name="P", subjects=["P.>"])
        plan = plan_of(server.url, "P", user="some", passwordFile=tmp_path / "password")
        await left_off(plan, TaskPlace(0, 0), rows("P", 0, 5000))
        again = await write(plan, TaskPlace(0, 1), rows("P", 0, 6000))
        assert (again.rows, again.already, again.interruptions) == (6000, 5000, 0)
        assert (await info(peer, "P"))["state"]["messages"] == 6000


async def test_large_rows_go_in_small_pieces(url: str, peer: RawPeer, stream: str) -> None:
    await write(plan_of(url, stream), TaskPlace(0, 0), rows(stream, 0, 60, size=900_000))
    assert await payloads(peer, stream) == expected(60)


# -- headers of other clients ----------------------------------------------------------------------------------------

HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))


@pytest.mark.parametrize("version", ["2.11.17", "2.14.10", "2.15.3"])
@pytest.mark.parametrize("column", ["header_block", "headers"])
async def test_a_message_is_not_traced_with_the_permissions_of_the_write(
    column: str, url: str, peer: RawPeer, stream: str, unique_name: Name
) -> None:
    """A server of 2.11 and newer reports a message there, and the API takes the report for a request to purge."""
    victim, behind = unique_name("VICTIM"), unique_name("behind")
    await peer.create_stream(name=victim, subjects=[f"{victim}.>"])
    await peer.store(f"{victim}.a".encode(), b"precious")
    command = f"$JS.API.STREAM.PURGE.{victim}"
    commands, reported = await peer.collect(command), await peer.collect(behind)
    block = f"NATS/1.0\r\nA: b\r\nNats-Trace-Dest: {command}\r\nNats-Trace-Only: true\r\nC: d\r\n\r\n".encode()
    lines = [dict(zip(("name", "value"), line.split(": "), strict=True)) for line in block.decode().split("\r\n")[1:-2]]
    given = pa.array([block], pa.binary()) if column == "header_block" else pa.array([lines], HEADERS)
    batch = pa.RecordBatch.from_pydict({"subject": [f"{stream}.a"], "data": [b"x"], column: given})
    done = await write(plan_of(url, stream, RowLayout(0, 1, **{column: 2})), TaskPlace(0, 0), batch)
    assert done.rows == 1
    # Servers send reports in their order.
    await peer.store(f"{stream}.b".encode(), b"", f"NATS/1.0\r\nNats-Trace-Dest: {behind}\r\n\r\n".encode())
    await reported.count(1)
    assert commands.messages == []
    (message,) = await stored_messages(peer, stream, 1)
    assert message.header_block.startswith(b"NATS/1.0\r\nA: b\r\nNats-Trace-Only: true\r\nC: d\r\nNats-Msg-Id: ")
    assert (await info(peer, victim))["state"]["messages"] == 1
