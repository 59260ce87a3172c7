"""Prepares a stream's configuration for an update, and predicts the server's answer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.transforms.dialect import server_dialect
from nats_bridge.transforms.errors import StreamConfigError
from nats_bridge.transforms.stream_config import examine

__all__ = ["Verdict", "body_of", "examined"]

_SERVERS_OWN = "_nats."  # metadata that a server adds to what it returns, from 2.11 on
_HARMLESS = ("unknown-member-ignored", "random-differs-between-replicas", "republish-may-loop")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A server's answer to an update.

    Attributes:
        refusals: why it would not take it, or not do what it says.
        warnings: what should be known about it.
    """

    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def body_of(config: Json) -> Json:
    """The configuration that `STREAM.INFO` returned, without the server's own additions."""
    body = copy.deepcopy(config)
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        kept = {name: value for name, value in metadata.items() if not name.startswith(_SERVERS_OWN)}
        body["metadata"] = kept
        if not kept:
            del body["metadata"]
    return body


async def examined(connection: Connection, body: Json, before: Json) -> Verdict:
    """Predict the connected server's answer to an update of one of its streams.

    Args:
        connection: the stream's connection.
        body: the new configuration.
        before: the present one.

    Raises:
        ApiError: the server does not list its streams.
    """
    server = server_dialect(connection.server_version)
    streams, _ = await connection.api.streams()
    others: dict[str, Mapping[str, object]] = {
        str(info["config"]["name"]): info["config"] for info in streams if info["config"]["name"] != body["name"]
    }
    place = f"server {connection.server_version}"
    try:
        accepted = examine(body, server, previous=before, sources=others)
    except StreamConfigError as error:
        return Verdict((f"{place} refuses the update: {error.description} ({error.err_code})",), ())
    try:
        known = {(each.id, each.member) for each in examine(before, server, sources=others).warnings}
    except StreamConfigError:
        known = set()
    reported = [each for each in accepted.warnings if (each.id, each.member) not in known]
    return Verdict(
        tuple(f"{place}: {each.member}: {each.sentence}" for each in reported if each.id not in _HARMLESS),
        tuple(f"{each.member}: {each.sentence}" for each in reported if each.id in _HARMLESS),
    )
