"""Computes the subjects to deny a user, if messages decide the subjects that it publishes on.

Theory of operation. A `deny` always takes precedence over an `allow`, so a user that needs part of the API cannot be
denied all of it. The list names the requests of the API one by one, and leaves out those that the user needs.
"""

from collections.abc import Iterable

from nats_bridge.client.jetstream_api import OWN_API
from nats_transforms.reserved import DENIED
from nats_transforms.subject import collide

_APIS = ("$JS.API.>", "$JS.*.API.>")
_STREAM_REQUESTS = ("CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "SNAPSHOT", "RESTORE", "MSG.GET", "MSG.DELETE")
_REQUESTS = (
    *(f"STREAM.{request}.*" for request in _STREAM_REQUESTS),
    "STREAM.LIST",
    "STREAM.NAMES",
    "STREAM.LEADER.>",
    "STREAM.PEER.>",
    "STREAM.TEMPLATE.>",
    "CONSUMER.CREATE.>",
    "CONSUMER.DURABLE.>",
    *(f"CONSUMER.{request}.*.*" for request in ("DELETE", "INFO", "PAUSE", "RESET", "UNPIN")),
    *(f"CONSUMER.{request}.*" for request in ("LIST", "NAMES")),
    "CONSUMER.MSG.>",
    "CONSUMER.LEADER.>",
    "CONSUMER.PEER.>",
    "DIRECT.>",
    "INFO",
    "ACCOUNT.>",
    "META.>",
    "SERVER.>",
)
"""Requests of the JetStream API without its prefix, of servers from 2.9 to 2.15.3."""


def denied_subjects(computed: Iterable[str], needed: Iterable[str], prefix: str = OWN_API) -> list[str]:
    """Return the commands to deny a user.

    Args:
        computed: patterns within which messages decide the subject.
        needed: patterns that the user needs itself.
        prefix: the prefix of its requests to JetStream.

    Returns:
        Patterns that reach into `computed`, and not into `needed`.
    """
    wide, own = [each.encode() for each in computed], [each.encode() for each in needed]

    def free(pattern: str) -> bool:
        return not any(collide(pattern.encode(), each) for each in own)

    requests = [f"{prefix}.{request}" for request in _REQUESTS]
    candidates = [
        each for pattern in DENIED for each in ((pattern,) if free(pattern) or pattern not in _APIS else requests)
    ]
    if prefix != OWN_API and not any(collide(prefix.encode() + b".x", pattern.encode()) for pattern in _APIS):
        candidates += requests
    return [
        pattern for pattern in candidates if free(pattern) and any(collide(pattern.encode(), each) for each in wide)
    ]
