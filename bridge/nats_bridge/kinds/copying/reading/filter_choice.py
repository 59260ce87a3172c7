"""Decides between filters on the source's server and filters in the rule.

A consumer's filter keeps messages off the wire, but file stores look them up one by one (2.10 delivers some 9,000 a
second, 2.15 some 90,000, where unfiltered it is 200,000; 2.9 sometimes a thousand). Where a good part of the stream is
selected anyway, reading all of it and dropping the rest is faster.
"""

from __future__ import annotations

from typing import Final

from nats_bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.consuming.replay import Replay

SETS_APART: Final = "nats-bridge-failover"
"""Begins a filter that no message has: it makes an entry another one, whose start counts (`jobs.failover.way_back`)."""
_WORTH_READING_ALL = 5  # one message in so many


async def consumer_filters(api: JetStreamApi, info: Json, filters: tuple[str, ...]) -> tuple[str, ...]:
    """The filters of a consumer; none for everything.

    Args:
        api: the API of the connection that holds the source.
        info: its `STREAM.INFO`.
        filters: what is selected; empty for everything.

    Raises:
        ApiError: the server cannot be asked.
    """
    messages = int(info["state"]["messages"])
    if not filters or not messages or info["config"].get("storage") == "memory":
        return filters
    selected = await Replay(api, str(info["config"]["name"]), filters).after(0)
    return () if selected * _WORTH_READING_ALL >= messages else filters
