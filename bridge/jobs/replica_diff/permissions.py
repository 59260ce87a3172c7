"""The permissions of a comparison of replicas."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.jobs.replica_diff.replica_reader import NEXT
from nats_bridge.bridge.permissions.need import Need, api_subject, listen, write

__all__ = ["replica_diff_needs"]


def replica_diff_needs(stream: str, connection: str, inbox: str) -> Iterator[Need]:
    """The needs of `nats-bridge replica-diff STREAM`.

    Args:
        stream: the stream.
        connection: the connection that holds it.
        inbox: under what it gets its answers.
    """
    yield write(connection, api_subject("STREAM.INFO", stream), "names the servers that hold the stream")
    yield write(connection, api_subject("CONSUMER.CREATE", stream), "creates a consumer on each of them")
    yield write(connection, f"{NEXT}.{stream}.*", "reads what each holds")
    yield write(connection, api_subject("CONSUMER.INFO", stream, "*"), "sees whether a server can deliver more")
    yield write(
        connection,
        api_subject("CONSUMER.DELETE", stream, "*"),
        "removes its consumers at once",
        without="they stay on the servers for a minute more",
    )
    yield listen(connection, f"{inbox}.>", "answers and deliveries")
