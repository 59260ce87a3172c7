"""Defines the interface of a source's reader, and decides which filters the source's server applies.

A consumer's filter keeps messages off the wire, but file stores look them up one by one (2.10 delivers about 9,000 a
second, 2.15 about 90,000, and 200,000 without a filter; 2.9 sometimes 1,000). If a large part of the stream is
selected, reading all of it and dropping the rest is faster.
"""

from __future__ import annotations

from typing import Final, Protocol

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.consuming.lag import StreamPosition
from nats_bridge.consuming.replay import Replay

SETS_APART: Final = "nats-bridge-failover"
"""Begins a filter that no message has: it makes an entry another one, whose start counts (`jobs.failover.way_back`)."""
_WORTH_READING_ALL = 5  # the fraction of selected messages is at least one in this many


class Reading(Protocol):
    """The reader of an entry: the sidecar's, or a job's with the source's messages from elsewhere.

    It passes batches to `Round.accept`, and awaits the result.
    """

    @property
    def handled(self) -> int:
        """The source's sequence up to which everything was delivered."""

    @property
    def attached(self) -> bool:
        """Whether messages can come at this moment."""

    @property
    def waits_for(self) -> str:
        """The obstacle, as a phrase; empty without one."""

    @property
    def has_work(self) -> bool:
        """Whether messages are read and not handed on."""

    @property
    def stream_position(self) -> StreamPosition:
        """The position; see `nats_bridge.consuming.lag`."""

    async def open(self, handled: int, info: Json) -> None:
        """Begin after a sequence of the source with this `STREAM.INFO`."""

    async def not_taken(self) -> int | None:
        """Return the number of waiting messages; see `nats_bridge.consuming.lag`."""

    async def abandon(self, *, held: bool) -> None:
        """Stop. `held` means that the last batch delivered has not been written."""

    async def end_at_once(self) -> int | None:
        """Stop without sending to any server. A reader may return the number of messages it has not delivered."""


async def consumer_filters(api: JetStreamApi, info: Json, filters: tuple[str, ...]) -> tuple[str, ...]:
    """Return the filters of a consumer; none for everything.

    Args:
        api: the API of the connection that holds the source.
        info: its `STREAM.INFO`.
        filters: the filters of the entry; empty for everything.

    Raises:
        ApiError: the server refuses, or does not answer.
    """
    messages = int(info["state"]["messages"])
    if not filters or not messages or info["config"].get("storage") == "memory":
        return filters
    selected = await Replay(api, str(info["config"]["name"]), filters).after(0)
    return () if selected * _WORTH_READING_ALL >= messages else filters
