"""Removed messages, as the server reports them: API audit advisories of one account.

The server sends an audit advisory (`$JS.EVENT.ADVISORY.API`) for every delete and purge request and every stream
update, but not for publishes, limits and expiry. Advisories are not ordered with the messages. An early advisory does
no harm, because its time stamp shows which messages were stored later. A late one can make `Nats-Last-Sequence` differ
from the server's (a known divergence).

The server audits requests of any kind, so all rules of a connection share one subscription: with one each, a hundred
rules would receive each other's requests a hundred times.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nats_bridge.client.wire import BatchSubscription, Delivered, WireClient
from nats_transforms.timestamp import nanoseconds_of

AUDIT_SUBJECT = "$JS.EVENT.ADVISORY.API"


@dataclass(frozen=True, slots=True)
class Deleted:
    """One message was deleted, at `time_ns` (nanoseconds since 1970)."""

    stream: str
    time_ns: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Purged:
    """Messages were purged: those matching `subject_filter` (empty: all), below `below` (0: no bound), but `keep`.

    Attributes:
        messages: how many were removed.
    """

    stream: str
    time_ns: int
    subject_filter: str
    below: int
    keep: int
    messages: int


@dataclass(frozen=True, slots=True)
class Changed:
    """The stream's configuration was updated."""

    stream: str
    time_ns: int


Removal: TypeAlias = Deleted | Purged | Changed


class Removals:
    """The advisories of one connection, for every rule that follows one of its streams.

    Args:
        is_own: whether an advisory is of the connection's domain.
    """

    def __init__(self, client: WireClient, is_own: Callable[[bytes], bool] = lambda _: True) -> None:
        self._client = client
        self._is_own = is_own
        self._followers: dict[str, list[Callable[[Removal], None]]] = {}
        self._subscription: BatchSubscription | None = None
        self._changing = asyncio.Lock()

    async def follow(self, stream: str, reported: Callable[[Removal], None]) -> None:
        """Call `reported` with each removal from a stream from now on. It must neither raise nor block."""
        async with self._changing:
            self._followers.setdefault(stream, []).append(reported)
            if self._subscription is None:
                self._subscription = await self._client.subscribe_batches(AUDIT_SUBJECT, self._on_batch)

    async def leave(self, stream: str, reported: Callable[[Removal], None]) -> None:
        """Stop calling it."""
        async with self._changing:
            followers = self._followers.get(stream, [])
            if reported in followers:
                followers.remove(reported)
            if not followers:
                self._followers.pop(stream, None)
            if not self._followers and self._subscription is not None:
                subscription, self._subscription = self._subscription, None
                await subscription.release()

    def _on_batch(self, batch: list[Delivered]) -> None:
        for _, _, _, payload in batch:
            removal = read_audit(payload)
            if removal is not None and self._is_own(payload):
                for reported in tuple(self._followers.get(removal.stream, ())):
                    reported(removal)


def read_audit(data: bytes) -> Removal | None:
    """Return the removal that an audit advisory reports; None for refused requests and for all other requests.

    Any user that may publish on the subject can send anything, so the result is also None for invalid advisories.
    """
    try:
        return _read(data)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _read(data: bytes) -> Removal | None:
    if b"STREAM.MSG.DELETE." not in data and b"STREAM.PURGE." not in data and b"STREAM.UPDATE." not in data:
        return None
    advisory = json.loads(data)
    subject = str(advisory.get("subject", ""))
    # The subject may begin with a domain's prefix, so compare only its end.
    response = json.loads(advisory.get("response") or "{}")
    if response.get("error"):
        return None
    request = advisory.get("request") or ""
    body = json.loads(request) if request.startswith("{") else {}
    stream = subject.rpartition(".")[2]
    time_ns = nanoseconds_of(advisory["timestamp"])
    if "STREAM.MSG.DELETE." in subject:
        return Deleted(stream, time_ns, int(body.get("seq", 0)))
    if "STREAM.PURGE." in subject:
        return Purged(
            stream,
            time_ns,
            subject_filter=str(body.get("filter", "")),
            below=int(body.get("seq", 0)),
            keep=int(body.get("keep", 0)),
            messages=int(response.get("purged", 0)),
        )
    if "STREAM.UPDATE." in subject:
        return Changed(stream, time_ns)
    return None
