"""The commands that a user is denied, where messages decide what it publishes.

Theory of operation: a ``deny`` always wins over an ``allow``. So a user that needs part of the API cannot be
denied all of it. The list names the requests of the API one by one, and leaves out those that the user needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from nats_transforms.reserved import DENIED
from nats_transforms.subject import collide

_API = "$JS.API.>"
_STREAM_REQUESTS = ("CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "SNAPSHOT", "RESTORE", "MSG.GET", "MSG.DELETE")
_REQUESTS = (
    *(f"$JS.API.STREAM.{request}.*" for request in _STREAM_REQUESTS),
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LEADER.>",
    "$JS.API.STREAM.PEER.>",
    "$JS.API.STREAM.TEMPLATE.>",
    "$JS.API.CONSUMER.CREATE.>",
    "$JS.API.CONSUMER.DURABLE.>",
    *(f"$JS.API.CONSUMER.{request}.*.*" for request in ("DELETE", "INFO", "PAUSE", "RESET", "UNPIN")),
    *(f"$JS.API.CONSUMER.{request}.*" for request in ("LIST", "NAMES")),
    "$JS.API.CONSUMER.MSG.>",
    "$JS.API.CONSUMER.LEADER.>",
    "$JS.API.CONSUMER.PEER.>",
    "$JS.API.DIRECT.>",
    "$JS.API.INFO",
    "$JS.API.ACCOUNT.>",
    "$JS.API.META.>",
    "$JS.API.SERVER.>",
)
"""Requests of the JetStream API, of servers from 2.9 to 2.15.3."""


def denied_subjects(computed: Iterable[str], needed: Iterable[str]) -> list[str]:
    """The commands to deny a user.

    Args:
        computed: patterns within which messages decide the subject.
        needed: patterns that the user needs itself.

    Returns:
        Patterns that reach into `computed`, and not into `needed`.
    """
    wide, own = [each.encode() for each in computed], [each.encode() for each in needed]

    def free(pattern: str) -> bool:
        return not any(collide(pattern.encode(), each) for each in own)

    candidates = (
        each for pattern in DENIED for each in ((pattern,) if free(pattern) else _REQUESTS if pattern == _API else ())
    )
    return [
        pattern for pattern in candidates if free(pattern) and any(collide(pattern.encode(), each) for each in wide)
    ]
