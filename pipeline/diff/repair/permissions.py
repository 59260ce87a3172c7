"""What a comparison with a repair needs of the users of its connections."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.replication.rules import Need, api_subject, permissions_of, replays, write
from nats_bridge.pipeline.diff.sides import Place
from nats_bridge.pipeline.source.permissions import reads

__all__ = ["repair_permissions"]


def repair_permissions(left: Place, right: Place, *, by: str, delete: bool) -> str:
    """A block of permissions for each side that is a stream, as nats-server reads it.

    Args:
        left: the left side.
        right: the side that is repaired.
        by: what identifies messages; empty where that is decided from the messages.
        delete: whether messages are deleted.
    """
    sides = {"left": left, "right": right}
    connections = {name: place.connection for name, place in sides.items() if place.connection is not None}
    needs = [need for name in connections for need in reads(name, sides[name].name)]
    if "right" in connections:
        needs += _repairing(right, by, delete=delete)
    return permissions_of(connections, needs)


def _repairing(right: Place, by: str, *, delete: bool) -> Iterator[Need]:
    yield from replays("right", right.name)
    for subject in right.subjects or (">",):
        why = "stores what is missing or wrong" + ("" if right.subjects else "; --right-subject allows less")
        yield write("right", subject, why)
    if delete and by in ("subject", "auto"):
        yield write("right", api_subject("STREAM.PURGE", right.name), "deletes what is too much, --by subject")
    if delete and by != "subject":
        yield write("right", api_subject("STREAM.MSG.DELETE", right.name), "deletes what is wrong or too much")
