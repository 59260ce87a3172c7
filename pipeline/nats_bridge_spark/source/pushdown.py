"""Filters of a query that let a read leave out messages: those on sequence, time and subject.

Servers leave out some of the messages that no filter selects, and tasks the rest. Spark evaluates all other filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

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


def is_applied(one: Filter) -> bool:
    """Return whether a read only returns rows that pass a filter, so Spark need not evaluate it."""
    column, value = getattr(one, "attribute", ()), getattr(one, "value", None)
    if column in (("sequence",), ("time_ns",)):
        return isinstance(one, IsNotNull) or (type(one) in _COMPARISONS and _is_integer(value))
    if column == ("time",):
        return isinstance(one, IsNotNull) or (type(one) in _COMPARISONS and _is_moment(value))
    if column == ("subject",):
        return isinstance(one, IsNotNull) or (isinstance(one, (*_EQUAL, StringStartsWith)) and isinstance(value, str))
    return False


def passing(
    filters: Iterable[Filter], sequences: npt.NDArray[np.int64], times: npt.NDArray[np.int64], subjects: pa.BinaryArray
) -> npt.NDArray[np.bool_]:
    """Return a mask of the messages that pass all filters.

    Args:
        times: when they were stored, in nanoseconds since 1970.
    """
    kept = np.ones(len(sequences), np.bool_)
    for one in filters:
        column, value = getattr(one, "attribute", ()), getattr(one, "value", None)
        if isinstance(one, IsNotNull):
            continue
        if column == ("subject",):
            assert isinstance(value, str)
            same = pc.starts_with if isinstance(one, StringStartsWith) else pc.equal
            kept &= same(subjects, value.encode()).to_numpy(zero_copy_only=False)
        elif column == ("time",):
            kept &= _COMPARISONS[type(one)](times // 1000, _microseconds_since_1970(value))
        else:
            kept &= _COMPARISONS[type(one)](sequences if column == ("sequence",) else times, value)
    return kept


def narrowed(options: ReadOptions, filters: Iterable[Filter]) -> ReadOptions:
    """Return the options of a read with at least all messages that pass all filters, and as few others as possible."""
    filters = tuple(filters)
    options = replace(options, applied=(*options.applied, *filter(is_applied, filters)))
    for one in filters:
        column = getattr(one, "attribute", ())
        value: Any = getattr(one, "value", None)
        if column == ("sequence",) and _is_integer(value):
            options = _by_sequence(options, one, value)
        elif column == ("time_ns",) and _is_integer(value):
            options = _by_time(options, one, value)
        elif column == ("time",) and _is_moment(value):
            options = _by_time(options, one, _microseconds_since_1970(value) * 1000)
        elif column == ("subject",) and not options.subjects:
            options = replace(options, pushed_subject=_subject(one, value) or options.pushed_subject)
    return options


def _by_sequence(options: ReadOptions, one: Filter, value: int) -> ReadOptions:
    if isinstance(one, _AT_LEAST):
        first = value + isinstance(one, GreaterThan)
        options = replace(options, start_sequence=max(first, options.start_sequence or 1))
    if isinstance(one, _AT_MOST):
        last = value - isinstance(one, LessThan)
        known = options.end_sequence
        options = replace(options, end_sequence=last if known is None else min(last, known))
    return options


def _by_time(options: ReadOptions, one: Filter, nanoseconds: int) -> ReadOptions:
    if isinstance(one, _AT_LEAST):
        options = replace(options, since_ns=max(min(nanoseconds - _SLACK_NS, _LAST_NS), options.since_ns or 0))
    if isinstance(one, _AT_MOST):
        until = min(max(nanoseconds + _SLACK_NS, 0), _LAST_NS)
        options = replace(options, until_ns=until if options.until_ns is None else min(until, options.until_ns))
    return options


def _subject(one: Filter, value: Any) -> str | None:
    """Return a consumer filter that selects everything that passes the query's filter; None for everything."""
    if not isinstance(value, str):
        return None
    if isinstance(one, _EQUAL):
        return value if is_valid_publish(value.encode()) else None
    if isinstance(one, StringStartsWith):
        tokens, dot, _ = value.rpartition(".")
        return f"{tokens}.>" if dot and is_valid_publish(tokens.encode()) else None
    return None  # several subjects would need a server from 2.10 on


def _microseconds_since_1970(value: Any) -> int:
    since: timedelta = value - _EPOCH
    return since // timedelta(microseconds=1)


def _is_moment(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
