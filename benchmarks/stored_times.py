"""When messages were stored, by the server's own time stamps: a stream is read once from its beginning."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import MutableSequence, Sequence

from benchmarks.errors import BenchmarkError
from benchmarks.raw_socket import RawSocket

# `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time ns>.<pending>`, perhaps headers, and a
# payload that begins with the number of the message.
_DELIVERED = re.compile(
    rb"MSG \S+ \d+ \$JS\.ACK\.\S+\.\d+\.\d+\.\d+\.(\d+)\.\d+ [\d ]+\r\n(?:NATS/1\.0\r\n.*?\r\n\r\n)?(\d{9}) ", re.DOTALL
)


def stored_times(port: int, stream: str, messages: int) -> Sequence[int]:
    """When each message was stored, in nanoseconds since 1970, by its number.

    Args:
        port: of the server.
        stream: holds messages of `publish_paced`, or copies of them.
        messages: how many.

    Raises:
        BenchmarkError: a message is duplicated or missing.
    """
    config = {"deliver_subject": "_times", "ack_policy": "none", "deliver_policy": "all"}
    body = json.dumps({"stream_name": stream, "config": config}).encode()
    times = array("q", [0]) * messages
    with RawSocket(port) as connection:
        # The answer to the request would come in the middle of the messages: it is not asked for.
        connection.send(b"SUB _times 1\r\n")
        connection.send(b"PUB $JS.API.CONSUMER.CREATE.%b %d\r\n%b\r\n" % (stream.encode(), len(body), body))
        data, missing = b"", messages
        try:
            while missing:
                found, data = take_times(data + connection.receive(), times)
                missing -= found
        except TimeoutError:
            raise BenchmarkError(f"{stream}: {missing:,} of {messages:,} messages did not come") from None
    return times


def take_times(data: bytes, times: MutableSequence[int]) -> tuple[int, bytes]:
    """Read the times of deliveries.

    Args:
        data: received bytes that were not used before.
        times: gets the times, by the messages' numbers; 0 where there is none yet.

    Returns:
        How many messages were found, and what is left of the data.

    Raises:
        BenchmarkError: a message came twice.
    """
    found = end = 0
    for message in _DELIVERED.finditer(data):
        number = int(message[2])
        if times[number]:
            raise BenchmarkError(f"message {number:,} is stored twice")
        times[number] = int(message[1])
        found, end = found + 1, message.end()
    return found, data[end:]
