"""Finds where an entry of ``sources``, or ``mirror``, starts before its first copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nats_bridge.conformance.catalogue.case import Json
from nats_bridge.conformance.implementations.stream_model import StreamModel
from nats_bridge.transforms.dialect import Dialect, Feature
from nats_bridge.transforms.source_record import SourceRecord, first_record
from nats_bridge.transforms.subject import matches
from nats_bridge.transforms.timestamp import nanoseconds_of

__all__ = ["start_of"]

_WAITS = Feature(since=((2, 15, 0),))
"""A start after the source's end is waited for; before, it is the next new message, whatever its sequence."""


def start_of(
    entry: Mapping[str, Json], target: StreamModel, source: StreamModel, dialect: Dialect, *, mirrors: bool
) -> int:
    """Return the source's sequence to begin with: after the records in the target, else from the entry."""
    known = 0 if mirrors else _recorded(entry, target, dialect)
    if known:
        return known + 1
    if entry.get("opt_start_seq"):
        start = int(entry["opt_start_seq"])
        return start if _WAITS.holds(dialect.version) else min(start, source.last_sequence + 1)
    if entry.get("opt_start_time"):
        begin = nanoseconds_of(entry["opt_start_time"])
        later = (sequence for sequence, each in source.messages.items() if each.time_ns >= begin)
        return next(later, source.last_sequence + 1)
    return 0


def _recorded(entry: Mapping[str, Json], target: StreamModel, dialect: Dialect) -> int:
    """The sequence in the newest record of this entry that the target holds; 0 for none."""
    checked = entry.get("filter_subject") if dialect.source_search_follows_filter else None
    for each in reversed(target.messages.values()):
        if checked and not matches(each.message.subject, _raw(checked)):
            continue
        record = first_record(each.message.header_block)
        if record is not None and _is_of(record, entry, dialect):
            return record.sequence
    return 0


def _is_of(record: SourceRecord, entry: Mapping[str, Json], dialect: Dialect) -> bool:
    if record.filters is not None and not dialect.source_record_names_filters:
        return False
    transforms = entry.get("subject_transforms") or ({"src": entry.get("filter_subject"), "dest": ""},)
    filters = tuple(_raw(each.get("src")) for each in transforms)
    destinations = tuple(_raw(each.get("dest")) for each in transforms)
    return record.is_of(_raw(entry["name"]), filters, destinations)


def _raw(text: Any) -> bytes:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else b""
