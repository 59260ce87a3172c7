"""What a read of a stream needs of the user of its connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nats_bridge.bridge.replication.rules import Need, api_subject, write

__all__ = ["reads"]

_READS: Final = ("STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.CREATE")
_READS_BY_CONSUMER: Final = ("CONSUMER.MSG.NEXT", "CONSUMER.INFO", "CONSUMER.DELETE")


def reads(connection: str, stream: str) -> Iterator[Need]:
    """The needs of a read.

    Args:
        connection: the name of the connection.
        stream: the stream; `*` for any.
    """
    for request in _READS:
        yield write(connection, api_subject(request, stream), f"reads stream {stream}")
    for request in _READS_BY_CONSUMER:
        yield write(connection, api_subject(request, stream, "*"), f"reads stream {stream}")
