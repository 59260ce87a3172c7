"""Prepares a stream's configuration for an update, and predicts the server's answer."""

import copy
from collections.abc import Mapping, Sequence

from nats_bridge.client.connection import Connection
from nats_bridge.client.jetstream_api import Json
from nats_bridge.rules.handoff.answer import Handoff, refused
from nats_transforms.dialect import server_dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.stream_config import examine

_SERVERS_OWN = "_nats."  # metadata that servers from 2.11 on add to their answers
HARMLESS = ("unknown-member-ignored", "random-differs-between-replicas", "republish-may-loop")
"""Warnings that do not change the effect of a configuration."""


def body_of(config: Json) -> Json:
    """Return the configuration that `STREAM.INFO` returned, without the server's own additions."""
    body = copy.deepcopy(config)
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        kept = {name: value for name, value in metadata.items() if not name.startswith(_SERVERS_OWN)}
        body["metadata"] = kept
        if not kept:
            del body["metadata"]
    return body


async def examined(connection: Connection, body: Json, before: Json, steps: Sequence[str]) -> Handoff:
    """Return the handoff by a stream update, or the reason why the server would refuse or change it.

    Args:
        connection: the stream's connection.
        body: the new configuration.
        before: the present one.
        steps: the instructions, in order; remarks about the update follow them.

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
        return refused(f"{place} refuses the update: {error.description} ({error.err_code})")
    try:
        known = {(each.id, each.member) for each in examine(before, server, sources=others).warnings}
    except StreamConfigError:
        known = set()
    reported = [each for each in accepted.warnings if (each.id, each.member) not in known]
    if refusals := [f"{place}: {each.member}: {each.sentence}" for each in reported if each.id not in HARMLESS]:
        return refused(*refusals)
    return Handoff(body, (*steps, *(f"Warning: {each.member}: {each.sentence}." for each in reported)))
