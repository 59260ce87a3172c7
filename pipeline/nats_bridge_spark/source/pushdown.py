"""Filters of a query that let a read leave out messages: those on sequence, time and subject.

Servers leave out some of the messages that no filter selects, and tasks the rest. Spark evaluates all other filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from nats_bridge_spark.source.read_options import ReadOptions
from nats_transforms.subject import is_valid_publish

_COMPARISONS: Final[dict[type[Filter], Any]] = {
    EqualTo: np.equal,
    EqualNullSafe: np.equal,
    GreaterThan: np.greater,
    GreaterThanOrEqual: np.greater_equal,
    LessThan: np.less,
    LessThanOrEqual: np.less_equal,
}
_EQUAL: Final = (EqualTo, EqualNullSafe)
_AT_LEAST: Final = (GreaterThan, GreaterThanOrEqual, *_EQUAL)
_AT_MOST: Final = (LessThan, LessThanOrEqual, *_EQUAL)
_SLACK_NS: Final = 60 * 10**9
"""A stream's times may go back when another server becomes its leader, by less than this difference between clocks."""
_LAST_NS: Final = 9_200_000_000 * 10**9
"""Servers treat later times as past."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


_Condition: TypeAlias = tuple[str, type[Filter], Any]
"""A filter's column, its kind, and its value: text for `subject`, an integer otherwise, of microseconds for `time`."""


def _condition(one: Filter) -> _Condition | None:
    """Return a filter that reads can apply; None for another one."""
    column, kind, value = getattr(one, "attribute", ()), type(one), getattr(one, "value", None)
    if column == ("subject",) and kind in (*_EQUAL, StringStartsWith) and isinstance(value, str):
        return "subject", kind, value
    if kind not in _COMPARISONS:
        return None
    if column in (("sequence",), ("time_ns",)) and isinstance(value, int) and not isinstance(value, bool):
        return column[0], kind, value
    if column == ("time",) and isinstance(value, datetime) and value.tzinfo is not None:
        return "time", kind, (value - _EPOCH) // timedelta(microseconds=1)
    return None


def is_applied(one: Filter) -> bool:
    """Return whether a read only returns rows that pass a filter, so Spark need not evaluate it."""
    if isinstance(one, IsNotNull):
        return one.attribute in (("sequence",), ("time_ns",), ("time",), ("subject",))
    return _condition(one) is not None


def passing(
    filters: Iterable[Filter], sequences: npt.NDArray[np.int64], times: npt.NDArray[np.int64], subjects: pa.BinaryArray
) -> npt.NDArray[np.bool_]:
    """Return a mask of the messages that pass all filters.

    Args:
        times: when they were stored, in nanoseconds since 1970.
    """
    kept = np.ones(len(sequences), np.bool_)
    for column, kind, value in filter(None, map(_condition, filters)):
        if column == "subject":
            same = pc.starts_with if kind is StringStartsWith else pc.equal
            kept &= same(subjects, value.encode()).to_numpy(zero_copy_only=False)
        else:
            numbers = {"sequence": sequences, "time_ns": times, "time": times // 1000}[column]
            kept &= _COMPARISONS[kind](numbers, value)
    return kept


def narrowed(options: ReadOptions, filters: Iterable[Filter]) -> ReadOptions:
    """Return the options of a read with at least all messages that pass all filters, and as few others as possible."""
    filters = tuple(filters)
    options = replace(options, applied=(*options.applied, *filter(is_applied, filters)))
    for column, kind, value in filter(None, map(_condition, filters)):
        if column == "sequence":
            options = _by_sequence(options, kind, value)
        elif column == "subject":
            if not options.subjects:
                options = replace(options, pushed_subject=_subject(kind, value) or options.pushed_subject)
        else:
            options = _by_time(options, kind, value if column == "time_ns" else value * 1000)
    return options


def _by_sequence(options: ReadOptions, kind: type[Filter], value: int) -> ReadOptions:
    if kind in _AT_LEAST:
        first = value + (kind is GreaterThan)
        options = replace(options, start_sequence=max(first, options.start_sequence or 1))
    if kind in _AT_MOST:
        last = value - (kind is LessThan)
        known = options.end_sequence
        options = replace(options, end_sequence=last if known is None else min(last, known))
    return options


def _by_time(options: ReadOptions, kind: type[Filter], nanoseconds: int) -> ReadOptions:
    if kind in _AT_LEAST:
        options = replace(options, since_ns=max(min(nanoseconds - _SLACK_NS, _LAST_NS), options.since_ns or 0))
    if kind in _AT_MOST:
        until = min(max(nanoseconds + _SLACK_NS, 0), _LAST_NS)
        options = replace(options, until_ns=until if options.until_ns is None else min(until, options.until_ns))
    return options


def _subject(kind: type[Filter], value: str) -> str | None:
    """Return a consumer filter that selects everything that passes the query's filter; None for everything."""
    if kind is not StringStartsWith:
        return value if is_valid_publish(value.encode()) else None
    tokens, dot, _ = value.rpartition(".")
    return f"{tokens}.>" if dot and is_valid_publish(tokens.encode()) else None
