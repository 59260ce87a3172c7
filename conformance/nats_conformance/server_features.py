"""Lists features that servers from 2.10 on added to streams and messages, and the configurations they affect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Config = Mapping[str, Any]
"""A stream configuration."""


def _has(*members: str) -> Callable[[Config], bool]:
    return lambda config: any(config.get(member) for member in members)


def _is_bucket(config: Config) -> bool:
    return str(config.get("name", "")).startswith("KV_")


def _has_consumers(config: Config) -> bool:
    return config.get("retention") in ("workqueue", "interest")


@dataclass(frozen=True, slots=True)
class ServerFeature:
    """Something that a minor line added.

    Attributes:
        title: the name of the feature.
        since: the first minor line that has it, as `2.12`.
        names: members of the configuration, values and headers that came with it.
        brings: its effect on a stream.
        concerns: whether it changes anything for a stream with this configuration, or could be used by it.
        later: additions of later lines, by line.
    """

    title: str
    since: str
    names: tuple[str, ...]
    brings: str
    concerns: Callable[[Config], bool]
    later: tuple[tuple[str, str], ...] = ()


SERVER_FEATURES: Final[Mapping[str, ServerFeature]] = {
    feature.title: feature
    for feature in (
        ServerFeature(
            "Message TTLs",
            "2.11",
            ("allow_msg_ttl", "Nats-TTL"),
            "messages expire by their Nats-TTL; before, that is a header like others",
            _has("allow_msg_ttl"),
        ),
        ServerFeature(
            "Delete markers",
            "2.11",
            ("subject_delete_marker_ttl", "Nats-Marker-Reason"),
            "a message with Nats-Marker-Reason is stored, republished and copied when a subject's last one expires",
            _has("subject_delete_marker_ttl"),
        ),
        ServerFeature(
            "Limit markers of buckets",
            "2.11",
            ("subject_delete_marker_ttl",),
            "keys may expire, and a purge may have a TTL",
            _is_bucket,
        ),
        ServerFeature(
            "Counters",
            "2.12",
            ("allow_msg_counter", "Nats-Incr", "Nats-Counter-Sources"),
            "messages add up by their Nats-Incr, and so do sources; before, that is a header like others",
            _has("allow_msg_counter"),
        ),
        ServerFeature(
            "Atomic and fast batches",
            "2.12",
            ("allow_atomic", "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"),
            "several messages are stored together, and republished at the commit",
            _has("allow_atomic", "allow_batched"),
            (("2.14", "fast batches (allow_batched), each message of which is stored and republished at once"),),
        ),
        ServerFeature(
            "Schedules",
            "2.12",
            ("allow_msg_schedules", "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-TTL", "Nats-Scheduler"),
            "a message with Nats-Schedule is stored, and fired as another one; sources and mirrors of it stall",
            _has("allow_msg_schedules"),
            (
                (
                    "2.14",
                    "repeated schedules (@every, cron), Nats-Schedule-Source, -Rollup and -Time-Zone;"
                    " sources and mirrors copy schedules",
                ),
            ),
        ),
        ServerFeature(
            "Asynchronous persistence",
            "2.12",
            ("persist_mode",),
            "messages are acknowledged before they are on disk, if there is one replica",
            _has("persist_mode"),
        ),
        ServerFeature(
            "Promoting a mirror",
            "2.12",
            (),
            "an update without mirror makes the mirror a stream of its own; before, it is refused (10055)",
            _has("mirror"),
        ),
        ServerFeature(
            "First sequence",
            "2.10",
            ("first_seq",),
            "the stream begins at this sequence",
            _has("first_seq"),
        ),
        ServerFeature(
            "Pausing a consumer",
            "2.11",
            ("pause_until",),
            "clients can pause a consumer",
            _has_consumers,
        ),
        ServerFeature(
            "Priority groups",
            "2.11",
            ("priority_groups", "priority_policy"),
            "consumers that are pulled from can share their work by groups (overflow, pinned_client)",
            _has_consumers,
            (("2.12", "the policy prioritized"),),
        ),
        ServerFeature(
            "Sources of work queues",
            "2.14",
            ("flow_control", "consumer"),
            "a work queue or interest stream keeps what it is asked for until the copy is stored; sources can read"
            " through a consumer",
            lambda config: _has_consumers(config) or _has("sources", "mirror")(config),
        ),
        ServerFeature(
            "Identity of sources",
            "2.15",
            (),
            "copies name the source by an identity, too, a recreated source is copied from its beginning, and no client"
            " may publish Nats-Stream-Source",
            _has("sources", "mirror"),
        ),
    )
}
"""By title."""


def changes(config: Config, versions: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the features between versions that affect a stream: minor line, title and effect, oldest first.

    Args:
        config: the stream's configuration.
        versions: full versions, such as `2.10.27`.
    """
    lines = sorted({_line(version) for version in versions})
    if not lines:
        return []
    found = []
    for feature in SERVER_FEATURES.values():
        if feature.concerns(config):
            for since, brings in ((feature.since, feature.brings), *feature.later):
                if lines[0] < _line(since) <= lines[-1]:
                    found.append((since, feature.title, brings))
    return sorted(found, key=lambda each: _line(each[0]))


def _line(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
