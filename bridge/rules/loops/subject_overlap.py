"""Computes which subjects of a stream the results of a transform may have, and a filter may select."""

from __future__ import annotations

from collections.abc import Sequence

from nats_bridge.transforms.subject import ANY, REST, collide, is_subset, tokens
from nats_bridge.transforms.transform import Transform


def may_land_on(transform: Transform, pattern: bytes) -> bool:
    """Whether `transform` may give a subject that `pattern` stands for.

    A function that gives one token may give any; one that cuts (split, slice) may give any number of them.
    """
    return _may([part.shape for part in transform.parts], tokens(pattern))


def first_matching(transform: Transform, patterns: Sequence[str]) -> str | None:
    """The first of the patterns on which the transform may land, None if there is none."""
    return next((pattern for pattern in patterns if may_land_on(transform, pattern.encode())), None)


def takes_filters(server_version: str, patterns: Sequence[bytes], subjects: Sequence[str]) -> bool:
    """Whether consumers of a stream can filter by patterns: of 2.9, one that selects within one of its subjects.

    Args:
        server_version: that of the stream's server.
        patterns: the filters.
        subjects: the stream's.
    """
    if tuple(map(int, server_version.split(".")[:2])) < (2, 10):
        within = [any(is_subset(pattern, subject.encode()) for subject in subjects) for pattern in patterns]
        return len(patterns) < 2 and (all(within) or not subjects)
    return not any(collide(one, two) for n, one in enumerate(patterns) for two in patterns[n + 1 :])


def _may(made: Sequence[bytes], pattern: Sequence[bytes]) -> bool:
    if not made or not pattern:
        return not made and not pattern
    if pattern[0] == REST:
        return True  # every part makes at least one token
    if made[0] == REST:
        return _may(made[1:], pattern[1:]) or _may(made, pattern[1:])
    return (made[0] == pattern[0] or ANY in (made[0], pattern[0])) and _may(made[1:], pattern[1:])
