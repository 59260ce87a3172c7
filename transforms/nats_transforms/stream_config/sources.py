"""Checks mirrors and sources as the server does, and cycles between streams."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats_transforms.destination import check_mapping_destination
from nats_transforms.dialect import Dialect
from nats_transforms.errors import TransformError
from nats_transforms.stream_config.refusals import invalid, not_created, pedantic, refusal
from nats_transforms.stream_config.texts import (
    collide,
    encoded,
    is_publish_subject,
    is_subset,
    is_valid_name,
    is_valid_subject,
)
from nats_transforms.transform import compile_mapping, compile_transform

Streams = Mapping[str, Mapping[str, Any]]
"""Other streams of the account by name, decoded as requests are."""


@dataclass(slots=True)
class Prefixes:
    """The contribution of sources to the check of external prefixes."""

    subjects: list[str]
    deliver: list[str]
    api: list[str]


def check_mirror(config: dict[str, Any], dialect: Dialect, streams: Streams, prefixes: Prefixes) -> None:
    """Check `mirror`. Fill in `mirror_direct` from the source."""
    mirror: dict[str, Any] | None = config["mirror"]
    if mirror is None:
        return
    for member, case in _NOT_WITH_A_MIRROR:
        if config.get(member):
            raise refusal(case)
    if mirror.get("consumer") is not None and not _is_durable_consumer(mirror):
        raise refusal("mirror_consumer")
    transforms: Sequence[dict[str, str]] = mirror.get("subject_transforms", ())
    if mirror["filter_subject"] and transforms:
        raise refusal("mirror_filter_and_transforms")
    if config.get("subject_delete_marker_ttl", 0) > 0:
        raise invalid("subject delete markers forbidden on mirrors")
    _check_mirror_transforms(transforms, dialect)
    if mirror["external"] is not None:
        _add_prefixes(mirror["external"], prefixes)
        if not dialect.external_sources_are_looked_up:
            return
    if dialect.source_names_are_checked and not is_valid_name(mirror["name"], dialect):
        raise refusal("mirror_name")
    stream = streams.get(mirror["name"])
    if stream is None:
        return
    prefixes.subjects += stream["subjects"]
    if 0 < config["max_msg_size"] < stream["max_msg_size"]:
        raise refusal("mirror_message_size")
    if dialect.filters_must_overlap_source:
        _check_overlap("mirror", mirror, stream["subjects"], dialect)
    if config.get("pedantic") and config["mirror_direct"] != stream["allow_direct"]:
        raise pedantic("origin stream has direct get set, mirror has it disabled")
    config["mirror_direct"] = stream["allow_direct"]


_NOT_WITH_A_MIRROR = (
    ("first_seq", "mirror_with_first_seq"),
    ("subjects", "mirror_with_subjects"),
    ("sources", "mirror_with_sources"),
    ("allow_msg_counter", "mirror_with_counters"),
    ("allow_atomic", "mirror_with_atomic"),
    ("allow_batched", "mirror_with_batches"),
    ("allow_msg_schedules", "mirror_with_schedules"),
)


def _check_mirror_transforms(transforms: Sequence[dict[str, str]], dialect: Dialect) -> None:
    overlaps = collide if dialect.mirror_filters_may_not_collide else is_subset
    for position, transform in enumerate(transforms):
        if dialect.stream_transforms_are_mappings:
            check_as_mapping(transform, "mirror", dialect)
        elif not is_valid_subject(transform["src"]):
            raise refusal("mirror_filter")
        _check_filters_apart("mirror", position, transforms, overlaps, dialect)


def check_sources(config: dict[str, Any], dialect: Dialect, streams: Streams, prefixes: Prefixes) -> None:
    """Check `sources`, one entry after the other."""
    if config["sources"] and config.get("allow_msg_schedules"):
        raise refusal("source_with_schedules")
    seen: set[tuple[object, ...]] = set()
    consumers: set[tuple[object, ...]] = set()
    for source in config["sources"]:
        # Servers without this check crash at such a request and never answer. This is the answer of their successors.
        if source is None:
            raise refusal("source_name")
        if dialect.source_names_are_checked:
            if not is_valid_name(source["name"], dialect):
                raise refusal("source_name")
            if identity(source) in seen:
                raise refusal("source_duplicate")
            seen.add(identity(source))
        if dialect.external_sources_are_checked:
            _check_source_transforms(source, dialect)
        _check_source_consumer(source, consumers)
        external = source["external"]
        if external is None or dialect.external_sources_are_looked_up:
            _check_source_source(config, source, dialect, streams, prefixes)
        if external is not None:
            _add_prefixes(external, prefixes)
        elif not dialect.external_sources_are_checked:
            _check_source_transforms(source, dialect)


def _check_source_source(
    config: dict[str, Any], source: dict[str, Any], dialect: Dialect, streams: Streams, prefixes: Prefixes
) -> None:
    stream = streams.get(source["name"])
    if stream is None:
        return
    prefixes.subjects += stream["subjects"]
    if 0 < config["max_msg_size"] < stream["max_msg_size"]:
        raise refusal("source_message_size")
    if dialect.filters_must_overlap_source:
        # The server compares with the subjects of all sources up to this one.
        _check_overlap("source", source, prefixes.subjects, dialect)


def _check_source_transforms(source: dict[str, Any], dialect: Dialect) -> None:
    transforms: Sequence[dict[str, str]] = source.get("subject_transforms", ())
    if source["filter_subject"] and transforms:
        raise refusal("source_filter_and_transforms")
    for transform in transforms:
        if dialect.stream_transforms_are_mappings:
            check_as_mapping(transform, "source", dialect)
        else:
            try:
                check_mapping_destination(encoded(transform["dest"]), dialect)
            except TransformError:
                raise refusal("source_destination") from None
    for position, transform in enumerate(transforms):
        if not dialect.stream_transforms_are_mappings and not is_valid_subject(transform["src"]):
            raise refusal("source_filter")
        _check_filters_apart("source", position, transforms, is_subset, dialect)


def _check_filters_apart(
    kind: str,
    position: int,
    transforms: Sequence[Mapping[str, str]],
    overlaps: Callable[[str, str, Dialect], bool],
    dialect: Dialect,
) -> None:
    others = [each["src"] for at, each in enumerate(transforms) if at != position]
    if any(overlaps(transforms[position]["src"], other, dialect) for other in others):
        raise refusal(f"{kind}_overlap")


def _check_source_consumer(source: dict[str, Any], consumers: set[tuple[object, ...]]) -> None:
    if source.get("consumer") is None:
        return
    if not _is_durable_consumer(source):
        raise refusal("source_consumer")
    consumer = (_source_name(source), source["consumer"]["name"])
    if consumer in consumers:
        raise refusal("source_consumer_duplicate")
    consumers.add(consumer)


def _is_durable_consumer(source: dict[str, Any]) -> bool:
    consumer = source["consumer"]
    name_is_valid = bool(consumer["name"]) and not set(consumer["name"]) & set(" \t\r\n\f.*>\\/")
    start = source["opt_start_seq"] or source["opt_start_time"] is not None
    return name_is_valid and is_publish_subject(consumer["deliver_subject"]) and not (start or source["filter_subject"])


def check_as_mapping(transform: Mapping[str, str], place: str, dialect: Dialect) -> None:
    """Refuse a transform that the check of mappings refuses. `place` is `ingress`, `mirror` or `source`."""
    source = transform["src"]
    if source and not is_valid_subject(source):
        raise refusal(f"{place}_transform_source", reason=f"invalid subject {source}")
    try:
        compile_mapping(encoded(source), encoded(transform["dest"]), dialect)
    except TransformError as error:
        raise refusal(f"{place}_transform", reason=error.reason) from None


def transform_error(transform: Mapping[str, str], dialect: Dialect) -> str:
    """Return the reason why the server cannot build a transform; empty if it can."""
    try:
        compile_transform(encoded(transform["src"]), encoded(transform["dest"]), dialect)
    except TransformError as error:
        return error.reason
    return ""


def _source_name(source: Mapping[str, Any]) -> tuple[object, ...]:
    external = source["external"]
    return (source["name"], None if external is None else external["api"])


def identity(source: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the identity of an entry of `sources`, without its start."""
    consumer = source.get("consumer")
    transforms: Sequence[Mapping[str, str]] = source.get("subject_transforms", ())
    if transforms:
        what = (tuple(one["src"] or ">" for one in transforms), tuple(one["dest"] or ">" for one in transforms))
    else:
        what = ((source["filter_subject"] or ">",), (">",))
    return (*_source_name(source), None if consumer is None else consumer["name"], what)


def _add_prefixes(external: Mapping[str, str], prefixes: Prefixes) -> None:
    if external["deliver"]:
        prefixes.deliver.append(external["deliver"])
    if external["api"]:
        prefixes.api.append(external["api"])


def _check_overlap(kind: str, source: Mapping[str, Any], subjects: Sequence[str], dialect: Dialect) -> None:
    wanted = source["filter_subject"]
    if wanted and subjects and not any(collide(subject, wanted, dialect) for subject in subjects):
        raise invalid(
            f"{kind} '{source['name']}' filter subject '{wanted}' does not overlap with any origin stream subject"
        )


def check_prefixes(prefixes: Prefixes, dialect: Dialect) -> None:
    """Delivery and API prefixes of external sources."""
    for prefix in prefixes.deliver:
        if not is_publish_subject(prefix):
            raise refusal("external_delivery", prefix=prefix)
        for subject in prefixes.subjects:
            if collide(subject, f"{prefix}.{subject}", dialect):
                raise refusal("external_delivery_overlap", prefix=prefix, subject=subject)
    for prefix in prefixes.api:
        if not is_publish_subject(prefix):
            raise invalid(f'stream external api prefix "{prefix}" must be a valid subject without wildcards')
        if collide(prefix, "$JS.API", dialect):
            raise refusal("external_api", prefix=prefix)


def check_cycles(config: Mapping[str, Any], dialect: Dialect, streams: Streams) -> None:
    """Whether the stream, through its sources and theirs, comes back to itself."""
    to_visit: list[Mapping[str, Any]] = [config]
    visited: set[str] = set()
    while to_visit:
        stream = to_visit.pop(0)
        visited.add(stream["name"])
        for source in stream["sources"]:
            if source["external"] is not None:
                continue
            if source["name"] in visited:
                if not dialect.cycles_need_overlap or _may_come_back(stream["subjects"], source, dialect):
                    raise invalid("detected cycle")
            elif source["name"] in streams:
                to_visit.append(streams[source["name"]])
        mirror = stream["mirror"]
        if mirror is not None and mirror["external"] is None:
            if mirror["name"] in visited:
                raise invalid("detected cycle")
            if mirror["name"] in streams:
                to_visit.append(streams[mirror["name"]])


def _may_come_back(subjects: Sequence[str], source: Mapping[str, Any], dialect: Dialect) -> bool:
    wanted: str = source["filter_subject"]
    return not wanted or any(collide(subject, wanted, dialect) for subject in subjects)


def check_filters_of_sources(config: Mapping[str, Any], dialect: Dialect) -> None:
    """Check filters and transforms as the server does while it builds the stream (2.10 and newer)."""
    if not dialect.stream_fields_of_2_10:
        return
    mirror = config["mirror"]
    if mirror is not None:
        wanted = mirror["filter_subject"]
        if not mirror["subject_transforms"] and wanted and not is_valid_subject(wanted):
            raise not_created(f"subject filter '{wanted}' for the mirror invalid subject")
        _check_built(mirror["subject_transforms"], "mirror", dialect)
    for source in config["sources"]:
        wanted = source["filter_subject"]
        if not source["subject_transforms"] and wanted and not is_valid_subject(wanted):
            raise not_created(f"subject filter '{wanted}' for the source: invalid subject")
        _check_built(source["subject_transforms"], "source", dialect)


def _check_built(transforms: Sequence[Mapping[str, str]], kind: str, dialect: Dialect) -> None:
    for transform in transforms:
        source, destination = transform["src"], transform["dest"]
        if source and not is_valid_subject(source):
            if kind == "mirror":
                raise not_created(f"invalid subject transform source '{source}' for the mirror: invalid subject")
            raise not_created(f"subject filter '{source}' for the source: invalid subject")
        reason = transform_error(transform, dialect) if destination else ""
        if reason:
            raise not_created(f"subject transform from '{source}' to '{destination}' for the {kind}: {reason}")
