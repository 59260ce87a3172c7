"""Streaming write: each row once, also when a batch is played again after its ids are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nats_bridge_spark.errors import OptionError, PipelineError, RowError, reported
from tests.live.copying.forgotten_ids import PROBE, until_forgotten
from tests.live.raw_messages import RawPeer
from tests.live.shared_servers import Name
from tests.live.stored_messages import stored_messages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = "subject string, data binary"


@pytest.fixture
async def stream(peer: RawPeer, unique_name: Name) -> str:
    name = unique_name("FLOW")
    await peer.create_stream(name=name, subjects=[f"{name}.>"], duplicate_window=100_000_000)
    return name


@pytest.fixture
def run(spark: SparkSession, url: str, stream: str, tmp_path: Path) -> Callable[..., None]:
    """Run a query over files, one per batch, until there are no more; a second run resumes from the checkpoint."""

    def run(through: Callable[[DataFrame], DataFrame], **options: str) -> None:
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(tmp_path / "in"))
        frame = through(lines.selectExpr(f"concat('{stream}.', value) subject", "cast(value as binary) data"))
        writer = frame.writeStream.format("jetstream").option("servers", url).option("stream", stream)
        query = (
            writer.options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return run


def put(place: Path, batch: int, first: int, last: int) -> None:
    """A file with one row per number, without the last one."""
    (place / "in").mkdir(exist_ok=True)
    (place / "in" / f"{batch}.txt").write_text("".join(f"{number}\n" for number in range(first, last)))


async def stored(peer: RawPeer, stream: str) -> list[int]:
    last = int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])
    found = await stored_messages(peer, stream, last)
    return [int(message.payload) for message in found if message.payload != PROBE]


async def test_a_batch_that_failed_halfway_is_completed_after_a_restart(
    spark: SparkSession, run: Callable[..., None], peer: RawPeer, stream: str, tmp_path: Path, url: str
) -> None:
    fails = tmp_path / "fails"
    fails.touch()

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 4 and fails.exists():
                asyncio.run(until_forgotten(url, stream, 100))
                raise ValueError("planted")
            yield batch

    def large(frame: DataFrame) -> DataFrame:
        # Large enough for Spark to hand them on at once.
        padded = frame.selectExpr("subject", "cast(rpad(cast(data as string), 2000, ' ') as binary) data")
        return padded.coalesce(1).mapInArrow(through, ROWS)

    put(tmp_path, 0, 0, 100)
    run(large)
    assert await stored(peer, stream) == list(range(100))
    put(tmp_path, 1, 100, 800)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    try:
        with pytest.raises(Exception, match="planted"):
            run(large)
        found = await stored(peer, stream)
        assert 100 < len(found) < 800
        assert found == list(range(len(found)))
        fails.unlink()
        put(tmp_path, 2, 800, 850)
        run(large)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert await stored(peer, stream) == list(range(850))


async def test_what_is_wrong_ends_the_query_with_a_clear_error(
    run: Callable[..., None], peer: RawPeer, stream: str, tmp_path: Path
) -> None:
    put(tmp_path, 0, 0, 5)

    def failure(through: Callable[[DataFrame], DataFrame], **options: str) -> PipelineError:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever Spark makes of it
            run(through, **options)
        found = reported(caught.value)
        assert found is not None, caught.value
        return found

    wrong = failure(lambda frame: frame.selectExpr("'elsewhere' subject", "data"))
    assert isinstance(wrong, RowError)
    assert f"row 0 of partition 0 (subject 'elsewhere'): stream '{stream}' does not store this" in wrong.message
    missing = failure(lambda frame: frame, stream="NO_SUCH_STREAM")
    assert "stream 'NO_SUCH_STREAM': not found" in missing.message
    assert isinstance(failure(lambda frame: frame, patience="never"), OptionError)
    assert (await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"] == 0
