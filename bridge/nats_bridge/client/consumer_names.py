"""Names of ephemeral consumers, the same after each restart: monitoring shows no new ones each time.

A name shows who created the consumer and its purpose: `<client>~<rule>~<purpose>~<place>`, such as
`nats-bridge~orders~count~pod-0`. If this process has such a consumer already, a number follows. Consumers of other
processes are not changed or deleted: servers from 2.10 on refuse a name that is in use (`action: create`). Then, and
with older servers, which would change the other consumer, random letters follow.
"""

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextvars import ContextVar
from itertools import count
from typing import Final, Literal, TypeAlias

Purpose: TypeAlias = Literal["read", "replay", "last", "count", "fence"]
"""`read`: follows a stream for a rule or a job; `replay`: reads a range again; `last`: reads the last message of each
subject; `count`: is created only for its state; `fence`: keeps sidecars away while a job copies."""

RULE: Final = ContextVar[str]("rule", default="")
"""The rule that the present task works for; empty for none."""

_LONGEST = 200  # characters, of the 255 that servers take
_in_use: set[tuple[str, str]] = set()  # by this process: streams and names


def place() -> str:
    """Return the name of this process's place, for people: the pod, or the machine."""
    return os.environ.get("POD_NAME") or os.environ.get("HOSTNAME") or socket.gethostname()


def take_name(stream: str, client: str, purpose: Purpose, prefix: str = "") -> str:
    """Return a name that this process does not use for a consumer of the stream, until `release_name`."""
    parts = (re.sub(r"[^A-Za-z0-9_-]", "-", part) for part in (client, RULE.get(), purpose, place()))
    base = (prefix + "~".join(filter(None, parts)))[:_LONGEST]
    name = next(name for name in _numbered(base) if (stream, name) not in _in_use)
    _in_use.add((stream, name))
    return name


def release_name(stream: str, name: str) -> None:
    """Let the next consumer have the name."""
    _in_use.discard((stream, name))


def unique(name: str) -> str:
    """Return the name with random letters appended."""
    return f"{name}~{secrets.token_hex(4)}"


def _numbered(base: str) -> Iterator[str]:
    yield base
    yield from (f"{base}~{number}" for number in count(2))
