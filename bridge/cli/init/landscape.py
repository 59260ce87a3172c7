"""Reads a cluster: the server's version and the account's streams. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.transforms.dialect import Dialect, server_dialect
from nats_bridge.transforms.subject import collide


@dataclass(frozen=True, slots=True)
class Landscape:
    """What was seen.

    Attributes:
        server_version: as the server reports it, such as `2.9.10`.
        server: the dialect of that.
        streams: `STREAM.INFO` by name, in the order of the names.
        silent: streams that gave no answer.
    """

    server_version: str
    server: Dialect
    streams: Mapping[str, Json]
    silent: tuple[str, ...] = ()

    def config(self, stream: str) -> Json | None:
        """A stream's configuration; None if there is no such stream."""
        info = self.streams.get(stream)
        return None if info is None else info["config"]

    def others(self, stream: str) -> dict[str, Mapping[str, object]]:
        """The configurations of all other streams, by name."""
        return {name: info["config"] for name, info in self.streams.items() if name != stream}

    def takers(self, pattern: str) -> list[str]:
        """The streams that take messages with some of the subjects that a pattern stands for."""
        return [
            name
            for name, info in self.streams.items()
            if any(collide(pattern.encode(), subject.encode()) for subject in info["config"].get("subjects") or ())
        ]

    def with_config(self, config: Mapping[str, Any]) -> Landscape:
        """The same, with a stream that has this configuration, be it changed or new."""
        name = str(config["name"])
        known = self.streams.get(name) or {"created": "", "state": {"messages": 0}}
        return replace(self, streams={**self.streams, name: {**known, "config": dict(config)}})


async def look(connection: Connection) -> Landscape:
    """Read the account of a connection.

    Raises:
        ApiError: the server does not list its streams.
    """
    listed, silent = await connection.api.streams()
    streams = {str(info["config"]["name"]): info for info in listed}
    version = connection.server_version
    return Landscape(version, server_dialect(version), dict(sorted(streams.items())), tuple(silent))
