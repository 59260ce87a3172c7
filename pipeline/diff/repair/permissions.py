"""What a comparison with a repair needs of the users of its connections."""

from __future__ import annotations

from collections.abc import Iterator

from nats_bridge.bridge.replication.rules import Need, api_subject, as_text, grants_for, listen, replays, write
from nats_bridge.pipeline.diff.sides import Place

__all__ = ["repair_permissions"]

_READS = ("STREAM.INFO", "STREAM.MSG.GET", "CONSUMER.CREATE")
_READS_BY_CONSUMER = ("CONSUMER.MSG.NEXT", "CONSUMER.INFO", "CONSUMER.DELETE")


def repair_permissions(left: Place, right: Place, *, by: str, delete: bool) -> str:
    """A block of permissions for each side that is a stream, as nats-server reads it.

    Args:
        left: the left side.
        right: the side that is repaired.
        by: what identifies messages; empty where that is decided from the messages.
        delete: whether messages are deleted.
    """
    sides = {name: place for name, place in (("left", left), ("right", right)) if place.connection is not None}
    inboxes = {name: place.connection.inbox_prefix for name, place in sides.items() if place.connection is not None}
    needs = [need for name, place in sides.items() for need in _reading(name, place.name, inboxes[name])]
    if "right" in sides:
        needs += _repairing(right, by, delete=delete)
    return as_text(grants_for(inboxes, needs))


def _reading(side: str, stream: str, inbox: str) -> Iterator[Need]:
    for request in _READS:
        yield write(side, api_subject(request, stream), f"reads stream {stream}")
    for request in _READS_BY_CONSUMER:
        yield write(side, api_subject(request, stream, "*"), f"reads stream {stream}")
    yield listen(side, f"{inbox}.>", "answers and deliveries")


def _repairing(right: Place, by: str, *, delete: bool) -> Iterator[Need]:
    yield from replays("right", right.name, rule="")
    for subject in right.subjects or (">",):
        why = "stores what is missing or wrong" + ("" if right.subjects else "; --right-subject allows less")
        yield write("right", subject, why)
    if delete and by in ("subject", "auto"):
        yield write("right", api_subject("STREAM.PURGE", right.name), "deletes what is too much, --by subject")
    if delete and by != "subject":
        yield write("right", api_subject("STREAM.MSG.DELETE", right.name), "deletes what is wrong or too much")
