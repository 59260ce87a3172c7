"""Reads facts about the streams that rules name, to narrow permissions; optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from nats_bridge.client.connection import Connection
from nats_bridge.errors import ApiError
from nats_bridge.settings import Settings


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The facts about a stream that permissions depend on.

    Attributes:
        subjects: what it stores.
        retention: `limits`, `interest` or `workqueue`.
        counts_copies: whether a copying rule that is alone may confirm copies in groups: it then also
            receives what other clients write.
    """

    subjects: tuple[str, ...]
    retention: str
    counts_copies: bool


KnownStreams: TypeAlias = Mapping[tuple[str, str], StreamFacts]
"""By connection and stream name. One that is not in it is not known."""


async def look_up(settings: Settings, connections: Mapping[str, Connection]) -> dict[tuple[str, str], StreamFacts]:
    """Ask for every stream that a rule names; those that are not there, or may not be seen, are left out."""
    from nats_bridge.kinds.copying.target import Target

    known: dict[tuple[str, str], StreamFacts] = {}
    for connection, stream in sorted({named for rule in settings.rules for named in rule.streams}):
        opened = connections[connection]
        try:
            info = await opened.api.stream_info(stream)
        except ApiError:
            continue
        target = Target.of(info, opened.server_version)
        known[connection, stream] = StreamFacts(
            tuple(info["config"].get("subjects") or ()),
            str(info["config"].get("retention", "limits")),
            target.counts_copies,
        )
    return known
