"""The state of a stream, as its server reports it."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import STREAM_NOT_FOUND, Json
from nats_bridge.client.stream_identity import Bounds, KnownStream
from nats_bridge.errors import ApiError, NotPermittedError
from nats_bridge_spark.errors import DataLostError, OptionError, PipelineError

_LISTED = 10_000
"""Maximum number of deleted sequences to request as a list; if there are more, the server is asked where to cut."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream at one moment.

    Attributes:
        first: the first sequence, or the next one if it is empty.
        last_time: when the last one was stored (RFC 3339).
        size: bytes of all messages, with the server's additions.
        deleted: sequences between first and last that were removed, in order; None if there are too many to list.
        limits: whether it keeps messages independently of consumers (neither a work queue nor interest).
        removes: whether its configuration makes it remove messages anywhere.
        drops: whether messages missing at its front may have been dropped, by a limit for the whole stream or by a
            purge. Without such a limit, as in a bucket, newer messages of a subject constantly replace older ones.
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
    removes: bool
    drops: bool

    @property
    def created(self) -> str:
        """The creation time, in the server's format."""
        return self.known.created

    def is_another_than(self, known: KnownStream) -> bool:
        """Return whether it is not a stream that was known before."""
        return known.differs(self.created, self.bounds)

    def require_held(self, first: int, last: int, remedy: str) -> None:
        """Raise a `DataLostError` with a remedy if the stream may have dropped messages at the front of a range."""
        if self.drops and first < self.first and first <= last:
            raise DataLostError(
                f"stream '{self.name}': messages {first} to {min(self.first - 1, last)} were removed unread (by a"
                f" limit, a purge, or one by one: servers do not say it), it now begins at {self.first}: {remedy}"
            )

    @property
    def average(self) -> int:
        """Bytes of a message, about."""
        return self.size // self.messages + 1 if self.messages else 1

    def require_limits(self, done: str) -> None:
        """Refuse a stream whose consumers decide which messages it keeps, with an `OptionError` about the action."""
        if not self.limits:
            raise OptionError(
                f"stream '{self.name}': is a work queue, or keeps messages for consumers only: reading it could take"
                f" messages from those that they are for; only streams with retention limits are {done}"
            )


async def states_of(connection: Connection, wanted: Sequence[str], left_out: set[str]) -> list[StreamState]:
    """Return the states of the streams that a read is of, each once, in the order of their names.

    Streams that only match a pattern are left out with a warning if their consumers decide which messages they keep.

    Args:
        wanted: names and patterns, with * for any characters.
        left_out: the names of streams that were already left out; others are added.

    Raises:
        OptionError: the consumers of a named stream decide which messages it keeps.
        PipelineError: a named stream does not exist.
    """
    patterns = [re.compile(".*".join(map(re.escape, one.split("*")))) for one in wanted if "*" in one]
    names = {one for one in wanted if "*" not in one}
    if patterns:
        there = await connection.api.stream_names()
        names.update(name for name in there if any(pattern.fullmatch(name) for pattern in patterns))
    states = []
    for name in sorted(names):
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


async def state_of(connection: Connection, stream: str, *, listing: bool = False) -> StreamState:
    """Ask for a stream's state, or raise a `PipelineError` if the stream does not exist.

    Args:
        listing: whether to include the deleted sequences, unless there are too many.
    """
    info = await stream_info(connection, stream)
    if listing and 0 < int(info["state"].get("num_deleted", 0)) <= _LISTED:
        info = await stream_info(connection, stream, deleted=True)
    state, config = info["state"], info["config"]
    deleted = tuple(sorted(state.get("deleted") or ()))
    return StreamState(
        name=stream,
        known=KnownStream.of(info),
        bounds=Bounds.of(info),
        first=int(state["first_seq"]),
        last=int(state["last_seq"]),
        last_time=str(state["last_ts"]),
        messages=int(state["messages"]),
        size=int(state["bytes"]),
        deleted=deleted if len(deleted) == int(state.get("num_deleted", 0)) else None,
        limits=config.get("retention", "limits") == "limits",
        removes=removes_messages(config),
        drops=_drops(config),
    )


async def holds_any(
    connection: Connection, stream: str, filters: Sequence[str], first: int, last: int, *, unknown: bool
) -> bool:
    """Return whether the stream's leader has messages of a range. A consumer, or a replica, may be behind.

    Args:
        filters: the subjects of the messages; none for all.
        unknown: the answer if the user may not ask.
    """
    try:
        for one in filters or (">",):
            found = await connection.api.next_message(stream, one, first)
            if found and found[0] <= last:
                return True
    except NotPermittedError:
        return unknown
    return False


async def stream_info(connection: Connection, stream: str, *, deleted: bool = False) -> Json:
    """Ask for `STREAM.INFO`, or raise a `PipelineError` if the stream does not exist."""
    try:
        return await connection.api.stream_info(stream, deleted=deleted)
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        try:
            names = sorted(await connection.api.stream_names())
        except ApiError:
            names = []
        has = f"; there are {', '.join(names[:10])}{', …' if len(names) > 10 else ''}" if names else ""
        raise PipelineError(f"stream '{stream}': not found at {', '.join(connection.servers)}{has}") from None


def removes_messages(config: Json) -> bool:
    """Return whether a stream removes messages automatically: by a limit, a time to live, a rollup or a schedule.

    Args:
        config: the stream's, as its server reports it (2.9 to 2.15). With `discard: new` a full stream refuses messages
            in place of removing them.
    """
    limits = ["max_age"]
    refuses = config.get("discard") == "new"
    if not refuses:
        limits += ["max_msgs", "max_bytes"]
    if not (refuses and config.get("discard_new_per_subject")):
        limits.append("max_msgs_per_subject")
    causes = ("allow_rollup_hdrs", "allow_msg_ttl", "allow_msg_schedules")
    return any(int(config.get(name) or 0) > 0 for name in limits) or any(config.get(name) for name in causes)


def _drops(config: Json) -> bool:
    limits = ("max_age", "max_msgs", "max_bytes") if config.get("discard", "old") == "old" else ("max_age",)
    if any(int(config.get(limit) or -1) > 0 for limit in limits):
        return True
    return int(config.get("max_msgs_per_subject") or -1) < 1 and not config.get("deny_purge")
