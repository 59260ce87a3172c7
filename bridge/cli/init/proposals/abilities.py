"""What a server does natively of the things that rules do."""

from __future__ import annotations

from dataclasses import dataclass

from nats_bridge.transforms.dialect import Dialect

__all__ = ["Ability", "abilities"]


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing, for a person.

    Attributes:
        feature: what it is.
        native: whether servers of this version do it at all.
        text: how far they do, or what the bridge has for it.
    """

    feature: str
    native: bool
    text: str


def abilities(server: Dialect) -> tuple[Ability, ...]:
    """What servers of a version do natively, a line each."""
    republish = (
        "natively"
        if server.republish_can_be_edited
        else "natively, where the stream was created with it (10052 afterwards); kind: republish for the others"
    )
    copying = "silently ignores them; kind: sources, mirror or kv_sources"
    if server.stream_fields_of_2_10:
        copying = "natively" if server.overlapping_source_filters_work else "natively, filters that overlap excepted"
    ingress = "natively" if server.stream_fields_of_2_10 else "silently ignores it; kind: subject_transform"
    return (
        Ability("republish", True, republish),
        Ability("subject_transforms of sources", server.stream_fields_of_2_10, copying),
        Ability("subject_transform at the ingress", server.stream_fields_of_2_10, ingress),
        Ability(
            "several republish rules per stream, at least once, to other clusters",
            False,
            "no server does; kind: republish",
        ),
        Ability("dead letters with their message", False, "no server does; kind: advisories"),
    )
