"""What a stream holds, as its server reports it."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.errors import ApiError
from nats_bridge_spark.errors import OptionError, PipelineError

_LISTED = 10_000
"""So many deleted sequences are asked for by name; where there are more, the server is asked where to cut."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream at one moment.

    Attributes:
        name: of the stream.
        known: by what it is recognised.
        bounds: its first and last message.
        first: the first sequence that it holds, or will hold if it is empty.
        last: the last sequence that it gave.
        last_time: when the last one was stored (RFC 3339).
        messages: how many it holds.
        size: bytes of all of them, with what the server adds.
        deleted: sequences between first and last that were removed, in order; None if there are too many to list.
        limits: whether it keeps messages whatever consumers do (not a work queue, not for interest).
        drops: whether what is missing at its front may have been dropped, by a limit for all of it or by a purge.
            Without such a limit, newer messages of a subject take the place of older ones in a bucket all the time.
    """

    name: str
    known: KnownStream
    bounds: Bounds
    first: int
    last: int
    last_time: str
    messages: int
    size: int
    deleted: tuple[int, ...] | None
    limits: bool
    drops: bool = True

    @property
    def created(self) -> str:
        """When it was created, as the server reports it."""
        return self.known.created

    def is_another_than(self, known: KnownStream) -> bool:
        """Whether it is not a stream that was known before."""
        return known.differs(self.created, self.bounds)

    def has_lost(self, sequence: int) -> bool:
        """Whether messages from a sequence on may be lost: at the front, servers do not say how they went."""
        return self.drops and self.first > sequence

    @property
    def average(self) -> int:
        """Bytes of a message, about."""
        return self.size // self.messages + 1 if self.messages else 1

    def require_limits(self, done: str) -> None:
        """Refuse a stream whose consumers decide what it keeps.

        Args:
            done: what is done to streams, such as `read`.

        Raises:
            OptionError: it is one.
        """
        if not self.limits:
            raise OptionError(
                f"stream '{self.name}': is a work queue, or keeps messages for consumers only: reading it could take"
                f" messages from those that they are for; only streams with retention limits are {done}"
            )


async def states_of(connection: Connection, wanted: Sequence[str], left_out: set[str]) -> list[StreamState]:
    """The states of the streams that a read is of, each once, in the order of their names.

    Of those that a pattern matches, the ones whose consumers decide what they keep are left out, with a warning.

    Args:
        connection: a connection.
        wanted: names and patterns, in which * stands for any characters.
        left_out: the names of those that were left out before; others are added.

    Raises:
        OptionError: the consumers of one that is named decide what it keeps.
        PipelineError: one that is named is not there.
        ApiError: the server refuses, or does not answer.
    """
    states = []
    for name in await _names_of(connection, wanted):
        state = await state_of(connection, name)
        if state.limits or name in wanted:
            state.require_limits("read")
            states.append(state)
        elif name not in left_out:
            left_out.add(name)
            print(  # noqa: T201
                f"jetstream: stream '{name}' is left out: it is a work queue, or keeps messages for consumers only,"
                " and reading it could take messages from those that they are for",
                file=sys.stderr,
            )
    return states


async def _names_of(connection: Connection, wanted: Sequence[str]) -> list[str]:
    """The names of the streams that a read is of, each once, in order; named ones also where they are not there."""
    patterns = [re.compile(".*".join(map(re.escape, one.split("*")))) for one in wanted if "*" in one]
    found = {one for one in wanted if "*" not in one}
    if patterns:
        there = await connection.api.stream_names()
        found.update(name for name in there if any(pattern.fullmatch(name) for pattern in patterns))
    return sorted(found)


async def state_of(connection: Connection, stream: str, *, listing: bool = False) -> StreamState:
    """Ask for a stream's state.

    Args:
        connection: a connection.
        stream: the stream's name.
        listing: with the deleted sequences, where there are not too many.

    Raises:
        PipelineError: there is no such stream.
        ApiError: the server refuses, or does not answer.
    """
    info = await stream_info(connection, stream)
    if listing and 0 < int(info["state"].get("num_deleted", 0)) <= _LISTED:
        info = await stream_info(connection, stream, deleted=True)
    return _state(stream, info)


async def stream_info(connection: Connection, stream: str, *, deleted: bool = False) -> Json:
    """`STREAM.INFO`, with the deleted sequences if wanted.

    Raises:
        PipelineError: there is no such stream.
        ApiError: the server refuses, or does not answer.
    """
    try:
        return await connection.api.stream_info(stream, deleted=deleted)
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        raise PipelineError(await _missing(connection, stream)) from None


def _state(stream: str, info: Json) -> StreamState:
    state, config = info["state"], info["config"]
    deleted: tuple[int, ...] | None = tuple(sorted(state.get("deleted") or ()))
    if len(deleted or ()) != int(state.get("num_deleted", 0)):
        deleted = None
    return StreamState(
        name=stream,
        known=KnownStream.of(info),
        bounds=Bounds.of(info),
        first=int(state["first_seq"]),
        last=int(state["last_seq"]),
        last_time=str(state["last_ts"]),
        messages=int(state["messages"]),
        size=int(state["bytes"]),
        deleted=deleted,
        limits=config.get("retention", "limits") == "limits",
        drops=_drops(config),
    )


def _drops(config: Json) -> bool:
    limits = ("max_age", "max_msgs", "max_bytes") if config.get("discard", "old") == "old" else ("max_age",)
    if any(int(config.get(limit) or -1) > 0 for limit in limits):
        return True
    return int(config.get("max_msgs_per_subject") or -1) < 1 and not config.get("deny_purge")


async def _missing(connection: Connection, stream: str) -> str:
    try:
        names = sorted(await connection.api.stream_names())
    except ApiError:
        names = []
    has = f"; there are {', '.join(names[:10])}{', …' if len(names) > 10 else ''}" if names else ""
    return f"stream '{stream}': not found at {', '.join(connection.servers)}{has}"
