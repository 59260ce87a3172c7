"""Reads facts about the streams that rules name, to narrow permissions."""

from collections.abc import Mapping

from nats_bridge.client.connection import Connection
from nats_bridge.errors import ApiError
from nats_bridge.kinds.copying.target import Target
from nats_bridge.permissions.stream_facts import StreamFacts
from nats_bridge.settings import Settings


async def look_up(settings: Settings, connections: Mapping[str, Connection]) -> dict[tuple[str, str], StreamFacts]:
    """Request every stream that a rule names. Streams that do not exist or may not be seen are left out."""
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
