"""Reads a cluster: the server's version, the account's streams, their consumers. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.errors import ApiError
from nats_bridge.transforms.dialect import Dialect, server_dialect
from nats_bridge.transforms.subject import collide

_BUCKETS = (("KV_", "key-value bucket"), ("OBJ_", "object store"))


@dataclass(frozen=True, slots=True)
class Landscape:
    """What was seen.

    Attributes:
        server_version: as the server reports it, such as `2.9.10`.
        server: the dialect of that.
        streams: `STREAM.INFO` by name, in the order of the names.
        consumers: the consumers of the streams that have some, each as `CONSUMER.INFO` gives it.
        unseen: what could not be read, a line each.
    """

    server_version: str
    server: Dialect
    streams: Mapping[str, Json]
    consumers: Mapping[str, Sequence[Json]]
    unseen: tuple[str, ...] = ()

    def config(self, stream: str) -> Json | None:
        """A stream's configuration; None if there is no such stream."""
        info = self.streams.get(stream)
        return None if info is None else info["config"]

    def others(self, stream: str) -> dict[str, Mapping[str, object]]:
        """The configurations of all other streams, by name."""
        return {name: info["config"] for name, info in self.streams.items() if name != stream}

    def takers(self, pattern: str, *, but: str = "") -> list[str]:
        """The streams, without one, that take messages with some of the subjects that a pattern stands for."""
        return [
            name
            for name, info in self.streams.items()
            if name != but
            and any(collide(pattern.encode(), subject.encode()) for subject in info["config"].get("subjects") or ())
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
    unseen = [f"stream '{name}' does not answer" for name in silent]
    consumers: dict[str, Sequence[Json]] = {}
    for info in listed:
        name = str(info["config"]["name"])
        if int(info["state"].get("consumer_count", 0)):
            try:
                consumers[name] = await connection.api.consumers(name)
            except ApiError as error:
                unseen.append(str(error))
    streams = {str(info["config"]["name"]): info for info in listed}
    return Landscape(
        connection.server_version,
        server_dialect(connection.server_version),
        dict(sorted(streams.items())),
        consumers,
        tuple(unseen),
    )


def bucket_of(stream: str) -> tuple[str, str]:
    """The kind of a stream's bucket, in words, and the bucket's name; two empty texts for a plain stream."""
    for prefix, kind in _BUCKETS:
        if stream.startswith(prefix):
            return kind, stream.removeprefix(prefix)
    return "", ""
