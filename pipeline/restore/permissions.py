"""What a restore needs of the user of its connection."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.replication.rules import Need, api_subject, permissions_of, replays, write
from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.restore.configuration import probe_of

__all__ = ["restore_permissions"]

_SERVERS = "servers"


def restore_permissions(connection: Connection, streams: tuple[str, ...]) -> str:
    """A block of permissions, as nats-server reads it.

    Args:
        connection: where it restores.
        streams: the restored streams; none for all.
    """
    needs = [need for stream in streams or ("*",) for need in _restoring(stream)]
    needs.append(write(_SERVERS, api_subject("STREAM.NAMES"), "checks that no other stream stores its subjects"))
    return permissions_of({_SERVERS: connection}, needs)


def _restoring(stream: str) -> Iterator[Need]:
    for request, why in (
        ("STREAM.INFO", "checks the stream"),
        ("STREAM.CREATE", "creates the stream"),
        ("STREAM.UPDATE", "keeps the stream closed, and opens it"),
        ("STREAM.PURGE", "removes what took the place of missing sequences"),
    ):
        yield write(_SERVERS, api_subject(request, stream), why)
    for request, why in (
        ("CONSUMER.INFO", "checks the consumers"),
        ("CONSUMER.DURABLE.CREATE", "creates the consumers"),
    ):
        yield write(_SERVERS, api_subject(request, stream, "*"), why)
    yield write(_SERVERS, probe_of(stream), "reads how far the stream is")
    yield write(_SERVERS, f"{probe_of(stream)}.>", "restores the messages")
    yield from replays(_SERVERS, stream)
