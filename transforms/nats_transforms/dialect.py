"""Dialects: the server version of each behaviour.

Theory of operation. The flags of `Dialect` name every behaviour that changed between nats-server 2.9 and 2.15, each
with the patch of each minor line that introduced it (some changes were back-ported to older lines). A `Dialect` is a
frozen record of these flags for one full version. Nothing else in the four distributions compares versions. Code reads
`dialect.partition_of_subject` and does not depend on the versions behind it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from nats_transforms.errors import UnknownDialectError
from nats_transforms.tested_versions import NEWEST_PATCHES, Version


@dataclass(frozen=True, slots=True)
class Feature:
    """The versions of a behaviour: from `since` on, up to but not including `until`.

    Each of the two lists the first version *per minor line* that has the change. An unlisted line has it if an older
    line is listed, and does not have it if all listed lines are newer.
    """

    since: tuple[Version, ...]
    until: tuple[Version, ...] = ()

    def holds(self, version: Version) -> bool:
        """Return whether `version` has the behaviour."""
        return _reached(self.since, version) and not _reached(self.until, version)


def _reached(firsts: tuple[Version, ...], version: Version) -> bool:
    for first in firsts:
        if first[:2] == version[:2]:
            return version >= first
    # A back-port does not apply to a younger line that is older than the line it came from; such a line would be
    # listed. So the oldest listed line decides for an unlisted one.
    return any(first[:2] < version[:2] for first in firsts)


def _since(*firsts: Version, until: tuple[Version, ...] = ()) -> Any:
    # One version for each minor line; see `Feature`.
    return field(metadata={_FEATURE: Feature(firsts, until)})


_FEATURE = "feature"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The behaviour of one server version: a flag for each behaviour that changed."""

    version: Version
    # --- transforms
    # A destination need not use every `*` of the source, except in account imports.
    unused_wildcards_allowed: bool = _since((2, 10, 0))
    # If every `*` has to be used, `partition(n,1,2)` counts as two uses. Previously, it counted as one.
    every_index_counts: bool = _since((2, 9, 15))
    # The functions `left` and `right`.
    left_and_right: bool = _since((2, 10, 16))
    # Lengths and positions beyond 32 bits are refused. Previously, they lost their upper bits.
    int32_arguments_checked: bool = _since((2, 11, 8), (2, 12, 0))
    # `partition(n)` hashes the whole subject. More than 2147483647 partitions are refused. If the source has no
    # wildcards, `partition` and `random` are allowed, and the indexes of `partition` are ignored.
    partition_of_subject: bool = _since((2, 12, 0))
    # The function `random`.
    random_function: bool = _since((2, 12, 0))
    # `partition` with 0 partitions gives `0`. Previously, the first matching message ended the server process.
    partition_zero_is_safe: bool = _since((2, 12, 0))
    # If the source has no wildcards, the destination is used verbatim, including braces.
    literal_source_copies_destination: bool = _since((2, 9, 0), until=((2, 10, 0),))
    # If the source has `>` but no `*`, no function is allowed, not even with index 0.
    rest_source_refuses_functions: bool = _since((2, 10, 0), until=((2, 12, 0),))
    # An empty destination means no transform. Previously, it was an error.
    empty_destination_is_no_transform: bool = _since((2, 10, 0))
    # An empty source means `>`. Previously, it meant `>` in republish only.
    empty_source_is_everything: bool = _since((2, 10, 0))
    # In a transform's source, a token such as `*x` is a wildcard. When a configuration's subjects are compared, `>x` is
    # one as well.
    first_byte_is_wildcard: bool = _since((2, 9, 0), until=((2, 14, 10), (2, 15, 3)))
    # The functions `account-hash`, `account-hash-import` and `account-hash-leaf-remote` exist, but streams refuse them.
    account_functions: bool = _since((2, 14, 10), (2, 15, 3))
    # --- errors of mapping destinations
    # The check of mapping destinations has a list of function names of its own.
    mapping_check_knows_left_and_right: bool = _since((2, 14, 7))
    # The error for a function that cannot be parsed: `invalid transform`; before, `invalid subject`.
    mapping_check_says_invalid_transform: bool = _since((2, 11, 0))
    # The error for an empty token: before, "in" followed by nothing.
    mapping_check_leaves_out_empty_token: bool = _since((2, 12, 5))
    # --- republish
    # Republished messages have `Nats-Time-Stamp`.
    republish_time_stamp: bool = _since((2, 10, 0))
    # After a subject's last message is deleted, `Nats-Last-Sequence` is the newest sequence left. Previously, file
    # stores wrote 0.
    last_sequence_survives_deletions: bool = _since((2, 12, 5))
    # A message is not republished if its new subject is not valid for publishing.
    republish_suppresses_invalid_subject: bool = _since((2, 12, 9), (2, 14, 1))
    # A message is not republished if its new subject is a request to the server, such as `$JS.API.>`.
    republish_suppresses_reserved_subject: bool = _since((2, 14, 10), (2, 15, 3))
    # If a stored header block has only two bytes, they are removed before lines are appended. Previously, the block was
    # ignored.
    republish_cuts_two_byte_block: bool = _since((2, 10, 0))
    # An update may add, change or remove `republish`.
    republish_can_be_edited: bool = _since((2, 10, 0))
    # The source need not overlap the stream's subjects. The stream may also have no subjects.
    republish_source_may_miss_subjects: bool = _since((2, 10, 0))
    # If a stream has one subject and a `subject_transform`, `republish` from `>` to `>` sends the transform's
    # result.
    implicit_republish: bool = _since((2, 11, 11), (2, 12, 2), (2, 14, 0))
    # --- sources and mirrors
    # `Nats-Stream-Source` contains filters and destinations after the stream and its sequence.
    source_record_names_filters: bool = _since((2, 10, 0))
    # `Nats-Stream-Source` contains the subject in the source.
    source_record_names_subject: bool = _since((2, 12, 0))
    # `Nats-Stream-Source` distinguishes sources of the same name.
    source_record_names_identity: bool = _since((2, 15, 0))
    # `Nats-Stream-Source` contains the consumer that delivered the message, if the entry has a `consumer`.
    source_record_names_consumer: bool = _since((2, 14, 0))
    # Sources remove the publisher's `Nats-Expected-*`. Previously, the target checked them, and copying stopped.
    sourcing_strips_expectations: bool = _since((2, 10, 14))
    # Mirrors also remove `Nats-Expected-*`.
    mirroring_strips_expectations: bool = _since((2, 11, 5), (2, 12, 0))
    # Copies lose the publisher's `Nats-Batch-*`.
    copies_lose_batch_headers: bool = _since((2, 12, 0))
    # Copies lose every earlier `Nats-Stream-Source`. Previously, they lost only the first.
    copies_lose_every_earlier_record: bool = _since((2, 11, 0))
    # Every stream refuses a client's message with `Nats-Stream-Source` (10227).
    source_record_is_refused_from_clients: bool = _since((2, 15, 0))
    # To find where a source resumes, the server searches subjects that match `filter_subject`. Previously, it searched
    # all subjects.
    source_search_follows_filter: bool = _since((2, 11, 12), (2, 12, 3), (2, 14, 0))
    # If several entries name one source, each entry copies it. Previously, only the first entry did.
    every_entry_of_a_source_copies: bool = _since((2, 10, 0))
    # If a start is after the source's end, copying waits for that sequence. Previously, copying began with the next new
    # message.
    source_start_waits_for_its_sequence: bool = _since((2, 15, 0))
    # A copy with `Nats-Rollup` is stored even if the stream does not allow rollups. Previously, copying stopped there.
    sourcing_takes_refused_rollups: bool = _since((2, 14, 0))
    # A copy is skipped if the target has its `Nats-Msg-Id`. Previously, this copy and all later copies waited until the
    # `duplicate_window` passed.
    copies_skip_duplicates: bool = _since((2, 12, 6), (2, 14, 0))
    # A mirror stores a copy even if the mirror has its `Nats-Msg-Id`.
    mirrors_take_duplicates: bool = _since((2, 12, 8), (2, 14, 0))
    # --- messages that are stored
    # Text after `NATS/1.0` in the first line is cut, and every Nats-Request-Info removed; before, only the first one.
    status_is_cut: bool = _since((2, 11, 15), (2, 12, 6), (2, 14, 0))
    # Nats-Request-Info is found after a longer name that contains it; before, nothing is.
    request_info_is_found_after_longer_names: bool = _since((2, 11, 11), (2, 12, 2), (2, 14, 0))
    # Messages are refused while more than 10,000 wait for a stream; later, while more than 100,000 or 128 MiB wait.
    stream_queue_is_short: bool = _since((2, 11, 0), until=((2, 12, 0),))
    # --- consumers
    # A consumer may have several filters; before, one.
    consumers_take_several_filters: bool = _since((2, 10, 0))
    # A filter need not lie within a subject of the stream; before, such a consumer is refused.
    consumer_filter_may_miss_subjects: bool = _since((2, 10, 0))
    # Reply subjects of deliveries contain a stream name with `%` unchanged; before, the server expands the `%`.
    reply_subjects_keep_percent: bool = _since((2, 9, 16))
    # Consumers of a stream with `%` in its name take acknowledgements; before, these have no effect.
    percent_streams_take_acknowledgements: bool = _since((2, 12, 12), (2, 14, 3))
    # A request can create a consumer only if the name is unused (`action`); before, it changes the other consumer.
    knows_consumer_actions: bool = _since((2, 10, 0))
    # --- stream configuration
    # Members that 2.10 added to the configuration; older servers ignore or refuse them.
    stream_fields_of_2_10: bool = _since((2, 10, 0))
    # Those that 2.11 added.
    stream_fields_of_2_11: bool = _since((2, 11, 0))
    # Those that 2.12 added.
    stream_fields_of_2_12: bool = _since((2, 12, 0))
    # Those that 2.14 added.
    stream_fields_of_2_14: bool = _since((2, 14, 0))
    # Members that belong to stream templates.
    stream_templates: bool = _since((2, 9, 0), until=((2, 14, 0),))
    # Unknown members are refused by default; before, they are ignored.
    strict_json: bool = _since((2, 12, 0))
    # The error for invalid JSON names the mistake.
    json_errors_say_why: bool = _since((2, 11, 0))
    # Names of streams may not hold slashes or backslashes, for sources too.
    asset_names_refuse_slashes: bool = _since((2, 12, 8), (2, 14, 0))
    # max_msgs and its like below -1 become -1; before, they stay.
    negative_limits_mean_unlimited: bool = _since((2, 12, 0))
    # A placement without anything in it is left out of the answer.
    empty_placement_is_dropped: bool = _since((2, 11, 10), (2, 12, 0))
    # subject_delete_marker_ttl turns on allow_msg_ttl and allow_rollup_hdrs; before, it needs allow_msg_ttl.
    delete_markers_turn_on_what_they_need: bool = _since((2, 11, 2))
    # Streams with schedules may neither be counters nor discard new messages.
    schedules_exclude_counters_and_discard_new: bool = _since((2, 12, 10), (2, 14, 2))
    # Streams with sources get no default duplicate_window.
    sources_drop_duplicate_window: bool = _since((2, 14, 0))
    # `>` and subjects of the system need no_ack; before, only $JS.API subjects are refused, always.
    api_subjects_need_no_ack: bool = _since((2, 10, 17))
    # ... also subjects that merely overlap them, such as `*.>`.
    api_subjects_need_no_ack_when_overlapping: bool = _since((2, 11, 2))
    # Each subject is compared with those after it before the next one is checked.
    subject_overlap_is_checked_per_subject: bool = _since((2, 12, 5))
    # All transforms except republish pass the check of mappings, with separate error codes.
    stream_transforms_are_mappings: bool = _since((2, 11, 0))
    # The destinations of sources pass the check of mapping destinations.
    source_transforms_are_mappings: bool = _since((2, 10, 0))
    # subject_transform is checked before republish.
    ingress_transform_is_checked_first: bool = _since((2, 11, 11), (2, 12, 2))
    # Transforms of sources that have `external` are checked, too.
    external_sources_are_checked: bool = _since((2, 12, 5))
    # A stream of this account that has the name of an external source is taken for it.
    external_sources_are_looked_up: bool = _since((2, 9, 0), until=((2, 9, 16), (2, 10, 0)))
    # `"sources": [null]` is refused; before, it ends the server process.
    null_source_is_safe: bool = _since((2, 11, 12), (2, 12, 4))
    # The names of sources are checked, and no source may be named twice.
    source_names_are_checked: bool = _since((2, 10, 0))
    # The filter of a source has to overlap the subjects of its source.
    filters_must_overlap_source: bool = _since((2, 9, 0), until=((2, 10, 0),))
    # Streams that source each other form a cycle only when the filter overlaps the subjects.
    cycles_need_overlap: bool = _since((2, 9, 12))
    # Filters of one mirror may not overlap even in part; before, none may cover another.
    mirror_filters_may_not_collide: bool = _since((2, 10, 14))
    # An update that removes `mirror` makes the mirror a stream of its own.
    mirror_can_be_removed: bool = _since((2, 12, 0))
    # Retention may change between limits and interest.
    retention_can_be_edited: bool = _since((2, 10, 0))
    # An update may change max_consumers.
    max_consumers_can_be_edited: bool = _since((2, 12, 0))
    # Filters of one source that overlap in part work; before, such a source never gets a message. Seen to work on
    # 2.12.15 and not to work on 2.11.17.
    overlapping_source_filters_work: bool = _since((2, 12, 0))

    @property
    def name(self) -> str:
        """The full version as a string, such as `2.10.27`."""
        return ".".join(map(str, self.version))

    def __str__(self) -> str:
        return self.name


FEATURES: Mapping[str, Feature] = MappingProxyType(
    {flag.name: flag.metadata[_FEATURE] for flag in fields(Dialect) if _FEATURE in flag.metadata}
)
"""The versions of each flag of `Dialect`, by its name."""

_VERSION = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6})(?:[-+][0-9A-Za-z.+-]+)?)?", re.ASCII)


@lru_cache(maxsize=64)
def dialect(text: str) -> Dialect:
    """Return the dialect of a server version.

    `text` is a minor line (`2.10`, its newest known patch) or a full version (`2.10.27`, also `v2.10.27` and previews
    such as `2.12.0-RC.1`, which count as their release).

    Raises:
        UnknownDialectError: not a version, or of a minor line that was never tested.
    """
    parsed = _VERSION.fullmatch(text)
    line = (int(parsed[1]), int(parsed[2])) if parsed else (0, 0)
    if parsed is None or line not in NEWEST_PATCHES:
        known = ", ".join(f"{major}.{minor}" for major, minor in NEWEST_PATCHES)
        raise UnknownDialectError(f"unknown dialect {text!r}: known are {known} and full versions such as 2.10.27")
    patch = NEWEST_PATCHES[line] if parsed[3] is None else int(parsed[3])
    version = (*line, patch)
    return Dialect(version=version, **{name: feature.holds(version) for name, feature in FEATURES.items()})


# A newer patch of a known line behaves as that line does.
NEWEST = dialect(".".join(map(str, max(NEWEST_PATCHES))))

FIRST_WITH_TRANSFORMS = dialect("2.10.0")
"""The oldest dialect whose servers transform subjects of copies and published messages."""


def server_dialect(version: str) -> Dialect:
    """Return the dialect of a running server by its version; `NEWEST` for an unknown line."""
    try:
        return dialect(version)
    except UnknownDialectError:
        return NEWEST
