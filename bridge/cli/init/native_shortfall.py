"""Explains why a server does not provide a feature of a native configuration. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nats_bridge.bridge.cli.init.landscape import Landscape
from nats_bridge.bridge.client.jetstream_api import Json
from nats_bridge.bridge.jobs.handoff.stream_body import HARMLESS, body_of
from nats_bridge.transforms.errors import StreamConfigError
from nats_bridge.transforms.stream_config import examine


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why the server does not do a feature.

    Attributes:
        text: the reason.
        can: whether it could, if the stream were another one.
    """

    text: str
    can: bool = False


def shortfall(
    wanted: Json, seen: Landscape, member: str, value: Any, shown: str, *, is_there: bool
) -> Shortfall | None:
    """Why the server does not do a feature; None if it does.

    Args:
        wanted: the whole configuration, in the newest servers' form.
        seen: the cluster.
        member: the feature, as a member of the configuration.
        value: that member alone; of `sources` a list with one entry.
        shown: what the reason calls the member.
        is_there: whether the stream has it.
    """
    name, place = str(wanted["name"]), f"server {seen.server_version}"
    others = seen.others(name)
    sources = others if member in ("sources", "mirror") else None
    try:
        accepted = examine(_alone(wanted, member, value), seen.server, strict=False, sources=sources)
    except StreamConfigError as error:
        return Shortfall(f"{place} refuses it: {error.description} ({error.err_code})")
    for warning in accepted.warnings:
        if warning.member.partition("[")[0].partition(".")[0] == member and warning.id not in HARMLESS:
            sentence = warning.sentence.replace("sources[0]", shown)
            said = sentence.removeprefix("the server ")
            return Shortfall(f"{place}{' ' if said != sentence else ': '}{said}")
    if is_there:
        return None
    present = seen.config(name)
    if present is None:
        return Shortfall(f"{place} can do it: create the stream with it", can=True)
    changed = {**body_of(present), member: value}
    if member == "sources":
        changed[member] = [*(present.get("sources") or ()), *value]
    try:
        examine(changed, seen.server, previous=present, sources=others, strict=False)
    except StreamConfigError as error:
        return Shortfall(f"{place} refuses it for a stream that is there: {error.description} ({error.err_code})")
    return Shortfall(f"{place} can do it: give the stream this configuration", can=True)


def _alone(wanted: Json, member: str, value: Any) -> Json:
    """A configuration with this feature and no other."""
    alone: Json = {"name": wanted["name"]}
    if member in ("republish", "subject_transform"):
        # What a stream takes in decides whether they fit.
        alone["subjects"] = wanted.get("subjects") or []
        if mirror := wanted.get("mirror"):
            alone["mirror"] = {"name": mirror["name"]}
        if sources := wanted.get("sources"):
            alone["sources"] = [{"name": name} for name in dict.fromkeys(entry["name"] for entry in sources)]
    return {**alone, member: value}
