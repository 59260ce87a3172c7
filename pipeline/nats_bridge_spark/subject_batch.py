"""A transform applied to an Arrow array of subjects: by the engine's own function, once for each distinct subject.

Histories repeat the same subjects, so few of an array's subjects are distinct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa

from nats_transforms.transform import Transform

Array: TypeAlias = Any
"""A `pyarrow.Array`, which comes without annotations."""


def batch_function(transform: Transform) -> Callable[[Array], Array]:
    """Return the function that transforms an array.

    It takes a string or binary array (or a large one) and returns a binary array of the same length: null for null, and
    null if the source does not match.
    """

    def transformed(subjects: Array) -> Array:
        return _applied(transform.apply, subjects.cast(pa.binary()))

    def transformed_once(subjects: Array) -> Array:
        distinct = subjects.cast(pa.binary()).dictionary_encode()
        return _applied(transform.apply, distinct.dictionary).take(distinct.indices)

    return transformed if transform.is_random else transformed_once


def _applied(apply: Callable[[bytes], bytes | None], subjects: Array) -> Array:
    return pa.array([None if each is None else apply(each) for each in subjects.to_pylist()], pa.binary())
