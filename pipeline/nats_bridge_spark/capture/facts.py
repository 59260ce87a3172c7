"""The facts about a stream that a capture needs."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    state: StreamState
    remaining: int


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
        return Facts(state, await Replay(opened.api, stream, subjects).after(after))


async def sequence_before(connection: Connection, stream: str, time: str) -> int:
    """Return the sequence just before the first message that was stored at or after a time (RFC 3339)."""
    async with connected(connection) as opened:
        return await Replay(opened.api, stream).before(time)
