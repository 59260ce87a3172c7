"""What a capture, a restore and a repair need of the users of their connections, as nats-server reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from nats_bridge.bridge.replication.rules import Need, api_subject, permissions_of, replays, write
from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.restore.configuration import probe_of

if TYPE_CHECKING:
    from nats_bridge.pipeline.diff.request import Place


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
    """A block of permissions.

    Args:
        connection: what it reads from.
        stream: the captured stream; None for all.
    """
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
    """A block of permissions.

    Args:
        connection: where it restores.
        streams: the restored streams; none for all.
    """
    needs = [need for stream in streams or ("*",) for need in _restores(stream)]
    needs.append(write(_SERVERS, api_subject("STREAM.NAMES"), "checks that no other stream stores its subjects"))
    return permissions_of({_SERVERS: connection}, needs)


def repair_permissions(left: Place, right: Place, *, by: str, delete: bool) -> str:
    """A block of permissions for each side that is a stream.

    Args:
        left: the left side.
        right: the side that is repaired.
        by: what identifies messages; empty where that is decided from the messages.
        delete: whether messages are deleted.
    """
    sides = {"left": left, "right": right}
    connections = {name: place.connection for name, place in sides.items() if place.connection is not None}
    needs = [need for name in connections for need in _reads(name, sides[name].name)]
    if "right" in connections:
        needs += _repairs(right, by, delete=delete)
    return permissions_of(connections, needs)


def _reads(connection: str, stream: str) -> Iterator[Need]:
    """Those of a read of a stream, `*` for any."""
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


def _repairs(right: Place, by: str, *, delete: bool) -> Iterator[Need]:
    yield from replays("right", right.name)
    for subject in right.subjects or (">",):
        why = "stores what is missing or wrong" + ("" if right.subjects else "; --right-subject allows less")
        yield write("right", subject, why)
    if delete and by in ("subject", "auto"):
        yield write("right", api_subject("STREAM.PURGE", right.name), "deletes what is too much, --by subject")
    if delete and by != "subject":
        yield write("right", api_subject("STREAM.MSG.DELETE", right.name), "deletes what is wrong or too much")
