"""The column function, on Spark: nulls, bytes, errors on the driver, random functions, SQL, and what servers store."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

import pytest
from nats.aio.client import Client
from pyspark.sql import functions

from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.subject_column import register_transform, transform_subject
from tests.live.shared_servers import Name, SharedServers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE, DESTINATION = "orders.*.*", "{{partition(8,1,2)}}.orders.{{wildcard(2)}}.$1"


def answers(
    spark: SparkSession, subjects: list[str | None], src: str, dest: str, version: str = "2.15"
) -> list[object]:
    frame = spark.createDataFrame([(subject,) for subject in subjects], "subject string")
    made = frame.select(transform_subject("subject", src, dest, dialect=version).alias("subject"))
    return [row.subject for row in made.collect()]


def test_null_for_null_and_for_what_does_not_match(spark: SparkSession) -> None:
    subjects = ["orders.eu.42", None, "orders.eu", "other.eu.42", "orders.*.42", "orders..42", "orders.é.日本"]
    reported = answers(spark, subjects, SOURCE, DESTINATION)
    # As `nats-bridge explain --jsonl` says.
    assert reported == ["1.orders.42.eu", None, None, None, None, None, "5.orders.日本.é"]


def test_a_column_can_be_named_or_computed_and_is_used_like_any_other(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("EU", "7"), ("US", "8")], "region string, id string")
    subject = functions.concat_ws(".", functions.lit("orders"), functions.lower("region"), "id")
    found = frame.where(transform_subject(subject, "orders.*.*", "$2.$1") == "8.us").collect()
    assert [row.region for row in found] == ["US"]


def test_binary_subjects_and_results_that_are_no_utf_8(spark: SparkSession) -> None:
    subjects = [b"a.\xff\xfe", "a.é".encode(), None]
    frame = spark.createDataFrame([(bytearray(s) if s else None,) for s in subjects], "subject binary")
    whole = transform_subject("subject", "a.*", "{{partition(1000,1)}}.$1").cast("binary")
    cut = transform_subject("subject", "a.*", "{{left(1,1)}}").cast("binary")
    rows = frame.select(whole.alias("whole"), cut.alias("cut")).collect()
    assert [row.whole and bytes(row.whole) for row in rows] == [b"896.\xff\xfe", "217.é".encode(), None]
    assert [row.cut and bytes(row.cut) for row in rows] == [b"\xff", b"\xc3", None]


@pytest.mark.parametrize(
    ("src", "dest", "version", "said"),
    [
        ("orders.*", "{{partitions(8,1)}}", "2.15", "unknown function in {{partitions(8,1)}}"),
        ("orders.*", "o.{{wildcard(2)}}", "2.10", "wildcard index out of range in {{wildcard(2)}}: [2]"),
        ("orders.*.*", "o.$1", "2.9", "not using all of the token wildcard(s) in o.$1"),
        ("orders..x", "o", "2.15", "invalid subject"),
    ],
)
def test_what_a_server_refuses_is_refused_on_the_driver_in_its_words(
    spark: SparkSession, src: str, dest: str, version: str, said: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(said)) as refused:
        transform_subject("subject", src, dest, dialect=version)
    assert f"transform '{src}' → '{dest}': a 2." in str(refused.value)


def test_an_unknown_version_is_refused(spark: SparkSession) -> None:
    with pytest.raises(OptionError, match=r"dialect: unknown dialect '3\.0'"):
        transform_subject("subject", "a", "b", dialect="3.0")


def test_dialects_differ(spark: SparkSession) -> None:
    assert answers(spark, ["a"], "a", "{{partition(10)}}.x", "2.9") == ["{{partition(10)}}.x"]
    assert answers(spark, ["a"], "a", "{{partition(10)}}.x", "2.15") == ["0.x"]


def test_random_is_not_deterministic_to_spark(spark: SparkSession) -> None:
    frame = spark.range(200).select(functions.concat(functions.lit("a."), "id").alias("subject"))
    drawn = frame.select(transform_subject("subject", "a.*", "{{random(1000)}}.$1").alias("to"))
    # Spark would otherwise compute the column again behind a filter on it, and count other rows than it shows.
    found = drawn.where("to like '1%'").where("to like '11%'")
    assert {row.to[:2] for row in found.collect()} <= {"11"}
    assert len({row.to.partition(".")[0] for row in drawn.collect()}) > 50
    optimized = found._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]  # py4j's
    assert optimized.count("transformed(") == 1


def test_a_name_in_sql(spark: SparkSession) -> None:
    register_transform(spark, "by_region", "orders.*.*", "$1.{{left(2,1)}}")
    reported = spark.sql(
        "SELECT by_region(subject) AS t FROM VALUES ('orders.eu.42'), ('x'), (NULL) AS s(subject)"
    ).collect()
    assert [row.t for row in reported] == ["eu.4", None, None]
    with pytest.raises(OptionError, match="invalid subject"):
        register_transform(spark, "nothing", "orders..", "x")


@pytest.mark.parametrize("version", ["2.10.27", "2.15.3"])
async def test_partitions_are_those_of_a_servers_ingress_transform(
    spark: SparkSession,
    servers: SharedServers,
    unique_name: Name,
    connect: Callable[..., Awaitable[Client]],
    version: str,
) -> None:
    random = Random(6)
    head = unique_name("in")
    words = ["eu", "é", "日本", "a" * 60, "\U0001f600", "*x", ">x", "ß-1", "0"]
    src, dest = f"{head}.*.*", f"{head}_to.{{{{partition(97,2,1)}}}}.$1.{{{{partition(2000000000,1)}}}}"
    subjects = [f"{head}.{random.choice(words)}.{random.choice(words)}{number}" for number in range(150)]

    connection = await connect(await servers.url(version))
    jetstream = connection.jetstream()
    stream = unique_name("INGRESS")
    config = {"name": stream, "subjects": [src], "storage": "memory", "subject_transform": {"src": src, "dest": dest}}
    await jetstream._api_request(f"$JS.API.STREAM.CREATE.{stream}", json.dumps(config).encode())
    for subject in subjects:
        await jetstream.publish(subject, b"")
    stored = [(await jetstream.get_msg(stream, number)).subject for number in range(1, len(subjects) + 1)]

    assert answers(spark, [*subjects], src, dest, version) == stored
