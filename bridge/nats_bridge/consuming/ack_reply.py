"""Parses the reply subject of a delivered message, which contains its sequences in the stream and the consumer."""

from __future__ import annotations

from typing import NamedTuple

ACK = b"$JS.ACK."
"""Prefix of the reply subjects of deliveries."""


class AckReply(NamedTuple):
    """The numbers in a delivered message's reply subject.

    `$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time ns>.<pending>`, or with a domain and
    an account hash before the stream and one token at the end.
    """

    deliveries: int
    stream_sequence: int
    consumer_sequence: int
    time_ns: int
    pending: int

    @classmethod
    def parse(cls, reply: bytes) -> AckReply:
        """Read a reply subject.

        Raises:
            ValueError: it is not one.
        """
        tokens = reply.split(b".")
        at = 4 if len(tokens) == 9 else 6
        if len(tokens) < 9 or tokens[:2] != [b"$JS", b"ACK"]:
            raise ValueError(f"not an acknowledgement subject: {reply!r}")
        return cls(*(int(token) for token in tokens[at : at + 5]))


def acknowledges(reply: bytes, stream: bytes, consumer: bytes) -> bool:
    """Return whether a reply subject belongs to a delivery by this consumer of this stream.

    Needed because any client that may publish on a consumer's deliver subject can choose the reply subject.
    """
    tokens = reply.split(b".")
    at = 2 if len(tokens) == 9 else 4  # with a domain and an account before the stream
    return len(tokens) >= 9 and tokens[:2] == [b"$JS", b"ACK"] and tokens[at : at + 2] == [stream, consumer]


def is_flow_control_request(reply: bytes, stream: bytes) -> bool:
    """Return whether a reply subject is a flow control request of a consumer of this stream.

    Needed because any client may have chosen it. Servers have checked this themselves since 2.15.3, on their side.
    """
    return reply.startswith(b"$JS.FC.%b." % stream) and len(reply.split()) == 1


def message_sequence(reply: bytes) -> bytes:
    """Return the stream sequence in a delivered message's reply subject, as text."""
    return reply.rsplit(b".", fields_after_count(reply))[1]


def fields_after_count(reply: bytes) -> int:
    """Return the number of tokens after the delivery count in a delivered message's reply subject.

    There are more of them if a domain precedes the stream. All messages of a consumer have the same number.
    """
    dots = reply.count(b".")
    return dots - 4 if dots == 8 else dots - 6
