"""Computes where an entry's copies are stored: patterns of their subjects, and one subject for probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nats_bridge.settings import Source
from nats_transforms.dialect import Dialect
from nats_transforms.sourcing import Sourcing, compile_sourcing
from nats_transforms.subject import REST
from nats_transforms.subject_patterns import Pattern


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
