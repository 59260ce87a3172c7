"""What filters of a query leave out of a read, and what Spark sees of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from nats_bridge_spark.source.pushdown import narrowed
from nats_bridge_spark.source.read_options import ReadOptions
from nats_transforms.timestamp import nanoseconds_of
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, SharedServers
from tests.spark.reading import Read

_ALL = ReadOptions.of({"servers": "nats://127.0.0.1:1", "stream": "S"})
_S = ("sequence",)
_MINUTE = 60 * 10**9


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], (None, None)),
        ([GreaterThan(_S, 4), LessThan(_S, 9)], (5, 8)),
        ([GreaterThanOrEqual(_S, 4), LessThanOrEqual(_S, 9)], (4, 9)),
        ([GreaterThan(_S, 4), GreaterThan(_S, 2), LessThan(_S, 9), LessThan(_S, 20)], (5, 8)),
        ([EqualTo(_S, 7)], (7, 7)),
        ([EqualNullSafe(_S, 7)], (7, 7)),
        ([Not(EqualTo(_S, 7)), In(_S, (1, 2))], (None, None)),
        ([EqualTo(("other",), 7), EqualTo(("a", "sequence"), 7), EqualTo(_S, None)], (None, None)),
    ],
)
def test_sequences(filters: list[Filter], bounds: tuple[int | None, int | None]) -> None:
    found = narrowed(_ALL, filters)
    assert (found.start_sequence, found.end_sequence) == bounds


@pytest.mark.parametrize(
    ("one", "since", "until"),
    [
        (GreaterThan(("time_ns",), 10**18), 10**18 - _MINUTE, None),
        (LessThanOrEqual(("time_ns",), 10**18), None, 10**18 + _MINUTE),
        (EqualTo(("time",), datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)), 10**18 - _MINUTE, 10**18 + _MINUTE),
        (EqualTo(("time",), datetime(2001, 9, 9, 1, 46, 40)), None, None),  # of whatever zone
        (GreaterThan(("time",), datetime(9999, 1, 1, tzinfo=UTC)), 9_200_000_000 * 10**9, None),
        (LessThan(("time_ns",), -(10**18)), None, 0),
    ],
)
def test_times_leave_room_for_clocks_that_differ(one: Filter, since: int | None, until: int | None) -> None:
    found = narrowed(_ALL, [one])
    assert (found.since_ns, found.until_ns) == (since, until)


@pytest.mark.parametrize(
    ("one", "subjects"),
    [
        (EqualTo(("subject",), "a.b"), ("a.b",)),
        (EqualTo(("subject",), "a.*"), ()),
        (EqualTo(("subject",), ">"), ()),
        (EqualTo(("subject",), "a b"), ()),
        (EqualTo(("subject",), b"a.b"), ()),
        (StringStartsWith(("subject",), "a.b."), ("a.b.>",)),
        (StringStartsWith(("subject",), "a.b"), ("a.>",)),
        (StringStartsWith(("subject",), "a"), ()),
        (StringStartsWith(("subject",), "*.b"), ()),
        (StringStartsWith(("subject",), "a..b"), ()),
        (StringContains(("subject",), "a.b"), ()),
    ],
)
def test_subjects(one: Filter, subjects: tuple[str, ...]) -> None:
    assert narrowed(_ALL, [one]).filters == subjects


def test_the_subjects_that_the_user_named_stay() -> None:
    named = ReadOptions.of({"servers": "nats://127.0.0.1:1", "stream": "S", "subjects": "a.*"})
    assert narrowed(named, [EqualTo(("subject",), "b")]).filters == ("a.*",)


async def test_a_reader_leaves_out_what_passes_no_filter(
    servers: SharedServers, raw_peer: OpenPeer, unique_name: Name
) -> None:
    url, stream = await servers.url("2.9.10"), unique_name("PUSHED")
    peer = await raw_peer(url)
    await peer.create_stream(name=stream, subjects=[f"{stream}.>"])
    for number in range(1, 31):
        await peer.store(f"{stream}.{number % 3}".encode())
    stored = (await peer.api(f"STREAM.MSG.GET.{stream}", {"seq": 12}))["message"]
    cases: list[tuple[Filter, list[int]]] = [
        (GreaterThan(_S, 25), [26, 27, 28, 29, 30]),
        (EqualTo(("subject",), f"{stream}.2"), list(range(2, 31, 3))),
        (EqualTo(("subject",), "elsewhere"), []),  # this server refuses to look for it
        (StringStartsWith(("subject",), f"{stream}.0"), list(range(3, 31, 3))),
        (LessThan(("time_ns",), 10**18), []),
        (GreaterThan(("time_ns",), 10**18), list(range(1, 31))),
        (GreaterThan(("time_ns",), nanoseconds_of(stored["time"])), list(range(13, 31))),
        (GreaterThanOrEqual(("time",), datetime.fromisoformat(stored["time"])), list(range(12, 31))),
        (IsNotNull(("subject",)), list(range(1, 31))),
    ]
    others: list[Filter] = [
        Not(EqualTo(_S, 7)),
        In(_S, (1, 2)),
        StringContains(("subject",), "x"),
        IsNotNull(("data",)),
    ]
    for one, sequences in cases:
        read = Read(url, stream)
        push: Any = read.reader.pushFilters
        # What Spark checks where its setting is off: a reader with a pushFilters of its own would be refused.
        assert push.__func__ is DataSourceReader.pushFilters
        assert push([*others, one]) == others
        assert await read.sequences() == sequences
