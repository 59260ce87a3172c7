"""A capture holds what the stream holds, each message once, for every reader."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyarrow.fs import LocalFileSystem, S3FileSystem

from nats_bridge.settings import Connection
from nats_bridge_spark.capture import capturing, parquet_files
from nats_bridge_spark.capture.capturing import CaptureRequest, CaptureResult, capture
from nats_bridge_spark.capture.folder import SAVED, Capture, Chunk, capture_in
from nats_bridge_spark.capture.parquet_files import read_capture, required_capture
from nats_bridge_spark.capture.place import Place, place_of
from nats_bridge_spark.errors import DataLostError, OptionError, PipelineError
from nats_bridge_spark.failures import failure
from nats_bridge_spark.progress import Progress
from nats_transforms.timestamp import rfc3339_nano
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.live.stored_messages import stored_messages
from tests.spark.engines import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK = b"NATS/1.0\r\nTag: a\r\ntag:  B \r\nTag: a\r\n\r\n"


Run = Callable[..., CaptureResult]


@pytest.fixture
def run(session: Spark, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Capture a stream into the test's directory, with so many messages in a chunk."""

    def call(stream: str, *, chunk: int = 4_000_000, **options: Any) -> CaptureResult:
        monkeypatch.setattr(parquet_files, "MESSAGES", chunk)
        options = {"directory": str(tmp_path / "kept"), **options}
        wanted = CaptureRequest(connection=Connection(servers=(url,)), stream=stream, **options)
        return capture(session, wanted, Progress(f"capture {stream}"))

    return call


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def plain(kept: Path) -> list[tuple[Any, ...]]:
    """What a reader that knows nothing of captures finds: every Parquet file there is, file after file."""
    rows: list[tuple[Any, ...]] = []
    for file in sorted((kept / "messages").rglob("*.parquet")):
        table = pyarrow.parquet.ParquetFile(file).read()
        found = [
            (*(row[name] for name in ("sequence", "subject", "time_ns", "header_block", "data")),)
            for row in table.to_pylist()
        ]
        assert [row[0] for row in found] == sorted(row[0] for row in found)
        rows += found
    return rows


def sequences(kept: Path) -> list[int]:
    return [row[0] for row in plain(kept)]


def ranges(held: Capture) -> tuple[tuple[int, int], ...]:
    """The covered sequences as ranges (first, last)."""
    found: list[tuple[int, int]] = []
    for chunk in held.chunks:
        joins = bool(found) and found[-1][1] + 1 == chunk.first
        found.append((found.pop()[0] if joins else chunk.first, chunk.last))
    return tuple(found)


def sizes(kept: Path) -> list[int]:
    return [file.stat().st_size for file in kept.rglob("*.parquet")]


def entries(kept: Path) -> list[str]:
    return sorted(entry.name for entry in kept.iterdir())


async def fill(peer: RawPeer, stream: str, messages: int, **config: Any) -> None:
    if (await peer.api(f"STREAM.INFO.{stream}")).get("error"):
        await peer.create_stream(name=stream, subjects=[f"{stream}.>"], **config)
    for number in range(messages):
        await peer.store(f"{stream}.{number % 7}".encode(), bytes([number % 256, 0, 255]), BLOCK if number % 3 else b"")


@pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])
async def test_everything_is_as_the_server_has_it(
    version: str, run: Run, spark: SparkSession, peer: RawPeer, kept: Path, unique_name: Name
) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 300)
    await peer.store(f"{stream}.ünï.😀".encode(), b"")
    await peer.store(
        f"{stream}.large".encode(), os.urandom(1_000_000), b"NATS/1.0\r\nA: " + b"b" * 10_000 + b"\r\n\r\n"
    )
    for sequence in (1, 17, 18, 19, 250):
        answer = await peer.api(f"STREAM.MSG.DELETE.{stream}", {"seq": sequence})
        assert answer.get("success"), answer
    stored = await stored_messages(peer, stream, 297)
    result = run(stream, chunk=100)
    expected = [(one.sequence, one.subject.decode(), one.time_ns, one.header_block, one.payload) for one in stored]
    assert plain(kept) == expected
    assert (result.messages, result.messages_held, result.first_sequence, result.last_sequence) == (297, 297, 2, 302)
    assert (result.files, result.bytes) == (len(sizes(kept)), sum(sizes(kept)))
    assert result.files >= 3
    rows = read_capture(spark, place_of(str(kept)), first=None, last=None).orderBy("sequence").collect()
    assert [
        (row.sequence, row.subject, row.time_ns, bytes(row.header_block), bytes(row.data)) for row in rows
    ] == expected
    assert {row.stream for row in rows} == {stream}
    assert all(int(row.time.timestamp()) == row.time_ns // 1_000_000_000 for row in rows)
    held = required_capture(place_of(str(kept)))
    assert (held.stream, held.saved.server, held.extent.begin, ranges(held)) == (stream, version, 2, ((2, 302),))


async def test_it_resumes_where_it_ended(run: Run, peer: RawPeer, kept: Path, unique_name: Name) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 30)
    assert run(stream).messages == 30
    await fill(peer, stream, 12)
    again = run(stream)
    assert (again.messages, again.first_sequence, again.last_sequence, again.messages_held) == (12, 31, 42, 42)
    nothing = run(stream)
    assert (nothing.messages, nothing.files, nothing.messages_held, nothing.next_sequence) == (0, 0, 42, 43)
    assert nothing.first_sequence is None
    assert sequences(kept) == list(range(1, 43))
    assert entries(kept) == [SAVED, "messages"]
    table = pyarrow.dataset.dataset(kept, format="parquet", exclude_invalid_files=False, partitioning="hive").to_table()
    assert table.schema.names == [
        *("stream", "subject", "sequence", "time", "time_ns", "header_block", "data"),
        "chunk",
    ]
    assert sorted(table["sequence"].to_pylist()) == list(range(1, 43))
    first = min((kept / "messages").rglob("*.parquet"))
    assert first.parent.name == f"chunk={1:020}-{30:020}-30"
    column = pyarrow.parquet.ParquetFile(first).metadata.row_group(0).column(3)
    assert (column.path_in_schema, column.compression, column.statistics is not None) == ("time", "ZSTD", True)


class KilledError(BaseException):
    """What ends a run in the middle of a step, as well as is possible from inside."""


def killing(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Let the next run end at a point, once."""

    def dies_at(owner: Any, name: str, *, after: bool) -> None:
        original = getattr(owner, name)

        def dying(*arguments: Any, **options: Any) -> Any:
            if after:
                original(*arguments, **options)
            monkeypatch.setattr(owner, name, original)
            raise KilledError(point)

        monkeypatch.setattr(owner, name, dying)

    if point == "before anything is written":
        dies_at(capturing, "write_chunk", after=False)
    elif point == "all is written":
        dies_at(capturing, "write_chunk", after=True)
    elif point == "it is about to appear":
        dies_at(Place, "move", after=False)
    else:
        dies_at(Place, "move", after=True)


POINTS = ("before anything is written", "all is written", "it is about to appear", "it has appeared")


async def test_whatever_ends_it_each_message_is_there_once(
    run: Run, peer: RawPeer, kept: Path, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 60)
    for point in (*POINTS, *POINTS):
        killing(monkeypatch, point)
        with pytest.raises(KilledError, match=point):
            run(stream, chunk=15)
        assert sequences(kept) == list(range(1, len(sequences(kept)) + 1))
    done = run(stream, chunk=15)
    assert (done.messages_held, done.next_sequence, done.messages) == (60, 61, 30)
    assert sequences(kept) == list(range(1, 61))
    assert entries(kept) == [SAVED, "messages"]
    held = capture_in(place_of(str(kept)))
    assert held is not None
    assert held.chunks == tuple(Chunk(begin, begin + 14, 15) for begin in (1, 16, 31, 46))


@pytest.mark.parametrize("copied", [False, True])
async def test_what_is_moved_file_by_file_is_moved_by_the_next_run(
    run: Run, peer: RawPeer, kept: Path, unique_name: Name, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """An object store, where a run ended between two files: one is under the chunk's name only, or in both places."""
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 20)
    killing(monkeypatch, "it has appeared")
    with pytest.raises(KilledError):
        run(stream)
    (one,) = (kept / "messages").rglob("*.parquet")
    other, rows = one.with_name("part-00001.parquet"), pyarrow.parquet.read_table(one)
    pyarrow.parquet.write_table(rows.slice(0, 10), one)
    pyarrow.parquet.write_table(rows.slice(10), other)
    staged = kept / ".staging" / "20"
    staged.mkdir(parents=True, exist_ok=True)
    other.rename(staged / other.name)
    if copied:
        shutil.copy(one, staged / one.name)
    held = capture_in(place_of(str(kept)))
    assert held is not None
    assert (held.chunks, held.next) == ((), 1)
    await peer.api(f"STREAM.PURGE.{stream}")
    assert (run(stream).messages_held, sequences(kept)) == (20, list(range(1, 21)))
    assert entries(kept) == [SAVED, "messages"]


async def test_a_range_and_filters(run: Run, peer: RawPeer, tmp_path: Path, unique_name: Name) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 28)
    moments = [rfc3339_nano(one.time_ns).decode() for one in await stored_messages(peer, stream, 28)]

    def seen(name: str, **options: Any) -> list[int]:
        run(stream, directory=str(tmp_path / name), **options)
        return sequences(tmp_path / name)

    assert seen("a", begin=5, end=9) == [5, 6, 7, 8, 9]
    assert seen("a", begin=5) == list(range(5, 29))
    assert seen("b", end=3) == [1, 2, 3]
    assert seen("b", end=2) == [1, 2, 3]
    assert seen("b", end=6, chunk=2) == [1, 2, 3, 4, 5, 6]
    assert seen("c", subjects=(f"{stream}.1", f"{stream}.3")) == [n for n in range(1, 29) if (n - 1) % 7 in (1, 3)]
    assert seen("d", begin=100) == []
    moment = "2026-01-01T00:00:00Z"
    assert seen("e", end=moment) == []
    assert seen("e", begin=moment) == list(range(1, 29))
    assert seen("f", begin=moments[9], end=moments[20]) == list(range(10, 21))


async def test_messages_that_went_before_they_were_captured(
    run: Run, peer: RawPeer, spark: SparkSession, kept: Path, unique_name: Name
) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 10)
    run(stream)
    await fill(peer, stream, 10)
    await peer.api(f"STREAM.PURGE.{stream}", {"seq": 16})
    with pytest.raises(DataLostError) as lost:
        run(stream)
    assert str(lost.value) == (
        f"stream '{stream}': messages 11 to 15 were removed and not captured: use --allow-gaps to continue without them"
    )
    assert sequences(kept) == list(range(1, 11))
    result = run(stream, allow_gaps=True)
    assert (result.messages, result.gaps) == (5, ((11, 15),))
    assert sequences(kept) == [*range(1, 11), *range(16, 21)]
    held = required_capture(place_of(str(kept)))
    assert (ranges(held), held.messages, held.next) == (((1, 10), (16, 20)), 15, 21)
    await fill(peer, stream, 5)
    await peer.api(f"STREAM.PURGE.{stream}")
    assert run(stream, allow_gaps=True).gaps == ((11, 15), (21, 25))
    assert run(stream).messages == 0


_DROPPING: dict[str, dict[str, Any]] = {
    "a bucket": {"max_msgs_per_subject": 1, "discard": "new", "allow_rollup_hdrs": True},
    "max_msgs": {"max_msgs": 7},
    "max_bytes": {"max_bytes": 500},
}


@pytest.mark.parametrize("limits", _DROPPING)
@pytest.mark.parametrize("cold", [False, True], ids=["", "with a message that stays"])
@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_what_the_stream_has_dropped_is_counted_wherever_it_was(
    version: str, run: Run, peer: RawPeer, kept: Path, unique_name: Name, limits: str, cold: bool
) -> None:
    """A bucket drops what is replaced: behind the first message that it holds, or at its beginning."""
    stream = unique_name("CAPTURE")
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"], **_DROPPING[limits])
    if cold:
        await peer.store(f"{stream}.cold".encode(), b"stays")
    for _ in range(2):
        await fill(peer, stream, 7)
    first = run(stream)
    assert first.removed == 0  # whatever had been there before the first capture
    before = sequences(kept)
    for _ in range(3):
        await fill(peer, stream, 7)
    state = (await peer.api(f"STREAM.INFO.{stream}"))["state"]
    new = [
        one.sequence
        for one in await stored_messages(peer, stream, state["messages"])
        if one.sequence > (first.last_sequence or 0)
    ]
    second = run(stream)
    assert (second.messages, second.removed, second.gaps) == (len(new), 21 - len(new), ())
    assert sequences(kept) == [*before, *new]
    for _ in range(2):
        await fill(peer, stream, 7)
    await peer.api(f"STREAM.PURGE.{stream}")
    third = run(stream)
    assert (third.messages, third.files, third.removed, third.next_sequence) == (0, 0, 14, state["last_seq"] + 15)
    assert run(stream).removed == 0


async def test_what_a_stream_drops_while_it_is_read_is_counted(
    run: Run, peer: RawPeer, kept: Path, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = unique_name("CAPTURE")
    loop = asyncio.get_running_loop()
    original = capturing.write_chunk

    def write(*arguments: Any, **more: Any) -> Any:
        asyncio.run_coroutine_threadsafe(fill(peer, stream, 4), loop).result()
        return original(*arguments, **more)

    await fill(peer, stream, 10, max_msgs=10)
    run(stream)
    await fill(peer, stream, 10)
    monkeypatch.setattr(capturing, "write_chunk", write)
    result = await asyncio.to_thread(run, stream)
    assert (result.messages, result.removed, result.gaps) == (6, 4, ())
    assert sequences(kept) == [*range(1, 11), *range(15, 21)]


async def test_messages_that_go_just_before_they_are_read(
    run: Run, peer: RawPeer, kept: Path, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = unique_name("CAPTURE")
    loop = asyncio.get_running_loop()
    original = capturing.write_chunk

    async def purged_before_read(sequence: int, **options: Any) -> CaptureResult:
        def write(*arguments: Any, **more: Any) -> Any:
            purge = peer.api(f"STREAM.PURGE.{stream}", {"seq": sequence})
            asyncio.run_coroutine_threadsafe(purge, loop).result()
            return original(*arguments, **more)

        monkeypatch.setattr(capturing, "write_chunk", write)
        return await asyncio.to_thread(run, stream, **options)

    await fill(peer, stream, 20)
    assert (await purged_before_read(6)).first_sequence == 6  # no option says where to begin
    await fill(peer, stream, 20)
    with pytest.raises(Exception) as lost:  # noqa: PT011  # Spark's
        await purged_before_read(26)
    assert isinstance(failure("a job", lost.value), DataLostError)
    assert sequences(kept) == list(range(6, 21))
    await fill(peer, stream, 20)
    result = await purged_before_read(31, allow_gaps=True)
    assert (result.gaps, result.first_sequence) == (((21, 25), (26, 30)), 31)
    assert sequences(kept) == [*range(6, 21), *range(31, 61)]


async def test_a_beginning_that_is_gone(run: Run, peer: RawPeer, kept: Path, unique_name: Name) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 10)
    await peer.api(f"STREAM.PURGE.{stream}", {"seq": 4})
    with pytest.raises(DataLostError, match=r"messages 1 to 3 were removed"):
        run(stream, begin=1)
    assert run(stream, begin=1, allow_gaps=True).gaps == ((1, 3),)
    assert sequences(kept) == list(range(4, 11))


async def test_an_empty_stream(run: Run, peer: RawPeer, spark: SparkSession, kept: Path, unique_name: Name) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 0)
    assert (run(stream).messages_held, sequences(kept)) == (0, [])
    assert read_capture(spark, place_of(str(kept)), first=None, last=None).collect() == []
    await fill(peer, stream, 3)
    await peer.api(f"STREAM.PURGE.{stream}")
    assert run(stream).messages_held == 0
    await fill(peer, stream, 2)
    assert (run(stream).messages_held, sequences(kept)) == (2, [4, 5])


async def test_a_stream_that_was_recreated(run: Run, peer: RawPeer, kept: Path, unique_name: Name) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 5)
    run(stream)
    await peer.api(f"STREAM.DELETE.{stream}")
    await fill(peer, stream, 9)
    with pytest.raises(DataLostError, match=rf"^stream '{stream}': was recreated at .*: capture the new one into"):
        run(stream)
    assert sequences(kept) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
async def test_what_consumers_decide_about_is_left_alone(
    run: Run, peer: RawPeer, kept: Path, unique_name: Name, retention: str
) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 3, retention=retention)
    with pytest.raises(OptionError, match=r"could take messages from those that they are for"):
        run(stream)
    assert (await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"] == (3 if retention == "workqueue" else 0)
    assert entries(kept) == []


async def test_a_directory_that_holds_something_else(
    run: Run, peer: RawPeer, session: Spark, spark: SparkSession, tmp_path: Path, kept: Path, unique_name: Name
) -> None:
    stream, other = unique_name("CAPTURE"), unique_name("CAPTURE")
    await fill(peer, stream, 5)
    await fill(peer, other, 5)
    run(stream)

    def refused(kind: type[PipelineError] = OptionError, **options: Any) -> str:
        with pytest.raises(kind) as error:
            run(options.pop("stream", stream), **options)
        return str(error.value)

    assert (
        refused(stream=other)
        == f"{kept}: holds a capture of stream '{stream}', not of '{other}': name another directory"
    )
    assert refused(subjects=(f"{stream}.1",)).startswith(f"--subjects: {kept} holds a capture of all subjects;")
    assert refused(begin=2).startswith(f"--from 2: {kept} holds a capture from 1 on, which resumes at 6")
    assert refused(stream="NOWHERE", kind=PipelineError).startswith(f"{kept}: holds a capture of stream '{stream}'")
    assert refused(directory=__file__) == f"{__file__}: not a directory"
    assert refused(directory=f"{__file__}/below").startswith(f"{__file__}/below: ")
    assert refused(directory="nosuch://x/y").startswith("nosuch://x/y: is neither a directory of this machine nor ")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert refused(directory=str(tmp_path / "full")) == (
        f"{tmp_path / 'full'}: is not a capture, but holds notes.txt: take an empty or a new directory"
    )
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"
    (tmp_path / "full" / SAVED).write_text("{}")
    assert refused(directory=str(tmp_path / "full"), kind=PipelineError).endswith("of a captured stream")
    await fill(peer, stream, 5)
    run(stream)
    chunks = sorted((kept / "messages").iterdir())
    for chunk, said in ((chunks[0], "1 to 5"), (chunks[1], "6 to 10")):
        chunk.rename(tmp_path / "elsewhere")
        assert refused(PipelineError) == (
            f"{kept}: the chunk of {said} is missing: the capture was changed by something else"
        )
        (tmp_path / "elsewhere").rename(chunk)
    twice = kept / Chunk(8, 12, 5).folder
    twice.mkdir()
    assert refused(PipelineError).startswith(f"{kept}: holds messages from 8 on twice: two captures wrote to it")
    twice.rename(kept / "messages" / "elsewhere")
    assert refused(PipelineError).endswith("elsewhere is not a chunk: the capture was changed by something else")
    with pytest.raises(OptionError, match=r"nowhere: not a capture: there is no _stream.json"):
        read_capture(spark, place_of(str(tmp_path / "nowhere")), first=None, last=None)


async def test_one_writer_at_a_time(
    run: Run, peer: RawPeer, kept: Path, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 5)
    place = place_of(str(kept))
    place.make()
    with place.locked(), pytest.raises(PipelineError) as held:
        run(stream)
    assert str(held.value) == f"{kept}: another process writes to it; only one capture at a time can"
    # Elsewhere than in a directory of this machine there are no locks.
    monkeypatch.setattr(Place, "locked", lambda _: contextlib.nullcontext())
    original = capturing.write_chunk

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(capturing, "write_chunk", original)
        run(stream)
        return original(*arguments, **options)

    monkeypatch.setattr(capturing, "write_chunk", late)
    with pytest.raises(PipelineError, match=r"another capture has written to it: run one at a time"):
        run(stream)
    assert sequences(kept) == [1, 2, 3, 4, 5]
    assert run(stream).messages_held == 5


async def test_a_part_of_a_capture_is_read(
    run: Run, peer: RawPeer, spark: SparkSession, kept: Path, unique_name: Name
) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 20)
    run(stream, chunk=5)

    def seen(first: int | None, last: int | None) -> list[int]:
        frame = read_capture(spark, place_of(str(kept)), first=first, last=last)
        return sorted(row.sequence for row in frame.select("sequence").collect())

    assert seen(4, 11) == list(range(1, 16))
    assert seen(19, None) == list(range(16, 21))
    assert seen(None, 2) == list(range(1, 6))


class FileByFile(Place):
    """A place as in an object store, where files do not appear at once, and are moved one by one."""

    def __init__(self, path: str) -> None:
        super().__init__(path, LocalFileSystem(), path)
        self._is_local = False

    def uri(self, path: str = "") -> str:
        return f"file://{self.at(path)}"

    def move(self, source: str, target: str) -> None:
        self.make(target.rpartition("/")[0] if source.endswith(".parquet") else target)
        super().move(source, target)


async def test_a_place_in_an_object_store(
    run: Run, peer: RawPeer, kept: Path, unique_name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = unique_name("CAPTURE")
    await fill(peer, stream, 20)
    place = FileByFile(str(kept))
    far = Place("s3://b/orders/", S3FileSystem(anonymous=True, region="us-east-1"), "b/orders")
    assert (far.uri("x"), f"{far.below('y')}", far.below("y").at()) == (
        "s3a://b/orders/x",
        "s3://b/orders/y",
        "b/orders/y",
    )
    monkeypatch.setattr(capturing, "place_of", lambda _: place)
    assert run(stream, chunk=10).messages == 20
    await fill(peer, stream, 5)

    def dying(source: str, target: str) -> None:
        FileByFile.move(place, source, target)
        place.make(source)
        (moved,) = place.names(target)
        Path(place.at(target), moved).rename(place.at(f"{source}/{moved}"))
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(place, "move", dying)
        with pytest.raises(KilledError):
            run(stream)
    assert (run(stream).messages_held, sequences(kept)) == (25, list(range(1, 26)))
    assert capture_in(place_of(str(kept))) == capture_in(place)
    assert place.names("nowhere") == []
    assert (place.size("nowhere"), place.read("nowhere")) == (None, None)
    for text in ("ünï", "again"):
        place.replace("x", text)
        assert place.read("x") == text
    with pytest.raises(OptionError, match=r"/x: not a directory"):
        place.names("x")
    place.remove("x")
    place.remove("x")
    assert entries(kept) == [SAVED, "messages"]
