"""Reads and writes with credentials, TLS and clusters; and that secrets show nowhere: not in plans, logs or errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nats_bridge.settings import Connection
from nats_bridge_spark.connections import connected, connected_by_options, connection_of, options_of
from nats_bridge_spark.errors import OptionError, PipelineError, reported
from nats_conformance.native_servers import NativeCluster
from tests.live.security.credentials import Files, Make, client_certificate, creds, nkey, password
from tests.live.shared_servers import Servers
from tests.live.until import LIMIT, until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = 50
MORE = 1000


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """What Spark and its Python workers log from now on, at the most verbose level without a debugger."""
    file, jvm = tmp_path / "spark.log", spark._jvm
    log4j = jvm.org.apache.logging.log4j
    appender = log4j.core.appender.FileAppender.newBuilder().withFileName(str(file)).setName("kept").build()
    appender.start()
    context = log4j.LogManager.getContext(False)
    context.getConfiguration().getRootLogger().addAppender(appender, None, None)
    before = jvm.java.lang.System.err
    jvm.java.lang.System.setErr(jvm.java.io.PrintStream(jvm.java.io.FileOutputStream(str(file), True), True))
    spark.sparkContext.setLogLevel("INFO")
    yield file
    spark.sparkContext.setLogLevel("ERROR")
    jvm.java.lang.System.setErr(before)
    context.getConfiguration().getRootLogger().removeAppender("kept")
    appender.stop()


def payload(number: int) -> bytes:
    """Large enough for Spark to hand rows on by the hundred."""
    return b"%d" % number + b" " * 2000


def read(spark: SparkSession, options: dict[str, str], stream: str) -> DataFrame:
    return spark.read.format("jetstream").options(**options).option("stream", stream).load()


def copied(spark: SparkSession, options: dict[str, str], through: Callable[[Any], Any] | None = None) -> None:
    """From IN to OUT, by Spark."""
    rows = read(spark, options, "IN").orderBy("sequence").coalesce(1)
    frame = rows.selectExpr("concat('out', substr(subject, 3)) subject", "data")
    if through is not None:
        frame = frame.mapInArrow(through, frame.schema)
    frame.write.format("jetstream").mode("append").options(**options).option("stream", "OUT").save()


async def filled(connection: Connection, messages: int, **config: Any) -> None:
    """Streams IN, with messages, and OUT."""
    async with connected(connection) as opened:
        for name, subject in (("OUT", "out.>"), ("IN", "in.>")):
            await opened.api.request(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject], **config})
        for number in range(1, messages):
            await opened.client.publish(f"in.{number}", payload(number))
        await opened.client.request(f"in.{messages}", payload(messages), timeout=LIMIT)


def payloads(spark: SparkSession, options: dict[str, str]) -> list[bytes]:
    return [bytes(row.data) for row in read(spark, options, "OUT").orderBy("sequence").collect()]


@pytest.mark.parametrize("way", [creds, nkey, password, client_certificate], ids=lambda way: way.__name__)
async def test_logged_in_without_a_secret_in_plans_logs_and_errors(
    way: Make, spark: SparkSession, native_server: Servers, tmp_path: Path, capfd: pytest.CaptureFixture[str], log: Path
) -> None:
    files = Files(tmp_path)
    made = way(files, "")
    async with native_server("2.10.27", config=made.config) as server:
        good, wrong = (
            Connection.model_validate({"servers": [server.url], "connect_timeout": LIMIT, **fields})
            for fields in (made.connection, made.wrong)
        )
        await filled(good, ROWS)
        copied(spark, options_of(good))
        assert payloads(spark, options_of(good)) == [payload(number) for number in range(1, ROWS + 1)]
        read(spark, options_of(good), "IN").explain(extended=True)

        errors = []
        for work in (lambda: read(spark, options_of(wrong), "IN").collect(), lambda: copied(spark, options_of(wrong))):
            with pytest.raises(Exception, match="nats-bridge says") as caught:
                work()
            assert isinstance(reported(caught.value), PipelineError)
            errors.append(str(caught.value))
    # Of the write the driver prints a line; plans go to stdout.
    printed = "".join(capfd.readouterr())
    assert "jetstream" in printed
    logged = await asyncio.to_thread(log.read_text, "utf-8", "replace")
    assert "DAGScheduler" in logged
    assert files.secrets
    for secret in files.secrets:
        assert not [text for text in (printed, logged, *errors) if secret in text]


def test_an_address_with_a_password_is_refused_without_showing_it(spark: SparkSession, log: Path) -> None:
    with pytest.raises(Exception, match="nats-bridge says") as caught:
        read(spark, {"servers": "nats://me:pw-S3cret@127.0.0.1:1"}, "IN").collect()
    error = reported(caught.value)
    assert isinstance(error, OptionError)
    assert "contains a secret" in str(error)
    assert "S3cret" not in str(caught.value) + log.read_text("utf-8", "replace")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"creds": "{place}/creds"}, "option creds: {place}/creds: no such file"),
        ({"nkeySeedFile": "{place}/nkey_seed_file"}, "option nkeySeedFile: {place}/nkey_seed_file: no such file"),
        ({"user": "me", "passwordFile": "{place}"}, "option passwordFile: {place}: is a folder, not a file"),
        ({"tlsCa": "{place}/ca"}, "option tlsCa: {place}/ca: no such file"),
        ({"tlsCert": "{place}/cert"}, "option tlsCert: also needs 'tlsKey'"),
        ({"context": "nowhere"}, "option context: no context 'nowhere' in "),
        ({"tokenFile": "{place}/token"}, "check creds, nkeySeedFile, tokenFile or user/passwordFile"),
    ],
)
async def test_what_is_wrong_with_a_login_is_said_of_the_options(
    options: dict[str, str], complaint: str, native_server: Servers, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("wrong")
    given = {name: value.format(place=tmp_path) for name, value in options.items()}
    async with native_server("2.10.27", config="authorization { token: right }") as server:
        servers = {} if "context" in given else {"servers": server.url}
        with pytest.raises(PipelineError) as caught:
            async with connected_by_options(connection_of({**servers, **given})):
                pass
    assert complaint.format(place=tmp_path) in str(caught.value)
    assert "connection" not in str(caught.value)


async def test_a_cluster_that_loses_the_leader_of_the_target(
    spark: SparkSession, small_batches: None, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def held_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 5:
                while not go.exists():
                    time.sleep(0.02)
            yield batch

    with NativeCluster("2.10.27") as cluster:
        connection = Connection.model_validate({"servers": cluster.urls, "connect_timeout": LIMIT})
        await filled(connection, MORE, num_replicas=3)
        options = options_of(connection)

        async def leader_is_killed() -> None:
            async with connected(connection) as opened:

                async def has_some() -> bool:
                    return int((await opened.api.stream_info("OUT"))["state"]["messages"]) > 0

                await until(has_some)
                leader = (await opened.api.stream_info("OUT"))["cluster"]["leader"]
            next(node for node in cluster.nodes if node.name == leader).kill()
            go.touch()

        # Spark knows a Python data source only where its session is at home, which is this thread.
        with ThreadPoolExecutor() as others:
            killing = others.submit(asyncio.run, leader_is_killed())
            copied(spark, options, held_up)
            killing.result()
        assert payloads(spark, options) == [payload(number) for number in range(1, MORE + 1)]
