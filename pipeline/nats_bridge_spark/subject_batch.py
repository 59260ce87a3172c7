"""Applies a function to an Arrow array of subjects, once for each distinct subject.

Histories repeat the same subjects, so few of an array's subjects are distinct.
"""

from collections.abc import Callable

import pyarrow as pa

from nats_transforms.transform import Transform


def by_subject(
    function: Callable[[bytes], object], subjects: pa.Array, kind: pa.DataType, *, varies: bool = False
) -> pa.Array:
    """Return the results of a function for each subject of an array; null for null.

    Args:
        function: called once for each distinct subject; None becomes null.
        subjects: strings or binary, also large ones.
        varies: whether the function is called for each subject, because its results vary.
    """
    if varies:
        each = subjects.cast(pa.binary()).to_pylist()
        return pa.array([None if subject is None else function(subject) for subject in each], kind)
    distinct = subjects.cast(pa.binary()).dictionary_encode()
    return pa.array(map(function, distinct.dictionary.to_pylist()), kind).take(distinct.indices)


def destinations(transform: Transform, subjects: pa.Array) -> pa.Array:
    """Return subjects through a transform, as binary; null for null, and null if the source does not match."""
    return by_subject(transform.apply, subjects, pa.binary(), varies=transform.is_random)
