"""Real servers, as for the live tests, and one Spark session for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from nats_bridge_spark.session import spark_session
from tests.live.conftest import *  # noqa: F403  # the fixtures of real servers
from tests.live.conftest import _name_numbers  # noqa: F401  # one of them, which the star leaves out
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import SharedServers
from tests.spark.engines import ENGINES
from tests.spark.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use the session, or a cluster, start Java; others that start it are marked in their modules."""
    for item in items:
        if {"spark", "cluster"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.java)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores, whose failed tasks are tried again."""
    place = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "nats-bridge tests",
        settings={
            "spark.master": "local[2,3]",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # as `nats-bridge capture` sets it
            # as `nats-bridge diff` sets them
            "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
            "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
            "spark.ui.showConsoleProgress": "false",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(params=ENGINES)
def session(request: pytest.FixtureRequest) -> SparkSession | None:
    """What jobs of both engines run on: the session, and nothing."""
    return request.getfixturevalue("spark") if request.param == "spark" else None


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a job of Spark's waits as long as Spark may need."""
    monkeypatch.setattr("tests.live.until.LIMIT", PATIENCE)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows go from process to process by the hundred."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 100)
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.fixture
def version() -> str:
    """The servers' version; a module that tests several has one of its own."""
    return "2.10.27"


@pytest.fixture
async def url(version: str, servers: SharedServers) -> str:
    """Of the shared server of that version."""
    return await servers.url(version)


@pytest.fixture
async def peer(url: str, raw_peer: OpenPeer) -> RawPeer:
    """A connection to it."""
    return await raw_peer(url)
