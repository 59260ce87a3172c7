"""Warns about accepted configurations that do harm or do not have the intended effect.

Each warning has an id that never changes and one sentence. They are about the configuration as the server stores it, so
they apply to its answers as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats_transforms.dialect import Dialect
from nats_transforms.errors import TransformError
from nats_transforms.stream_config.texts import collide, encoded
from nats_transforms.subject import collide as subjects_collide
from nats_transforms.transform import Transform, compile_transform


@dataclass(frozen=True, slots=True)
class ConfigWarning:
    """A remark on an accepted configuration: a stable id, the place, and a sentence."""

    id: str
    member: str
    sentence: str


def warnings_about(
    config: Mapping[str, Any], ignored: Sequence[str], *, emptied: bool, dialect: Dialect
) -> tuple[ConfigWarning, ...]:
    """Return all warnings about an accepted configuration.

    `ignored` are the paths of members that the server ignored; `emptied` means that the request was an update whose
    republish rule had no destination.
    """
    found = [
        *_ignored_members(ignored),
        *_republish(config, dialect, emptied=emptied),
        *_ingress(config, dialect),
        *_sources(config, dialect),
    ]
    return tuple(found)


_TRANSFORM_MEMBERS = ("subject_transform", "subject_transforms")


def _ignored_members(ignored: Sequence[str]) -> Iterator[ConfigWarning]:
    for path in ignored:
        name = path.rpartition(".")[2].casefold()
        if name not in _TRANSFORM_MEMBERS:
            yield ConfigWarning("unknown-member-ignored", path, f"the server silently ignores {path}")
        elif "." in path:
            yield ConfigWarning(
                "source-transforms-ignored",
                path,
                f"the server silently ignores {path}: everything is sourced, unfiltered and untransformed",
            )
        else:
            yield ConfigWarning(
                "ingress-transform-ignored",
                path,
                f"the server silently ignores {path}: messages are stored under the subjects they arrive with",
            )


def _republish(config: Mapping[str, Any], dialect: Dialect, *, emptied: bool) -> Iterator[ConfigWarning]:
    rule = config["republish"]
    if rule is None:
        return
    if emptied:
        yield ConfigWarning(
            "republish-empty-update-loops",
            "republish",
            "an update with an empty republish destination makes the server republish every message onto its"
            " own subject and store it again, endlessly; leave republish out to remove it",
        )
        return
    if not rule["dest"]:
        yield ConfigWarning(
            "republish-empty-destination",
            "republish.dest",
            "with an empty republish destination nothing is republished",
        )
        return
    transform = _compiled(rule, dialect)
    if transform is None:
        return
    yield from _crashes(transform, "republish.dest")
    again = [one for one in config["subjects"] if subjects_collide(transform.covering, encoded(one))]
    if again:
        yield ConfigWarning(
            "republish-may-loop",
            "republish.dest",
            f"republished messages may fall on the stream's own subject {again[0]} and be stored and republished"
            " again; the server's check compares the destination's text only",
        )


def _ingress(config: Mapping[str, Any], dialect: Dialect) -> Iterator[ConfigWarning]:
    rule = config.get("subject_transform")
    transform = None if rule is None else _compiled(rule, dialect)
    if transform is None:
        return
    yield from _crashes(transform, "subject_transform.dest")
    if transform.is_random and config["num_replicas"] > 1:
        yield ConfigWarning(
            "random-differs-between-replicas",
            "subject_transform.dest",
            "each replica draws its own random number, so the same message has another subject on each of them",
        )


def _sources(config: Mapping[str, Any], dialect: Dialect) -> Iterator[ConfigWarning]:
    mirror = config["mirror"]
    if mirror is not None:
        yield from _crashes_of(mirror, "mirror", dialect)
        # A single empty filter counts as none; among several it makes the copying consumer impossible.
        if len(mirror.get("subject_transforms", ())) > 1:
            yield from _empty_filters(mirror, "mirror")
    for position, source in enumerate(config["sources"]):
        where = f"sources[{position}]"
        yield from _crashes_of(source, where, dialect)
        yield from _empty_filters(source, where)
        filters = [one["src"] or ">" for one in source.get("subject_transforms", ())]
        if not dialect.overlapping_source_filters_work and _any_collide(filters, dialect):
            yield ConfigWarning(
                "overlapping-filters-never-source",
                f"{where}.subject_transforms",
                "filters of this source overlap in part: the server accepts that, but never gets a message from"
                " the source",
            )
    yield from _shared_positions(config["sources"], dialect)


def _empty_filters(source: Mapping[str, Any], where: str) -> Iterator[ConfigWarning]:
    """Transforms without a source, which servers accept from 2.11 on (seen on 2.11.17 to 2.15.1)."""
    for position, transform in enumerate(source.get("subject_transforms", ())):
        if not transform["src"]:
            yield ConfigWarning(
                "empty-filter-never-copies",
                f"{where}.subject_transforms[{position}].src",
                "the server accepts an empty source here, but never gets a message from the source; write '>'",
            )


def _shared_positions(sources: Sequence[Mapping[str, Any]], dialect: Dialect) -> Iterator[ConfigWarning]:
    if dialect.source_names_are_checked:
        return
    seen: set[str] = set()
    for position, source in enumerate(sources):
        if source["name"] in seen:
            yield ConfigWarning(
                "same-source-shares-position",
                f"sources[{position}]",
                f"the server keeps one position for all entries of source {source['name']}: only one of them is active",
            )
        seen.add(source["name"])


def _any_collide(filters: Sequence[str], dialect: Dialect) -> bool:
    return any(
        collide(one, other, dialect) for position, one in enumerate(filters) for other in filters[position + 1 :]
    )


def _crashes_of(source: Mapping[str, Any], where: str, dialect: Dialect) -> Iterator[ConfigWarning]:
    for position, rule in enumerate(source.get("subject_transforms", ())):
        transform = _compiled(rule, dialect)
        if transform is not None:
            yield from _crashes(transform, f"{where}.subject_transforms[{position}].dest")


def _crashes(transform: Transform, member: str) -> Iterator[ConfigWarning]:
    for defect in transform.defects:
        yield ConfigWarning(defect, member, "the server process ends at the first message that matches")


def _compiled(rule: Mapping[str, str], dialect: Dialect) -> Transform | None:
    try:
        transform = compile_transform(encoded(rule["src"]), encoded(rule["dest"]), dialect)
    except TransformError:
        return None
    return None if transform.is_empty else transform
