"""The interface of a reader of a source: the sidecar's, or a job's with the source's messages from elsewhere."""

from __future__ import annotations

from typing import Protocol

from nats_bridge.client.jetstream_api import Json
from nats_bridge.consuming.lag import StreamPosition


class Reading(Protocol):
    """The reader of an entry. It passes batches to `CopyEntry.accept`, and awaits what that returns."""

    @property
    def handled(self) -> int:
        """The source's sequence up to which everything was handed on."""

    @property
    def attached(self) -> bool:
        """Whether messages can come at this moment."""

    @property
    def waits_for(self) -> str:
        """The obstacle, in words; empty without one."""

    @property
    def has_work(self) -> bool:
        """Whether messages are read and not handed on."""

    @property
    def stream_position(self) -> StreamPosition:
        """Its position; see `nats_bridge.consuming.lag`."""

    async def open(self, handled: int, info: Json) -> None:
        """Begin after a sequence of the source with this `STREAM.INFO`."""

    async def not_taken(self) -> int | None:
        """How many messages wait for it; see `nats_bridge.consuming.lag`."""

    async def abandon(self, *, held: bool) -> None:
        """Stop; `held` says that the last batch handed on has not been written."""

    async def end_at_once(self) -> int | None:
        """Stop and send nothing to any server; a reader may say how many messages it had not handed on."""
