"""Lists the permissions for a capture and a restore, in nats-server's format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nats_bridge.permissions import Need, permissions_of
from nats_bridge.permissions.need import api_subject, write
from nats_bridge.permissions.reading import replays
from nats_bridge.settings import Connection
from nats_bridge_spark.restore.configuration import probe_of

_SERVERS: Final = "servers"
_OF_STREAMS: Final = (
    ("STREAM.INFO", "checks the stream"),
    ("STREAM.CREATE", "creates the stream"),
    ("STREAM.UPDATE", "keeps the stream closed, and opens it"),
    ("STREAM.PURGE", "removes what took the place of missing sequences"),
)
_OF_CONSUMERS: Final = (
    ("CONSUMER.INFO", "checks the consumers"),
    ("CONSUMER.DURABLE.CREATE", "creates the consumers"),
)


def capture_permissions(connection: Connection, stream: str | None) -> str:
    """Return a block of permissions."""
    needs = list(_reads(_SERVERS, stream or "*"))
    needs.append(
        write(
            _SERVERS,
            api_subject("CONSUMER.LIST", stream or "*"),
            "saves the durable consumers",
            without="they are not saved",
        )
    )
    if stream is None:
        needs.append(write(_SERVERS, api_subject("STREAM.LIST"), "finds the streams"))
    return permissions_of({_SERVERS: connection}, needs)


def restore_permissions(connection: Connection, streams: tuple[str, ...]) -> str:
    """Return a block of permissions."""
    needs = [need for stream in streams or ("*",) for need in _restores(stream)]
    needs.append(write(_SERVERS, api_subject("STREAM.NAMES"), "checks that no other stream stores its subjects"))
    return permissions_of({_SERVERS: connection}, needs)


def _reads(connection: str, stream: str) -> Iterator[Need]:
    """Yield the needs of reading a stream, or any stream for `*`."""
    for request in ("STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.CREATE"):
        yield write(connection, api_subject(request, stream), f"reads stream {stream}")
    for request in ("CONSUMER.MSG.NEXT", "CONSUMER.INFO", "CONSUMER.DELETE"):
        yield write(connection, api_subject(request, stream, "*"), f"reads stream {stream}")


def _restores(stream: str) -> Iterator[Need]:
    for request, why in _OF_STREAMS:
        yield write(_SERVERS, api_subject(request, stream), why)
    for request, why in _OF_CONSUMERS:
        yield write(_SERVERS, api_subject(request, stream, "*"), why)
    yield write(_SERVERS, probe_of(stream), "reads how far the stream is")
    yield write(_SERVERS, f"{probe_of(stream)}.>", "restores the messages")
    yield from replays(_SERVERS, stream)
