"""The members of a stream configuration, per dialect: their types, and which are omitted when empty.

Theory of operation. The server reads JSON into nested records, and writes these records back. They are described here
as data, in the order in which the server writes them, with the dialect flag of each member. `reading` uses this table
to decode a request, and `writing` to render the answer. The table also has the names of the server's types, because
they are part of its error texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

from nats_transforms.dialect import Dialect


@dataclass(frozen=True, slots=True)
class Scalar:
    """A string, boolean or integer. `name` is the server's type; `low` and `high` bound numbers."""

    name: str
    zero: str | bool | int
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a fixed set of words; the first is the zero value. With `any_case`, upper case is accepted as well."""

    words: tuple[str, ...]
    any_case: bool = False
    empty_is_zero: bool = False
    own_error: str = ""
    """The server's text for another word, if it differs from the usual one."""


@dataclass(frozen=True, slots=True)
class Time:
    """A point in time as RFC 3339 text, or none."""


@dataclass(frozen=True, slots=True)
class StringMap:
    """An object whose values are strings."""

    name: str = "map[string]string"


@dataclass(frozen=True, slots=True)
class ListOf:
    """An array. `name` is the server's type of the whole."""

    item: Scalar | Struct
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """An object with fixed members. It may be absent if `optional`.

    Instances are compared by identity, because hashing all members would cost more than the cache of `fields_of` saves.
    """

    name: str
    fields: tuple[Field, ...]
    optional: bool = True


Type = Scalar | Choice | Time | StringMap | ListOf | Struct


@dataclass(frozen=True, slots=True)
class Field:
    """One member: its name and type, whether it is omitted when empty, and the flag for its existence."""

    name: str
    type: Type
    written: bool = True
    """Written even when it has its zero value."""
    exists: Callable[[Dialect], bool] = lambda _: True


_STRING = Scalar("string", "")
_BOOL = Scalar("bool", zero=False)
_INT = Scalar("int", 0, -(2**63), 2**63 - 1)
_INT64 = Scalar("int64", 0, -(2**63), 2**63 - 1)
_INT32 = Scalar("int32", 0, -(2**31), 2**31 - 1)
_UINT64 = Scalar("uint64", 0, 0, 2**64 - 1)
_DURATION = Scalar("time.Duration", 0, -(2**63), 2**63 - 1)
_STRINGS = ListOf(_STRING, "[]string")


_of_2_10, _of_2_11, _of_2_12, _of_2_14 = (
    attrgetter(f"stream_fields_of_{line}") for line in ("2_10", "2_11", "2_12", "2_14")
)

_TRANSFORM_FIELDS = (Field("src", _STRING), Field("dest", _STRING))
_TRANSFORM = Struct("SubjectTransformConfig", _TRANSFORM_FIELDS)
_TRANSFORM_ITEM = Struct("SubjectTransformConfig", _TRANSFORM_FIELDS, optional=False)

_SOURCE = Struct(
    "StreamSource",
    (
        Field("name", _STRING),
        Field("opt_start_seq", _UINT64, written=False),
        Field("opt_start_time", Time(), written=False),
        Field("filter_subject", _STRING, written=False),
        Field(
            "subject_transforms",
            ListOf(_TRANSFORM_ITEM, "[]server.SubjectTransformConfig"),
            written=False,
            exists=_of_2_10,
        ),
        Field(
            "external",
            Struct("ExternalStream", (Field("api", _STRING), Field("deliver", _STRING))),
            written=False,
        ),
        Field(
            "consumer",
            Struct(
                "StreamConsumerSource",
                (Field("name", _STRING, written=False), Field("deliver_subject", _STRING, written=False)),
            ),
            written=False,
            exists=_of_2_14,
        ),
    ),
)

_REPUBLISH = Struct(
    "RePublish",
    (
        Field("src", _STRING, written=False),
        Field("dest", _STRING),
        Field("headers_only", _BOOL, written=False),
    ),
)

_PLACEMENT = Struct(
    "Placement",
    (
        Field("cluster", _STRING, written=False),
        Field("tags", _STRINGS, written=False),
        Field("preferred", _STRING, written=False, exists=_of_2_11),
    ),
)

_CONSUMER_LIMITS = Struct(
    "StreamConsumerLimits",
    (
        Field("inactive_threshold", _DURATION, written=False),
        Field("max_ack_pending", _INT, written=False),
    ),
    optional=False,
)

STREAM_FIELDS = (
    Field("name", _STRING),
    Field("description", _STRING, written=False),
    Field("subjects", _STRINGS, written=False),
    Field("retention", Choice(("limits", "interest", "workqueue"))),
    Field("max_consumers", _INT),
    Field("max_msgs", _INT64),
    Field("max_bytes", _INT64),
    Field("max_age", _DURATION),
    Field("max_msgs_per_subject", _INT64),
    Field("max_msg_size", _INT32, written=False),
    Field("discard", Choice(("old", "new"), any_case=True)),
    Field("storage", Choice(("file", "memory"))),
    Field("num_replicas", _INT),
    Field("no_ack", _BOOL, written=False),
    Field("template_owner", _STRING, written=False, exists=attrgetter("stream_templates")),
    Field("duplicate_window", _DURATION, written=False),
    Field("placement", _PLACEMENT, written=False),
    Field("mirror", _SOURCE, written=False),
    Field("sources", ListOf(_SOURCE, "[]*server.StreamSource"), written=False),
    Field(
        "compression",
        Choice(("none", "s2"), own_error="unknown compression algorithm"),
        exists=_of_2_10,
    ),
    Field("first_seq", _UINT64, written=False, exists=_of_2_10),
    Field("subject_transform", _TRANSFORM, written=False, exists=_of_2_10),
    Field("republish", _REPUBLISH, written=False),
    Field("allow_direct", _BOOL),
    Field("mirror_direct", _BOOL),
    Field("discard_new_per_subject", _BOOL, written=False),
    Field("sealed", _BOOL),
    Field("deny_delete", _BOOL),
    Field("deny_purge", _BOOL),
    Field("allow_rollup_hdrs", _BOOL),
    Field("consumer_limits", _CONSUMER_LIMITS, exists=_of_2_10),
    Field("allow_msg_ttl", _BOOL, exists=_of_2_11),
    Field("subject_delete_marker_ttl", _DURATION, written=False, exists=_of_2_11),
    Field("allow_msg_counter", _BOOL, written=False, exists=_of_2_12),
    Field("allow_atomic", _BOOL, written=False, exists=_of_2_12),
    Field("allow_msg_schedules", _BOOL, written=False, exists=_of_2_12),
    Field(
        "persist_mode",
        Choice(("default", "async"), empty_is_zero=True),
        written=False,
        exists=_of_2_12,
    ),
    Field("allow_batched", _BOOL, written=False, exists=_of_2_14),
    Field("metadata", StringMap(), written=False, exists=_of_2_10),
)

REQUEST_ONLY = (Field("pedantic", _BOOL, written=False, exists=_of_2_11),)

_REQUEST = Struct("StreamConfigRequest", STREAM_FIELDS + REQUEST_ONLY, optional=False)


def stream_request() -> Struct:
    """Return the schema of the whole request: a stream configuration and the members of the request alone."""
    return _REQUEST


@lru_cache(maxsize=256)
def fields_of(struct: Struct, dialect: Dialect) -> Mapping[str, Field]:
    """Return the members of a struct that the dialect has, by the case-folded name (keys match in any case)."""
    return {field.name.casefold(): field for field in struct.fields if field.exists(dialect)}


def zero_of(type_: Type, dialect: Dialect) -> Any:
    """Return the value that a member has when the request does not mention it."""
    match type_:
        case Scalar():
            return type_.zero
        case Choice():
            return type_.words[0]
        case ListOf():
            # Servers treat no list like an empty one. Here a missing list is a tuple, and a list from the request is a
            # list.
            return ()
        case StringMap():
            return {}
        case Struct() if not type_.optional:
            return {field.name: zero_of(field.type, dialect) for field in fields_of(type_, dialect).values()}
        case _:
            return None
