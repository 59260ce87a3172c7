"""Converts a consumer's filters to a copy of its stream, by the transforms of the entries. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nats_bridge.kinds.copying.entry_subjects import SETS_APART
from nats_transforms.errors import TransformError
from nats_transforms.sourcing import Sourcing
from nats_transforms.subject_patterns import EVERYTHING, Pattern
from nats_transforms.transform import Transform


@dataclass(frozen=True, slots=True)
class MovedFilters:
    """The filters of a consumer of the target.

    Attributes:
        filters: the converted filters; none for everything.
        is_any: whether anything that the consumer reads is copied.
        uncopied: patterns that the consumer reads in the source and no entry copies.
        surplus: copies that the filters select as well, and that the consumer does not read of the source.
    """

    filters: tuple[str, ...]
    is_any: bool = True
    uncopied: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()


def moved_filters(
    filters: Sequence[str], subjects: Sequence[str], entries: Sequence[Sourcing], others: Sequence[Sourcing]
) -> MovedFilters:
    """Convert a consumer's filters into those of a consumer of the copy.

    Args:
        filters: the filters of the source's consumer; none for everything.
        subjects: the subjects that the source stores; empty if unknown.
        entries: the entries that copy from the source into the target.
        others: the entries that copy from other sources into the target.
    """
    read = [Pattern.of(each) for each in filters] or [EVERYTHING]
    stored = [Pattern.of(each) for each in subjects] or [EVERYTHING]
    made: list[Pattern] = []
    for part in _parts(entries):
        for one in read:
            becomes = part.becomes(one)
            if becomes is not None:
                made.append(becomes)
    kept = [each for n, each in enumerate(made) if not _is_covered(each, n, made)]
    read_here = [common for one in read for each in stored if (common := one.meet(each)) is not None]
    uncopied = [one for one in read_here if not any(one.within(part.pattern) for part in _parts(entries))]
    uncopied += [left for each in entries for text in each.exclude for left in _meets(read_here, Pattern.of(text))]
    surplus = [part.text for part in _parts(entries) if any(part.adds_to(each, read) for each in kept)]
    surplus += [
        f"{part.text} of {other.source.decode()}"
        for other in others
        for part in _parts([other])
        if any((becomes := part.becomes(EVERYTHING)) is not None and becomes.meet(each) is not None for each in kept)
    ]
    texts = tuple(map(str, kept))
    return MovedFilters(() if texts == (">",) else texts, bool(texts), tuple(map(str, uncopied)), tuple(surplus))


def _meets(patterns: Sequence[Pattern], other: Pattern) -> Iterator[Pattern]:
    for one in patterns:
        if (common := one.meet(other)) is not None:
            yield common


def _is_covered(one: Pattern, number: int, others: Sequence[Pattern]) -> bool:
    # Of two equal patterns the first stays.
    return any(
        one.within(other) and (n < number or not other.within(one)) for n, other in enumerate(others) if n != number
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """One transform of an entry, or its filter.

    Attributes:
        pattern: the source's subjects that it selects.
        transform: the transform of these subjects; None if they stay the same.
    """

    pattern: Pattern
    transform: Transform | None

    @property
    def text(self) -> str:
        if self.transform is None or self.transform.is_empty:
            return str(self.pattern)
        return f"{self.pattern} to {self.transform.destination.decode()}"

    def becomes(self, subjects: Pattern) -> Pattern | None:
        """Return the copies' pattern for some subjects of the source; None if the part selects none of them."""
        return subjects.meet(self.pattern) if self.transform is None else subjects.through(self.transform)

    def adds_to(self, moved: Pattern, read: Sequence[Pattern]) -> bool:
        """Return whether copies of messages that a consumer does not read pass a filter of the target."""
        if any(self.pattern.within(one) for one in read):
            return False
        becomes = self.becomes(EVERYTHING)
        if becomes is None or becomes.meet(moved) is None:
            return False
        if self.transform is None or self.transform.is_empty:
            source = moved.meet(self.pattern)
        else:
            try:
                source = moved.through(self.transform.reverse())
            except TransformError:
                return True  # the copy's subject does not reveal the source's subject
        return source is not None and not any(source.within(one) for one in read)


def _parts(entries: Sequence[Sourcing]) -> Iterator[_Part]:
    for entry in entries:
        for transform in entry.transforms:
            if transform.pattern.startswith(SETS_APART.encode()):
                continue  # a consumer that reads everything would get a second filter, which 2.9 does not take
            yield _Part(Pattern.of_transform(transform), transform)
        if not entry.transforms:
            yield _Part(Pattern.of(entry.record_filters[0]), None)
