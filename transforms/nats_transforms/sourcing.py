"""Computes the stored copy for a message of a source or mirrored stream.

Theory of operation. An entry of `sources`, or `mirror`, selects messages by its filters. The first of its transforms
that matches gives each a subject. A transform with an empty destination is only a filter and never matches. A subject
that passed a filter and matches no transform stays the same. Headers that would act in the wrong stream are removed,
and a source record is appended. Order and payload stay. The sidecar adds `exclude`, subjects that are left out first,
and `where`, a condition on a header.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nats_transforms.dialect import NEWEST, Dialect
from nats_transforms.header_block import append, remove, remove_first, remove_prefix
from nats_transforms.republish import Refusal, StoredMessage, unpublishable
from nats_transforms.selection import HeaderCondition, Unselected, left_out, unmatched
from nats_transforms.source_record import (
    HEADER,
    JOINT,
    SEPARATOR,
    TWIN_HEADER,
    SourceRecord,
    consumed_name,
    external_name,
    last_record,
)
from nats_transforms.subject import REST, matcher, text_member
from nats_transforms.transform import Transform, compile_mapping, compile_transform


@dataclass(frozen=True, slots=True)
class Copied:
    """The copy as it is to be stored: raw bytes."""

    subject: bytes
    header_block: bytes
    payload: bytes


Outcome: TypeAlias = Copied | Refusal | None
"""A copy; or the reason why no client can publish it; or None if the entry does not select the message."""


@dataclass(frozen=True, slots=True)
class Sourcing:
    """A compiled entry of `sources`, or `mirror`.

    Attributes:
        source: the source's name in source records, with `:HASH` for an external one and `:C=HASH` for one read by an
            existing consumer.
        filters: the filters of a consumer of the source; empty for everything, or if an existing consumer decides.
        record_filters: the texts of field 3 of the source record.
        record_destinations: the texts of field 4, which end at the first space, as the servers' do (2.10 to 2.15).
        mirrors: whether this is a mirror, whose copies keep more headers in some dialects.
    """

    source: bytes
    filters: tuple[bytes, ...]
    record_filters: tuple[bytes, ...]
    record_destinations: tuple[bytes, ...]
    dialect: Dialect
    mirrors: bool
    exclude: tuple[bytes, ...]
    where: HeaderCondition | None
    transforms: tuple[Transform, ...] = field(repr=False)
    _selects: Callable[[bytes], object] | None = field(init=False, repr=False, compare=False)
    _excludes: Callable[[bytes], object] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_selects", matcher(self.filters))
        object.__setattr__(self, "_excludes", matcher(self.exclude))

    def destination(self, subject: bytes) -> bytes | None:
        """Return the copy's subject, which clients may be unable to publish on; None if the subject is not selected."""
        if (self._selects and not self._selects(subject)) or (self._excludes and self._excludes(subject)):
            return None
        for transform in self.transforms:
            result = transform.apply(subject)
            if result is not None:
                return result
        return subject

    def selects(self, subject: bytes, block: bytes) -> bool:
        """Return whether a message with this subject and header block is copied."""
        return (self.where is None or self.where.holds(block)) and self.destination(subject) is not None

    def unselected(self, message: StoredMessage) -> Unselected | None:
        """Return the reason why the entry does not select a message; None if it does."""
        if self._selects and not self._selects(message.subject):
            return unmatched(message.subject, self.filters)
        return left_out(message.subject, message.header_block, self.exclude, self.where)

    def refusal(self, subject: bytes) -> Refusal | None:
        """Return the reason why no client can publish the copy of this subject.

        None if one can, or if there is no copy.
        """
        destination = self.destination(subject)
        return None if destination is None else _refusal(destination)

    def record(self, sequence: int, subject: bytes, identity: bytes = b"") -> bytes:
        """Return the source record's value for a message of the source."""
        record = SourceRecord(self.source, sequence, self.record_filters, self.record_destinations, subject, identity)
        return record.value(self.dialect)

    def bare(self, stored: bytes) -> bytes:
        """Return a header block without the headers that must not be copied, which is all that a native mirror changes.

        Storing removes one `Nats-Request-Info`. A second such line stays with 2.9 to 2.11, until it is stored again.
        """
        if b"Nats-" not in stored:
            return stored
        stored = remove_first(stored, b"Nats-Request-Info")
        strips = (
            self.dialect.mirroring_strips_expectations if self.mirrors else self.dialect.sourcing_strips_expectations
        )
        if strips:
            stored = remove_prefix(stored, b"Nats-Expected-")
        return remove_prefix(stored, b"Nats-Batch-") if self.dialect.copies_lose_batch_headers else stored

    def without_records(self, stored: bytes) -> bytes:
        """Return a header block without the records of earlier copies: of a chain of copies the last one's counts."""
        return remove(remove(stored, HEADER), TWIN_HEADER)

    def block(self, stored: bytes, record: bytes) -> bytes:
        """Return the copy's header block: without the headers that must not be copied, and with the record.

        It follows the server of the dialect: before 2.11 a server removes only the first earlier record, and then reads
        the next one, which a publisher made up, as its own. To find a position again, use `without_records`.
        """
        if b"Nats-" in stored:
            stored = self.bare(stored)
            if not self.dialect.copies_lose_every_earlier_record:
                return append(remove(remove_first(stored, HEADER), TWIN_HEADER), [(HEADER, record)])
            stored = self.without_records(stored)
        return append(stored, [(HEADER, record)])

    def is_own(self, record: SourceRecord) -> bool:
        """Return whether a record found in the target was written for this entry."""
        return record.is_of(self.source, self.record_filters, self.record_destinations)

    def own_record(self, stored: bytes) -> SourceRecord | None:
        """Return the record with which a message was stored in the target, if it belongs to this entry."""
        record = last_record(stored)
        return record if record is not None and self.is_own(record) else None

    def apply(self, message: StoredMessage, identity: bytes = b"") -> Outcome:
        """Return the copy of a stored message. `identity` is the source's, if known."""
        destination = self.destination(message.subject)
        if destination is None or (self.where is not None and not self.where.holds(message.header_block)):
            return None
        refusal = _refusal(destination)
        if refusal is not None:
            return refusal
        record = self.record(message.sequence, message.subject, identity)
        return Copied(destination, self.block(message.header_block, record), message.payload)


def compile_sourcing(
    entry: Mapping[str, object],
    dialect: Dialect = NEWEST,
    *,
    mirrors: bool = False,
    exclude: Sequence[bytes] = (),
    where: HeaderCondition | None = None,
) -> Sourcing:
    """Compile an entry of the native `sources`, or the native `mirror` object.

    Reads `name`, `filter_subject`, `subject_transforms`, `external` and, from 2.14 on, `consumer`. Messages of that
    consumer are copied even if no transform matches (2.14.9, 2.15.1). `stream_config` checks conditions on several
    transforms (overlaps, duplicates) before this.

    Raises:
        TransformError: the server of the dialect would refuse a transform.
    """
    source = text_member(entry, "name")
    external = entry.get("external")
    if isinstance(external, Mapping):
        source = external_name(source, text_member(external, "api"))
    consumer = entry.get("consumer") if dialect.source_record_names_consumer else None
    if isinstance(consumer, Mapping):
        source = consumed_name(source, text_member(consumer, "name"))
    are_mappings = dialect.stream_transforms_are_mappings if mirrors else dialect.source_transforms_are_mappings
    build = compile_mapping if are_mappings else compile_transform
    given = entry.get("subject_transforms")
    transforms = tuple(
        build(text_member(each, "src"), text_member(each, "dest"), dialect)
        for each in (given if isinstance(given, Sequence) else ())
        if isinstance(each, Mapping)
    )
    if transforms:
        filters = tuple(transform.pattern for transform in transforms)
        destinations = tuple(transform.destination or REST for transform in transforms)
    else:
        filters, destinations = (text_member(entry, "filter_subject") or REST,), (REST,)
    return Sourcing(
        source=source,
        filters=() if REST in filters or consumer else filters,
        record_filters=filters,
        record_destinations=_up_to_a_space(destinations),
        dialect=dialect,
        mirrors=mirrors,
        exclude=tuple(exclude),
        where=where,
        transforms=transforms,
    )


def _up_to_a_space(destinations: tuple[bytes, ...]) -> tuple[bytes, ...]:
    # Servers join all texts of an entry with spaces, cut them apart there, and take the third piece. They look for the
    # whole text when they read a record, so that after a restart they do not find their own place.
    joined = JOINT.join(destinations)
    return tuple(joined.split(SEPARATOR)[0].split(JOINT))


def _refusal(destination: bytes) -> Refusal | None:
    # Servers store such copies (2.10 to 2.15), but clients cannot publish them.
    code = unpublishable(destination)
    return None if code is None else Refusal(code, destination, native=False)
