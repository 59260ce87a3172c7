"""An entry's filters and transforms, and where its copies are stored: patterns of subjects, and one for trying."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nats_bridge.bridge.rules.loops.subject_overlap import covering_filter
from nats_bridge.bridge.settings import Source
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.sourcing import Sourcing, compile_sourcing
from nats_bridge.transforms.subject import ANY, REST, tokens

_SOMETHING = b"nats-bridge"
"""Stands for whatever a wildcard or a function can be, in a subject that is only meant to be stored by a stream."""


def compiled_entry(source: Source, dialect: Dialect, *, mirrors: bool) -> Sourcing:
    """The filters and transforms of an entry.

    Raises:
        TransformError: the server of the dialect would refuse a transform.
    """
    exclude = [pattern.encode() for pattern in source.exclude]
    where = None if source.where is None else source.where.condition
    return compile_sourcing(source.native(), dialect, mirrors=mirrors, exclude=exclude, where=where)


def destinations(sourcing: Sourcing) -> list[bytes]:
    """Patterns of what an entry stores."""
    patterns = [covering_filter(transform).encode() for transform in sourcing.transforms]
    return patterns or list(sourcing.filters) or [REST]


def common_subject(some: Iterable[bytes], others: Sequence[bytes]) -> bytes | None:
    """A subject without wildcards that matches a pattern of both; None if there is none."""
    for one in some:
        for other in others:
            found = _common(tokens(one), tokens(other))
            if found:
                return b".".join(found)
    return None


def _common(one: Sequence[bytes], other: Sequence[bytes]) -> list[bytes]:
    """The tokens of a subject that matches both patterns; none if there is no such subject."""
    found: list[bytes] = []
    position = 0
    while True:
        a = one[position] if position < len(one) else None
        b = other[position] if position < len(other) else None
        if a is None and b is None:
            return found
        if a == REST and b == REST:
            return [*found, _SOMETHING]
        if REST in (a, b):
            rest = other[position:] if a == REST else one[position:]
            return [*found, *(_SOMETHING if token in (ANY, REST) else token for token in rest)] if rest else []
        if a is None or b is None or (a != b and ANY not in (a, b)):
            return []
        found.append(a if b == ANY else b)
        if found[-1] == ANY:
            found[-1] = _SOMETHING
        position += 1
