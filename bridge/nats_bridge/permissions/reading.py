"""The needs of reading a stream: its state, consumers, and flow control."""

from collections.abc import Iterator

from nats_bridge.consuming.consumer_plan import marker_name
from nats_bridge.permissions.need import Need, api_subject, flow_control, stream_created, write

_EXPIRE = "they stay on the server for some seconds more"


def existing(connection: str, stream: str) -> Iterator[Need]:
    """Yield the needs to find a stream: its state, and the names of others if it is missing."""
    yield write(connection, api_subject("STREAM.INFO", stream), f"state of stream {stream}")
    yield write(
        connection,
        api_subject("STREAM.NAMES"),
        "suggests similar names if a stream does not exist",
        without="the error does not list the existing streams",
    )
    yield stream_created(connection, stream)


def replays(connection: str, stream: str) -> Iterator[Need]:
    """Yield the needs to read parts of a stream by consumers that the server names."""
    yield write(connection, api_subject("CONSUMER.CREATE", stream), f"reads stream {stream}")
    yield write(connection, flow_control(stream), "confirms deliveries (flow control)")
    yield write(
        connection,
        f"$JS.ACK.{stream}.>",
        "asks for less at a time from a server that disconnects it as a slow consumer",
        without="such a server disconnects it again and again",
    )
    yield write(
        connection,
        api_subject("CONSUMER.DELETE", stream, "*"),
        "removes consumers of short reads at once",
        without=_EXPIRE,
    )


def durable_consumer(
    connection: str, stream: str, consumer: str, *, acknowledges: bool, moved: bool = True
) -> Iterator[Need]:
    """Yield the needs of a durable consumer's position.

    Args:
        connection: the connection that holds the stream.
        acknowledges: whether messages are acknowledged.
        moved: whether another consumer keeps the position while it is recreated.
    """
    recreated = "keeps its position while its consumer is recreated"
    for request, why in (
        ("CONSUMER.DURABLE.CREATE", "keeps its position"),
        ("CONSUMER.INFO", "checks its position"),
        ("CONSUMER.DELETE", "replaces its consumer"),
    ):
        yield write(connection, api_subject(request, stream, consumer), why)
        if moved or request == "CONSUMER.INFO":
            yield write(connection, api_subject(request, stream, marker_name(consumer)), recreated)
    if acknowledges:
        yield write(connection, f"$JS.ACK.{stream}.{consumer}.>", "moves its position")


def passing_consumers(connection: str, stream: str) -> Iterator[Need]:
    """Yield the needs to follow a stream by a consumer without a position that the server names.

    Args:
        connection: the connection that holds the stream.
    """
    yield from replays(connection, stream)
    yield write(connection, api_subject("CONSUMER.INFO", stream, "*"), "checks its consumer")
    yield write(connection, api_subject("CONSUMER.DELETE", stream, "*"), "removes its consumer")
