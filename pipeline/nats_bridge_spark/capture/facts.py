"""The facts about a stream that a capture needs."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.replay import Replay
from nats_bridge.settings import Connection
from nats_bridge_spark.connections import connected
from nats_bridge_spark.source.stream_state import StreamState, state_of


@dataclass(frozen=True, slots=True)
class Facts:
    """A stream at one moment.

    Attributes:
        state: the state of the stream.
        remaining: messages after a sequence that the filters let pass.
        drops: whether its configuration makes it remove messages automatically.
    """

    state: StreamState
    remaining: int
    drops: bool


async def facts_of(connection: Connection, stream: str, subjects: tuple[str, ...], after: int) -> Facts:
    """Ask for a stream's facts.

    Args:
        connection: the connection of the stream.
        stream: its name.
        subjects: filters.
        after: the sequence after which remaining messages are counted.

    Raises:
        OptionError: the stream has another retention than limits.
        PipelineError: the stream does not exist.
        UnreachableError: no server answers.
        ApiError: the server refuses, or does not answer.
    """
    async with connected(connection) as opened:
        state = await state_of(opened, stream, listing=True)
        state.require_limits("captured")
        remaining = await Replay(opened.api, stream, subjects).after(after)
        info = await opened.api.stream_info(stream)
        return Facts(state, remaining, drops_messages(info["config"]))


def drops_messages(config: Json) -> bool:
    """Return whether a stream removes messages automatically.

    By a limit, a message's time to live, a rollup or a schedule.

    Args:
        config: the stream's, as its server reports it (2.9 to 2.15). With `discard: new` a full stream refuses messages
            in place of removing them.
    """
    refuses = config.get("discard") == "new"
    limits = [] if refuses else ["max_msgs", "max_bytes"]
    if not (refuses and config.get("discard_new_per_subject")):
        limits.append("max_msgs_per_subject")
    return (
        int(config.get("max_age", 0)) > 0
        or any(int(config.get(name, -1)) > 0 for name in limits)
        or any(config.get(name) for name in ("allow_rollup_hdrs", "allow_msg_ttl", "allow_msg_schedules"))
    )


async def sequence_before(connection: Connection, stream: str, time: str) -> int:
    """Return the sequence just before the first message that was stored at or after a time (RFC 3339)."""
    async with connected(connection) as opened:
        return await Replay(opened.api, stream).before(time)
