"""The permissions to watch an account."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.permissions.need import ANY_STREAM, Need, api_subject, listen, write
from nats_bridge.bridge.permissions.reading import replays

__all__ = ["watch_needs"]


def watch_needs(connection: str, inbox_prefix: str) -> Iterator[Need]:
    """The needs of `nats-bridge watch`; for a source elsewhere, also the same below the prefix of its API."""
    yield listen(connection, f"{inbox_prefix}.>", "answers and deliveries")
    yield write(connection, api_subject("INFO"), "the account's limits")
    yield write(connection, api_subject("STREAM.LIST"), "finds mirrors and sources")
    yield write(connection, api_subject("STREAM.INFO", ANY_STREAM), "how far source and target are")
    yield write(connection, api_subject("STREAM.MSG.GET", ANY_STREAM), "the newest copy, and the first that is missing")
    yield from replays(connection, ANY_STREAM, rule="")
