"""The subjects of an entry: those that it selects in its source, and those that it stores in its target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from nats_bridge.client.jetstream_api import Json
from nats_bridge.settings import Source
from nats_transforms.dialect import Dialect
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.subject import REST, is_subset
from nats_transforms.subject_patterns import Pattern

SETS_APART: Final = "nats-bridge-failover"
"""Begins a filter that no message has: it makes an entry another one, whose start counts (`jobs.failover.way_back`)."""


def select_all(filters: Sequence[bytes], config: Json) -> bool:
    """Return whether filters select every message that a stream can store.

    Args:
        filters: none for everything.
        config: the stream's configuration. It does not list subjects that sources or its own transform bring in.
    """
    if not filters:
        return True
    subjects = [each.encode() for each in config.get("subjects") or ()]
    covered = all(any(is_subset(each, pattern) for pattern in filters) for each in subjects)
    return covered and not any(config.get(member) for member in ("mirror", "sources", "subject_transform"))


def compiled_entry(source: Source, dialect: Dialect, *, mirrors: bool) -> Sourcing:
    """Return the filters and transforms of an entry.

    Raises:
        TransformError: the server of the dialect would refuse a transform.
    """
    exclude = [pattern.encode() for pattern in source.exclude]
    where = None if source.where is None else source.where.condition
    return compile_sourcing(source.native(), dialect, mirrors=mirrors, exclude=exclude, where=where)


def destinations(sourcing: Sourcing) -> list[bytes]:
    """Return the patterns of the subjects that an entry stores."""
    patterns = [transform.covering for transform in sourcing.transforms]
    return patterns or list(sourcing.filters) or [REST]


def common_subject(some: Iterable[bytes], others: Sequence[bytes]) -> bytes | None:
    """Return a subject without wildcards that matches a pattern of both lists; None if none exists."""
    meetings = (Pattern.of(one).meet(Pattern.of(other)) for one in some for other in others)
    return next((common.example for common in meetings if common is not None), None)
