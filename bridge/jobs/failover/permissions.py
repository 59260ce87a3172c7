"""The permissions of a failover: of its plan, and of saving an account for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nats_bridge.bridge.permissions.need import ANY_STREAM, Need, api_subject, listen, write
from nats_bridge.bridge.permissions.reading import replays

__all__ = ["failover_needs", "saving_needs"]


def saving_needs(inboxes: Mapping[str, str]) -> Iterator[Need]:
    """The needs of `nats-bridge failover save`.

    Args:
        inboxes: under what each connection gets its answers.
    """
    for connection, prefix in inboxes.items():
        yield listen(connection, f"{prefix}.>", "answers")
        yield write(connection, api_subject("STREAM.LIST"), "finds the streams")
        yield write(connection, api_subject("CONSUMER.LIST", ANY_STREAM), "their consumers")


def failover_needs(source: str, target: str, inboxes: Mapping[str, str]) -> Iterator[Need]:
    """The needs of `nats-bridge failover plan`; for a source elsewhere, also `STREAM.INFO` below the prefix of its API.

    Args:
        source: the connection of the source streams.
        target: that of their copies.
        inboxes: for each of the two, under what it gets its answers.
    """
    yield from saving_needs(inboxes)
    yield from replays(source, ANY_STREAM, rule="")
    yield from replays(target, ANY_STREAM, rule="")
    yield write(target, api_subject("STREAM.MSG.GET", ANY_STREAM), "the newest copy")
