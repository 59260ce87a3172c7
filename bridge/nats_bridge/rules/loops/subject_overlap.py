"""Computes which subjects of a stream the results of a transform may have, and a filter may select."""

from collections.abc import Sequence
from itertools import combinations

from nats_transforms.dialect import server_dialect
from nats_transforms.subject import ANY, REST, collide, is_subset, tokens
from nats_transforms.transform import Transform


def may_land_on(transform: Transform, pattern: bytes) -> bool:
    """Return whether `transform` may give a subject that `pattern` stands for.

    A function that results in one token may give any token; one that cuts (split, slice) may give any number of them.
    """
    return _may([part.shape for part in transform.parts], tokens(pattern))


def first_matching(transform: Transform, patterns: Sequence[str]) -> str | None:
    """Return the first of the patterns that a result of the transform may match; None if there is none."""
    return next((pattern for pattern in patterns if may_land_on(transform, pattern.encode())), None)


def takes_filters(server_version: str, patterns: Sequence[bytes], subjects: Sequence[str]) -> bool:
    """Return whether consumers of a stream can filter by patterns.

    Args:
        server_version: the version of the stream's server.
        patterns: the filters.
    """
    server = server_dialect(server_version)
    if len(patterns) > 1 and not server.consumers_take_several_filters:
        return False
    if subjects and not server.consumer_filter_may_miss_subjects:
        within = [any(is_subset(pattern, subject.encode()) for subject in subjects) for pattern in patterns]
        return all(within)
    return are_apart(server_version, patterns)


def are_apart(server_version: str, patterns: Sequence[bytes]) -> bool:
    """Return whether the server regards no two filters of a consumer as overlapping.

    Up to 2.14.9 and 2.15.1 it compares by the first byte of a token, so that `a.*x.>` includes `a.b.c`.
    """
    by_first_byte = server_dialect(server_version).first_byte_is_wildcard
    return not any(
        collide(one, two)
        or is_subset(one, two, by_first_byte=by_first_byte)
        or is_subset(two, one, by_first_byte=by_first_byte)
        for one, two in combinations(patterns, 2)
    )


def _may(made: Sequence[bytes], pattern: Sequence[bytes]) -> bool:
    if not made or not pattern:
        return not made and not pattern
    if pattern[0] == REST:
        return True  # every part makes at least one token
    if made[0] == REST:
        return _may(made[1:], pattern[1:]) or _may(made, pattern[1:])
    return (made[0] == pattern[0] or ANY in (made[0], pattern[0])) and _may(made[1:], pattern[1:])
