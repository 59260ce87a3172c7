"""The options of a read, parsed from those of the data source."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from nats_bridge.settings import Connection
from nats_bridge_spark.connections import connection_of
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.options import READ, duration, flag, given, number
from nats_transforms.stream_config.start_time import InvalidTimeError, normal_time
from nats_transforms.subject import is_valid_filter
from nats_transforms.subject_patterns import Pattern

_FIRST_YEAR, _LAST_YEAR = 1970, 2261
"""Servers count nanoseconds since 1970 in 64 bits, and treat later times as past."""
_NO_NAME: Final = re.compile(r"[\s.*>/\\]")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """One stream or several, or a part of them.

    Attributes:
        streams: the names of several streams, with * for any characters; none for a single one.
        start_time: RFC 3339; messages stored then or later.
        end_time: RFC 3339; messages stored before.
        min_rows_per_trigger: the minimum number of messages in a batch of a streaming read; None for any.
        max_trigger_delay: seconds after the batch before, when one begins with fewer.
        patience: seconds that a task waits for a server without getting one message more.
    """

    connection: Connection = field(repr=False)
    stream: str
    streams: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    start_sequence: int | None = None
    end_sequence: int | None = None
    start_time: str | None = None
    end_time: str | None = None
    partitions: int | None = None
    payload: bool = True
    max_rows_per_trigger: int | None = None
    min_rows_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    fail_on_data_loss: bool = True
    patience: int = 30

    def of_stream(self, name: str) -> Self:
        """Return the options for one of the streams."""
        return self if name == self.stream else replace(self, stream=name, streams=())

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read the options of a data source, or raise an `OptionError`."""
        found = given(options, READ)
        stream, streams = found.get("stream", ""), _streams(found)
        if not stream and not streams:
            raise OptionError('option stream: missing; set .option("stream", "ORDERS"), or streams for several')
        require_name("option stream", stream)
        least, most = number(found, "minRowsPerTrigger"), number(found, "maxRowsPerTrigger")
        if least and most and least > most:
            raise OptionError(f"option minRowsPerTrigger: {least} is more than maxRowsPerTrigger, {most}")
        if "maxTriggerDelay" in found and not least:
            raise OptionError("option maxTriggerDelay: says when minRowsPerTrigger no longer holds; say that, too")
        times = {name: time_of(f"option {name}", found[name]) for name in ("startTime", "endTime") if name in found}
        return cls(
            connection=connection_of(found),
            stream=stream,
            streams=streams,
            subjects=filters_of("option subjects", found.get("subjects", "")),
            start_sequence=number(found, "startSequence"),
            end_sequence=number(found, "endSequence", least=0),
            start_time=times.get("startTime"),
            end_time=times.get("endTime"),
            partitions=number(found, "partitions"),
            payload=flag(found, "payload", default=True),
            max_rows_per_trigger=most,
            min_rows_per_trigger=least,
            max_trigger_delay=duration(found, "maxTriggerDelay") or 900.0,
            fail_on_data_loss=flag(found, "failOnDataLoss", default=True),
            patience=number(found, "patience") or 30,
        )


def _streams(found: Mapping[str, str]) -> tuple[str, ...]:
    if "streams" not in found:
        return ()
    for name in ("stream", "startSequence", "endSequence"):
        if name in found:
            raise OptionError(f"option {name}: is of one stream, and streams names several; leave one out")
    names = tuple(dict.fromkeys(part.strip() for part in found["streams"].split(",")))
    for one in names:
        if not one or _NO_NAME.search(one.replace("*", "")):
            raise OptionError(f"option streams: '{one}' is neither a stream's name nor a pattern such as ORDERS_*")
    return names


def require_name(place: str, stream: str) -> None:
    """Refuse a text that cannot be the name of a stream, with an `OptionError`."""
    if _NO_NAME.search(stream):
        raise OptionError(f"{place}: '{stream}' cannot be a stream's name: no white space, none of .*>/\\")


def filters_of(place: str, text: str) -> tuple[str, ...]:
    """Return the filters in a text, separated by commas (none for everything), or raise an `OptionError`."""
    filters = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    for one in filters:
        if not is_valid_filter(one.encode()):
            raise OptionError(f"{place}: '{one}' is not a subject that a consumer can be made for")
    # A filter for everything is no filter. Servers refuse a filter that lies within another.
    patterns = {one: Pattern.of(one) for one in filters}
    wide = [
        one for one in patterns if not any(patterns[one].within(patterns[other]) for other in patterns if other != one)
    ]
    return () if ">" in filters else tuple(wide)


def time_of(place: str, text: str) -> str:
    """Return a moment as RFC 3339 with a zone, or raise an `OptionError`."""
    try:
        time = normal_time(text)
    except InvalidTimeError:
        raise OptionError(
            f"{place}: '{text}' is not a time; write it as 2026-01-31T12:00:00Z, or with +01:00"
        ) from None
    if not _FIRST_YEAR <= int(time[:4]) <= _LAST_YEAR:
        raise OptionError(f"{place}: '{text}' is not between the years {_FIRST_YEAR} and {_LAST_YEAR}")
    return time
