"""What the options and the schema of a read say, and what is said about wrong ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pyspark.sql.types import IntegerType, MapType, StringType, TimestampNTZType

from nats_bridge_spark.columns import read_schema
from nats_bridge_spark.connections import FIELDS
from nats_bridge_spark.errors import OptionError, SchemaError
from nats_bridge_spark.options import READ, given
from nats_bridge_spark.source.planning import CORES, cores, divided
from nats_bridge_spark.source.read_options import ReadOptions
from tests.spark.reading import spark_schema

_SERVER = {"servers": "nats://127.0.0.1:1", "stream": "S"}


def test_names_are_known_in_any_case_and_sparks_own_are_left_alone() -> None:
    options = ReadOptions.of({"SERVERS": "nats://127.0.0.1:1", "Stream": "S", "startsequence": "7", "path": "x"})
    assert (options.stream, options.start_sequence) == ("S", 7)


def test_names_of_the_connector_for_the_jvm() -> None:
    options = ReadOptions.of(
        {
            "nats.host": "127.0.0.1",
            "nats.port": "4333",
            "nats.stream.name": "S",
            "nats.stream.subjects": "a.*, b",
            "nats.credential.file": "/secret/creds",
            "nats.connection.timeout": "3",
        }
    )
    assert options.connection.servers == ("nats://127.0.0.1:4333",)
    assert (options.stream, options.subjects) == ("S", ("a.*", "b"))
    assert (str(options.connection.creds), options.connection.connect_timeout) == ("/secret/creds", 3)
    assert given({"nats.host": "::1"}, READ) == {"servers": "nats://[::1]:4222"}


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ("", ()),
        (">", ()),
        ("a, >", ()),
        ("a.*, a.b, a.b", ("a.*",)),
        ("a.>, a.*, a.b.c, b", ("a.>", "b")),
        ("a.*x, a.zzz", ("a.*x", "a.zzz")),
        ("a, a", ("a",)),
    ],
)
def test_filters_that_lie_within_others_are_left_out(filters: str, kept: tuple[str, ...]) -> None:
    assert ReadOptions.of({**_SERVER, "subjects": filters}).subjects == kept


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"stream": ""}, "option stream: missing"),
        ({"stream": "a.b"}, "option stream: 'a.b' cannot be"),
        ({"streams": "A,B"}, "option stream: is of one stream, and streams names several"),
        ({"minRowsPerTrigger": "9", "maxRowsPerTrigger": "8"}, "option minRowsPerTrigger: 9 is more than"),
        ({"maxTriggerDelay": "9s"}, "option maxTriggerDelay: says when minRowsPerTrigger"),
        ({"minRowsPerTrigger": "9", "maxTriggerDelay": "900"}, "option maxTriggerDelay: '900' is not a time"),
        ({"servers": ""}, "option servers: missing"),
        ({"servers": "nats://127.0.0.1:99999"}, "option servers: "),
        ({"servers": "nats://me:x@127.0.0.1:1"}, "use creds, nkeySeedFile, tokenFile, or user with passwordFile"),
        ({"user": "me"}, "option user: also needs 'passwordFile'"),
        ({"passwordFile": "/p"}, "option passwordFile: also needs 'user'"),
        ({"creds": "/c", "tokenFile": "/t"}, "option tokenFile: 'tokenFile' cannot be combined with 'creds'"),
        ({"domain": "d", "apiPrefix": "a"}, "option apiPrefix: 'apiPrefix' cannot be combined with 'domain'"),
        ({"connectTimeout": "soon"}, "option connectTimeout: "),
        ({"context": "c"}, "option servers: 'servers' cannot be combined with 'context', which already sets it"),
        ({"strat": "x"}, "option strat: unknown; did you mean"),
        ({"startSequnce": "1"}, "did you mean startSequence?"),
        ({"zzz": "1"}, "option zzz: unknown; known are apiPrefix, connectTimeout"),
        ({"nats.durable.name": "d"}, "option nats.durable.name: has no meaning here"),
        ({"nats.port": "1"}, "option nats.port: needs nats.host"),
        ({"nats.host": "h"}, "option nats.host: servers says"),
        ({"nats.stream.name": "T"}, "option stream: given twice"),
        ({"startSequence": "0"}, "option startSequence: 0 must be at least 1"),
        ({"startSequence": "x"}, "option startSequence: 'x' is not an integer"),
        ({"partitions": "0"}, "option partitions: 0"),
        ({"startTime": "yesterday"}, "option startTime: 'yesterday' is not a time"),
        ({"endTime": "9999-01-01T00:00:00Z"}, "option endTime: '9999-01-01T00:00:00Z' is not between"),
        ({"subjects": "a..b"}, "option subjects: 'a..b'"),
        ({"subjects": "a,,b"}, "option subjects: ''"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss: 'perhaps'"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError) as caught:
        ReadOptions.of({**_SERVER, **options})
    assert str(caught.value).startswith("option ")
    assert complaint in str(caught.value)


def test_several_streams_and_what_cannot_be_said_of_them() -> None:
    server = {"servers": "nats://127.0.0.1:1"}
    options = ReadOptions.of({**server, "streams": "A, B_*, A"})
    assert (options.stream, options.streams) == ("", ("A", "B_*"))
    assert options.of_stream("B_1") == ReadOptions.of({**server, "stream": "B_1"})
    for wrong, complaint in (
        ({"streams": "A,,B"}, "option streams: ''"),
        ({"streams": "a.*"}, "option streams: 'a.*' is neither"),
        ({"streams": "A", "startSequence": "3"}, "option startSequence: is of one stream"),
    ):
        with pytest.raises(OptionError, match=re.escape(complaint)):
            ReadOptions.of({**server, **wrong})


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("15m", 900), ("15 min", 900), ("1H", 3600)]
)
def test_a_delay_has_a_unit(text: str, seconds: float) -> None:
    options = ReadOptions.of({**_SERVER, "minOffsetsPerTrigger": "3", "maxTriggerDelay": text})
    assert (options.min_rows_per_trigger, options.max_trigger_delay) == (3, seconds)


@pytest.mark.parametrize(
    ("number", "waiting", "shares"),
    [
        (10, {"a": 3, "b": 4}, {"a": 3, "b": 4}),
        (10, {"a": 90, "b": 10, "c": 0}, {"a": 8, "b": 2, "c": 0}),
        (10, {"a": 1_000_000, "b": 1}, {"a": 9, "b": 1}),
        (1, {"a": 5, "b": 5}, {"a": 1, "b": 1}),
        (7, {}, {}),
    ],
)
def test_a_number_is_divided_by_what_waits_and_none_is_left_out(
    number: int, waiting: dict[str, int], shares: dict[str, int]
) -> None:
    assert divided(number, waiting) == shares


def test_columns_of_another_name_or_type_are_refused() -> None:
    cases = [
        (spark_schema(), "a schema without columns; messages have stream"),
        (spark_schema("sequence", "payload"), "column payload: messages have none; they have stream"),
        (spark_schema("sequence", sequence=IntegerType()), "column sequence: is bigint, not int"),
        (spark_schema("time", time=TimestampNTZType()), "column time: is timestamp, not timestamp_ntz"),
        (spark_schema("subject", subject=IntegerType()), "column subject: is string or binary, not int"),
        (
            spark_schema("headers", headers=MapType(StringType(), StringType())),
            "column headers: is array<struct<name:string,value:string>>, not map<string,string>",
        ),
    ]
    for schema, complaint in cases:
        with pytest.raises(SchemaError) as caught:
            read_schema(schema)
        assert complaint in str(caught.value)


def test_the_table_of_options_has_them_all() -> None:
    table = Path("docs/spark-streams.md").read_text().partition("\n## Options\n")[2]
    rows = re.findall(r"^\| (`.*?) \| ([RSW]+) \|", table, re.MULTILINE)
    reported = {name: ways for names, ways in rows for name in re.findall(r"`(\w+)`", names)}
    assert {name for name, ways in reported.items() if "R" in ways or "S" in ways} == {*READ, *FIELDS}


def test_cores_are_sparks_where_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CORES, "17")
    assert cores() == 17
    monkeypatch.delenv(CORES)
    assert cores() == (os.cpu_count() or 1)
