"""A change of the number in `partition(n,…)`: what is asked, read from a transform, and as columns of Spark's.

A key is what the function hashes: the values of its tokens, kept apart here (`a`, `bc` and `ab`, `c` hash alike, but
are two keys), or the entire subject where it names no token.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipeline.errors import OptionError
from pipeline.subject_column import compiled, transform_subject
from transforms.destination import Kind
from transforms.dialect import NEWEST, Dialect
from transforms.functions import modulus_of
from transforms.part import Part
from transforms.subject import ANY, DOT, REST, tokens

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["LIMIT", "Change", "change_of"]

LIMIT: Final = 65_536
"""More partitions than this are not planned for."""

_NUMBER: Final = re.compile(rb"(\([\t\n\f\r ]*)[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Change:
    """From `before` to `after` partitions.

    Attributes:
        source: the transform's source, `>` for an empty one.
        destination: the transform's destination as it is.
        new_destination: the same with the other number.
        indexes: the wildcard numbers in the partition function; none for the entire subject.
    """

    source: bytes
    destination: bytes
    new_destination: bytes
    before: int
    after: int
    indexes: tuple[int, ...]

    @property
    def expected(self) -> float:
        """The share of keys that moves when there are very many."""
        return 1 - min(self.before, self.after) / math.lcm(self.before, self.after)

    def key(self, subject: Column) -> Column:
        """The key of a subject, its tokens joined by dots; null where the source does not match."""
        from pyspark.sql import functions

        end = DOT + REST if tokens(self.source)[-1] == REST else b""
        # Matching is the same in all versions; the newest one refuses none of these destinations.
        if not self.indexes:
            return functions.when(transform_subject(subject, self.source, b"x" + end).isNotNull(), subject)
        picked = DOT.join(b"{{wildcard(%d)}}" % index for index in self.indexes)
        return functions.substring_index(transform_subject(subject, self.source, picked + end), ".", len(self.indexes))

    def partition(self, key: Column, count: int) -> Column:
        """The partition, from 0, that the engine gives a key when there are `count` of them."""
        from pyspark.sql import functions

        # A key is a subject, too: all of its tokens are hashed, or it as a whole.
        if not self.indexes:
            made = transform_subject(key, REST, b"{{partition(%d)}}.>" % count)
            return functions.substring_index(made, ".", 1).cast("int")
        stars = DOT.join([ANY] * len(self.indexes))
        arguments = b",".join(b"%d" % number for number in (count, *range(1, len(self.indexes) + 1)))
        return transform_subject(key, stars, b"{{partition(%s)}}" % arguments).cast("int")


def change_of(src: str, dest: str, after: int, dialect: str | Dialect = NEWEST) -> Change:
    """The change that is asked for.

    Args:
        src: the source of a subject transform.
        dest: its destination, with one partition function.
        after: how many partitions there are to be.
        dialect: the server version that the transform is for.

    Raises:
        OptionError: a server of that version refuses the transform; it partitions not at all, or more than once; or a
            number of partitions is none that can be planned for.
    """
    transform = compiled(src, dest, dialect)
    found = [number for number, part in enumerate(transform.parts) if part.kind is Kind.PARTITION]
    if not found:
        raise OptionError(f"--dest '{dest}': {_no_partition(transform.destination, transform.dialect)}")
    if len(found) > 1:
        raise OptionError(f"--dest '{dest}': has {len(found)} partition functions; a plan changes the number of one")
    part = transform.parts[found[0]]
    before = modulus_of(part)
    if not before:
        raise OptionError(f"--dest '{dest}': {part.text.decode()} {_zero(transform.dialect)}")
    if after == 0:
        raise OptionError(f"--to 0: partition(0,…) {_zero(transform.dialect)}; say --to 1 or more")
    if after < 0:
        raise OptionError(f"--to {after}: a server takes it for {after % 2**32} partitions; say --to 1 or more")
    for name, number in (("--dest", before), ("--to", after)):
        if number > LIMIT:
            raise OptionError(f"{name}: {number} partitions; a plan is made for {LIMIT} at most")
    made = tokens(transform.destination)
    made[found[0]] = _NUMBER.sub(b"\\g<1>%d" % after, part.text, count=1)
    return Change(
        source=transform.pattern,
        destination=transform.destination,
        new_destination=DOT.join(made),
        before=before,
        after=after,
        indexes=_indexes(part),
    )


def _indexes(part: Part) -> tuple[int, ...]:
    # Without a wildcard in the source, servers ignore whatever numbers are given.
    return part.indexes if part.positions else ()


def _no_partition(destination: bytes, dialect: Dialect) -> str:
    if b"artition(" in destination and dialect.literal_source_copies_destination:
        return f"a {dialect.name} server copies it as it is, since the source has no wildcard"
    return "has no partition function, such as {{partition(8,1)}}"


def _zero(dialect: Dialect) -> str:
    if dialect.partition_zero_is_safe:
        return "gives every message partition 0"
    return f"ends a {dialect.name} server at its first message"
