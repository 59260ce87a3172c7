"""A read gives what the stream holds: each message once, exactly as it is stored, however the read is cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.types import BinaryType

from nats_bridge_spark.data_source import JetStreamDataSource
from nats_bridge_spark.errors import OptionError, PipelineError, SchemaError, reported
from nats_bridge_spark.source import range_reader, record_batches
from nats_bridge_spark.source.record_batches import Arrived
from nats_transforms.timestamp import nanoseconds_of
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.spark.reading import Read, spark_schema

_BLOCK = b"NATS/1.0\r\nTag: a\r\ntag:  B \r\nno colon\r\nTag: a\r\nempty:\r\nurl: nats://x:1\r\n\r\n"
_HEADERS = [("Tag", "a"), ("tag", "B"), ("Tag", "a"), ("empty", ""), ("url", "nats://x:1")]


@pytest.fixture(params=["2.9.10", "2.10.27", "2.15.3"])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def stream(unique_name: Name) -> str:
    return unique_name("EXACT")


async def _fill(peer: RawPeer, stream: str, count: int, **config: Any) -> None:
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], **config)
    for number in range(1, count):
        peer.publish(f"{stream}.{number % 3}".encode(), b"%d" % number)
    assert (await peer.store(f"{stream}.{count % 3}".encode(), b"%d" % count))["seq"] == count


async def _delete(peer: RawPeer, stream: str, *sequences: int) -> None:
    for sequence in sequences:
        answer = await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence, "no_erase": True})
        assert answer["success"], answer


@pytest.mark.parametrize("version", ["2.15.3"])
async def test_several_streams_are_one_read(url: str, peer: RawPeer, stream: str) -> None:
    for name, count in (("B", 3), ("C", 30), ("A", 3)):
        await _fill(peer, f"{stream}_{name}", count)
    read = await Read(url, "", streams=f"{stream}_B, {stream}_*", partitions=5).plan()
    assert [part.stream[-1] for part in read.parts] == ["A", "B", "C", "C", "C"]
    held = [(f"{stream}_{name}", at) for name, count in (("A", 3), ("B", 3), ("C", 30)) for at in range(1, count + 1)]
    assert [(row["stream"], row["sequence"]) for row in await read.rows()] == held
    with pytest.raises(PipelineError, match=f"no stream that can be read has a name like {stream}_X\\*"):
        await Read(url, "", streams=f"{stream}_X*").plan()
    with pytest.raises(PipelineError, match=f"stream '{stream}_X': not found"):
        await Read(url, "", streams=f"{stream}_A,{stream}_X").plan()


@pytest.mark.parametrize("partitions", [1, 2, 5])
async def test_gaps_anywhere_and_every_message_once(url: str, peer: RawPeer, stream: str, partitions: int) -> None:
    await _fill(peer, stream, 300)
    gone = {1, 2, 7, *range(60, 200), 298, 299, 300}
    await _delete(peer, stream, *gone)
    read = await Read(url, stream, partitions=partitions).plan()
    assert len(read.parts) == partitions
    assert [part.first for part in read.parts[1:]] == [part.last + 1 for part in read.parts[:-1]]
    counts = [len([s for s in range(part.first, part.last + 1) if s not in gone]) for part in read.parts]
    assert max(counts) - min(counts) <= max(4, 300 // partitions // 20), "ranges hold about as many messages"
    assert await read.sequences() == [sequence for sequence in range(1, 301) if sequence not in gone]


async def test_streams_with_nothing_or_little_in_them(url: str, peer: RawPeer, stream: str) -> None:
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    assert await Read(url, stream).sequences() == []
    await peer.store(f"{stream}.x".encode())
    assert await Read(url, stream, partitions=5).sequences() == [1]
    await peer.api(f"STREAM.PURGE.{stream}")
    assert await Read(url, stream).sequences() == []
    await peer.store(f"{stream}.x".encode())
    await peer.store(f"{stream}.x".encode())
    await _delete(peer, stream, 3)
    assert await Read(url, stream).sequences() == [2]
    await _delete(peer, stream, 2)
    assert await Read(url, stream).sequences() == []


async def test_subjects_headers_and_payloads_are_exact(url: str, peer: RawPeer, stream: str) -> None:
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    large = bytes(range(256)) * 4000
    sent = [
        (f"{stream}.a".encode(), b"", b""),
        (f"{stream}.ü".encode(), _BLOCK, b"\r\nMSG x 1 2\r\n"),
        (f"{stream}.b".encode(), b"NATS/1.0\r\n\r\n", b"\x00\xff"),
        (f"{stream}.c".encode(), b"", large),
        (f"{stream}.c".encode(), _BLOCK, large),
        (f"{stream}.d".encode(), b"", b"last"),
    ]
    for subject, block, payload in sent:
        await peer.store(subject, payload, block)
    columns = spark_schema("data", "header_block", "headers", "subject", "stream")
    rows = await Read(url, stream, columns).rows()
    assert [(row["subject"].encode(), row["header_block"], row["data"]) for row in rows] == sent
    assert [[(h["name"], h["value"]) for h in row["headers"]] for row in rows] == [[], _HEADERS, [], [], _HEADERS, []]
    assert {row["stream"] for row in rows} == {stream}


async def test_payloads_stay_on_the_server(
    url: str, peer: RawPeer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = []

    def record_batch(messages: Arrived, *rest: Any) -> Any:
        arrived.append(messages)
        return record_batches.record_batch(messages, *rest)

    monkeypatch.setattr(range_reader, "record_batch", record_batch)
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    sized = b"NATS/1.0\r\nNats-Msg-Size: 7\r\n\r\n"
    sent = [(b"", b"plain"), (_BLOCK, b"x" * 500_000), (sized, b""), (b"", b"")]
    for block, payload in sent:
        await peer.store(f"{stream}.a".encode(), payload, block)
    for number in range(20_000):  # more than one request
        peer.publish(f"{stream}.b".encode(), b"%d" % number)
    await peer.store(f"{stream}.b".encode(), b"last")
    rows = await Read(url, stream, spark_schema("sequence", "header_block", "headers"), payload=False).rows()
    assert [row["sequence"] for row in rows] == list(range(1, 20_006))
    assert [row["header_block"] for row in rows] == [block for block, _ in sent] + [b""] * 20_001
    assert [len(row["headers"]) for row in rows[:5]] == [0, len(_HEADERS), 1, 0, 0]
    assert not any(part.payloads.nbytes and any(part.payloads.to_pylist()) for part in arrived)


def test_a_schema_with_payloads_contradicts_a_read_without_them() -> None:
    source = JetStreamDataSource({"servers": "nats://127.0.0.1:1", "stream": "S", "payload": "False"})
    assert "data" not in source.schema()
    for read in (source.reader, source.streamReader):
        with pytest.raises(OptionError, match="option payload: false reads no payloads, and the schema has"):
            read(spark_schema("sequence", "data"))


async def test_large_messages_among_small_ones_come_in_smaller_portions(
    url: str, peer: RawPeer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "_BYTES", 50_000)
    await _fill(peer, stream, 300)
    sizes = [1] * 300
    for number in range(40):
        sizes.append(number % 4 * 40_000)  # some are larger than all that may be asked for at once
        await peer.store(f"{stream}.large".encode(), b"x" * sizes[-1])
    read = await Read(url, stream, spark_schema("sequence", "data"), partitions=2).plan()
    rows = await read.rows()
    assert [row["sequence"] for row in rows] == list(range(1, 341))
    assert [len(row["data"]) for row in rows[300:]] == sizes[300:]


async def test_times_are_the_servers_to_the_nanosecond(url: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 5)
    rows = await Read(url, stream).rows()
    for row in rows:
        stored = (await peer.api(f"STREAM.MSG.GET.{stream}", {"seq": row["sequence"]}))["message"]
        assert row["time_ns"] == nanoseconds_of(stored["time"])
        assert row["time"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row["time_ns"] // 1000)


async def test_limits_by_sequence_and_time(url: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 20)
    stored = [(await peer.api(f"STREAM.MSG.GET.{stream}", {"seq": s}))["message"]["time"] for s in (6, 15)]
    assert await Read(url, stream, startSequence=4, endSequence=9).sequences() == list(range(4, 10))
    assert await Read(url, stream, startSequence=18, endSequence=99).sequences() == [18, 19, 20]
    assert await Read(url, stream, startSequence=21).sequences() == []
    assert await Read(url, stream, startTime=stored[0], endTime=stored[1]).sequences() == list(range(6, 15))
    assert await Read(url, stream, startTime="2200-01-01T00:00:00Z").sequences() == []
    assert await Read(url, stream, endTime="2020-01-01T00:00:00+01:00").sequences() == []


async def test_subjects_select(url: str, version: str, peer: RawPeer, stream: str) -> None:
    await _fill(peer, stream, 30)
    wanted = {f"{stream}.*": [0, 1, 2], f"{stream}.2": [2], ">": [0, 1, 2], f"{stream}.2, {stream}.2": [2]}
    for filters, rests in wanted.items():
        found = await Read(url, stream, subjects=filters, partitions=3).sequences()
        assert found == [s for s in range(1, 31) if s % 3 in rests], filters
    if version.startswith("2.9."):
        with pytest.raises(OptionError, match=r"option subjects: server 2.9.10 takes only .* none\.\*"):
            await Read(url, stream, subjects="none.*").rows()
    else:
        assert await Read(url, stream, subjects="none.*").sequences() == []
    several = Read(url, stream, subjects=f"{stream}.0, {stream}.2", partitions=2)
    if version.startswith("2.9."):
        with pytest.raises(OptionError, match="subjects"):
            await several.rows()
    else:
        assert await several.sequences() == [s for s in range(1, 31) if s % 3 in (0, 2)]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
async def test_what_consumers_decide_about_is_not_read(url: str, peer: RawPeer, stream: str, retention: str) -> None:
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], retention=retention)
    with pytest.raises(OptionError, match=r"could take messages from those that they are for; .* are read"):
        await Read(url, stream).plan()


async def test_streams_of_a_pattern_that_cannot_be_read_are_left_out(
    url: str, peer: RawPeer, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await _fill(peer, f"{stream}_A", 3)
    for retention in ("workqueue", "interest"):
        name = f"{stream}_{retention}"
        await peer.create_stream(name=name, subjects=[f"{name}.>"], retention=retention)
    assert await Read(url, "", streams=f"{stream}_*").sequences() == [1, 2, 3]
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": it ")[0] for line in said] == [
        f"jetstream: stream '{stream}_{retention}' is left out" for retention in ("interest", "workqueue")
    ]
    with pytest.raises(OptionError, match=f"stream '{stream}_interest': is a work queue, or"):
        await Read(url, "", streams=f"{stream}_*,{stream}_interest").plan()
    with pytest.raises(PipelineError, match=f"no stream that can be read has a name like {stream}_w\\*"):
        await Read(url, "", streams=f"{stream}_w*").plan()


async def test_sequences_beyond_what_32_bits_hold(servers: SharedServers, raw_peer: OpenPeer, stream: str) -> None:
    url = await servers.url("2.15.3")
    first = 2**33 + 5
    peer = await raw_peer(url)
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], first_seq=first)
    for _ in range(10):
        await peer.store(f"{stream}.x".encode())
    assert await Read(url, stream, partitions=3).sequences() == list(range(first, first + 10))


async def test_what_is_not_text_is_had_as_bytes(url: str, peer: RawPeer, stream: str) -> None:
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    await peer.store(f"{stream}.x".encode(), b"", b"NATS/1.0\r\nok: 1\r\n\r\n")
    await peer.store(f"{stream}.\xff".encode("latin-1"), b"", b"NATS/1.0\r\nbad: \xfe\r\n\r\n")
    for columns, advice in ((["subject"], "subject binary"), (["headers"], "header_block")):
        with pytest.raises(SchemaError, match="message 2 is not UTF-8") as caught:
            await Read(url, stream, spark_schema(*columns)).rows()
        error = reported(caught.value)
        assert error is not None
        assert advice in str(error)
    rows = await Read(url, stream, spark_schema("subject", "header_block", subject=BinaryType())).rows()
    assert rows[1] == {"subject": f"{stream}.\xff".encode("latin-1"), "header_block": b"NATS/1.0\r\nbad: \xfe\r\n\r\n"}
