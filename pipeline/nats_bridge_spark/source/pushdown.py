"""Filters of a query that let a read leave out messages: those on sequence, time and subject.

A read only leaves out what cannot pass a filter; Spark evaluates all filters on what is read. So a filter may be pushed
down in part, or not at all, and the answer is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from nats_bridge_spark.source.read_options import ReadOptions
from nats_transforms.subject import is_valid_publish

_EQUAL: Final = (EqualTo, EqualNullSafe)
_AT_LEAST: Final = (GreaterThan, GreaterThanOrEqual, *_EQUAL)
_AT_MOST: Final = (LessThan, LessThanOrEqual, *_EQUAL)
_SLACK_NS: Final = 60 * 10**9
"""A stream's times may go back where another server became its leader: by less than this, clocks of servers differ."""
_LAST_NS: Final = 9_200_000_000 * 10**9
"""Servers take later times for the past."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def narrowed(options: ReadOptions, filters: Iterable[Filter]) -> ReadOptions:
    """The options of a read that gives at least all messages that pass all filters."""
    for one in filters:
        column = getattr(one, "attribute", ())
        value: Any = getattr(one, "value", None)
        if column == ("sequence",) and _is_integer(value):
            options = _by_sequence(options, one, value)
        elif column == ("time_ns",) and _is_integer(value):
            options = _by_time(options, one, value)
        elif column == ("time",) and isinstance(value, datetime) and value.tzinfo is not None:
            options = _by_time(options, one, (value - _EPOCH) // timedelta(microseconds=1) * 1000)
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
    """A filter of a consumer that lets pass whatever passes the filter of the query; None for everything."""
    if not isinstance(value, str):
        return None
    if isinstance(one, _EQUAL):
        return value if is_valid_publish(value.encode()) else None
    if isinstance(one, StringStartsWith):
        tokens, dot, _ = value.rpartition(".")
        return f"{tokens}.>" if dot and is_valid_publish(tokens.encode()) else None
    return None  # several subjects would need a server from 2.10 on


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
