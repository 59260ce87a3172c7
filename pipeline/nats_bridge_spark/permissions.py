"""Lists the permissions for a capture and a restore, in nats-server's format."""

from typing import Final

from nats_bridge.permissions import Need, permissions_of
from nats_bridge.permissions.need import api_subject, write
from nats_bridge.permissions.reading import replays
from nats_bridge.settings import Connection
from nats_bridge_spark.restore.configuration import probe_of

_SERVERS: Final = "servers"


def capture_permissions(connection: Connection, stream: str | None) -> str:
    """Return a block of permissions, for all streams if none is named."""
    name = stream or "*"
    needs = [
        write(_SERVERS, api_subject(request, name), f"reads stream {name}")
        for request in ("STREAM.INFO", "STREAM.MSG.GET")
    ]
    needs += replays(_SERVERS, name)
    listing = api_subject("CONSUMER.LIST", name)
    needs.append(write(_SERVERS, listing, "saves the durable consumers", without="they are not saved"))
    if stream is None:
        needs.append(write(_SERVERS, api_subject("STREAM.LIST"), "finds the streams"))
    return permissions_of({_SERVERS: connection}, needs)


def restore_permissions(connection: Connection, streams: tuple[str, ...]) -> str:
    """Return a block of permissions, for all streams if none is named."""
    needs = list[Need]()
    for stream in streams or ("*",):
        for subject, why in (
            (api_subject("STREAM.INFO", stream), "checks the stream"),
            (api_subject("STREAM.CREATE", stream), "creates the stream"),
            (api_subject("STREAM.UPDATE", stream), "keeps the stream closed, and opens it"),
            (api_subject("STREAM.PURGE", stream), "removes what took the place of missing sequences"),
            (api_subject("CONSUMER.INFO", stream, "*"), "checks the consumers"),
            (api_subject("CONSUMER.DURABLE.CREATE", stream, "*"), "creates the consumers"),
            (probe_of(stream), "reads how far the stream is"),
            (f"{probe_of(stream)}.>", "restores the messages"),
        ):
            needs.append(write(_SERVERS, subject, why))
        needs += replays(_SERVERS, stream)
    needs.append(write(_SERVERS, api_subject("STREAM.NAMES"), "checks that no other stream stores its subjects"))
    return permissions_of({_SERVERS: connection}, needs)
