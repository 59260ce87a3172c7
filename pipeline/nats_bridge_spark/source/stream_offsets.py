"""The positions of a streaming read in its streams, and the form in which Spark stores them.

With the option `stream` an offset is `{"created": …, "messages": …, "sequence": …}`; with `streams` it is `{"streams":
{"ORDERS": {"created": …, …}, …}}`. The reported progress of a query also has `lag`. `messages` are sequence and time
(nanoseconds since 1970) of a message that identifies the stream if its creation time changes. Offsets of earlier
versions have none. `startTime` is included until a message of that time or later is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats_bridge.client.stream_identity import KnownStream, MessageStamp
from nats_bridge_spark.errors import OptionError
from nats_bridge_spark.source.read_options import ReadOptions


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a read in one stream.

    Attributes:
        stream: the facts that identify the stream.
        sequence: the last sequence that is done.
        start_time: RFC 3339; later sequences that were stored before it are not read. None without one.
    """

    stream: KnownStream
    sequence: int
    start_time: str | None = None


def offset_of(positions: Mapping[str, Position], options: ReadOptions, lag: int | None = None) -> dict[str, Any]:
    """Return the offset of these positions by stream, with the lag in messages if known."""
    each = {
        name: {"created": at.stream.created, "messages": at.stream.messages, "sequence": at.sequence}
        | ({"startTime": at.start_time} if at.start_time else {})
        for name, at in positions.items()
    }
    offset: dict[str, Any] = each[options.stream] if options.stream else {"streams": each}
    return offset if lag is None else {**offset, "lag": lag}


def positions_of(offset: Mapping[str, Any], options: ReadOptions) -> dict[str, Position]:
    """Return the positions of an offset, by stream.

    Raises:
        OptionError: the offset belongs to a read with the other option.
    """
    if ("streams" in offset) is bool(options.stream):
        now, before = ("stream", "streams") if options.stream else ("streams", "stream")
        raise OptionError(
            f"option {now}: the checkpoint is of a read with {before}; begin with a new checkpoint location"
        )
    each = {options.stream: offset} if options.stream else offset["streams"]
    return {name: Position(_stream(at), int(at["sequence"]), at.get("startTime")) for name, at in each.items()}


def _stream(at: Mapping[str, Any]) -> KnownStream:
    return KnownStream(str(at["created"]), tuple(MessageStamp(*each) for each in at.get("messages", ())))
