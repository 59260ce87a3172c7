"""Subject transforms: a source pattern, a destination, and the resulting bytes for a subject.

Theory of operation. `compile_transform` reads both texts with the checks of the chosen server version. It turns them
into a sequence of `DestinationPart` values, one for each destination token, each with the positions of the subject's
tokens that it needs. From these, `program` writes one specialised function (`Transform.apply`), `explanation` explains
the result to people, and `reversal` builds the inverse. All offsets are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nats_transforms.destination import (
    DestinationPart,
    Kind,
    check_mapping_destination,
    index_out_of_range,
    parse_token,
    unused_wildcards,
)
from nats_transforms.dialect import NEWEST, Dialect
from nats_transforms.errors import TransformError
from nats_transforms.explanation import Explanation, explain
from nats_transforms.program import compile_program
from nats_transforms.reversal import reversed_texts
from nats_transforms.subject import ANY, DOT, REST, is_valid_pattern, tokens


@dataclass(frozen=True, slots=True)
class Transform:
    """A compiled transform.

    `source` and `destination` are the texts as given. `apply(subject)` returns the new subject, or None if the source
    does not match; it never raises. If the destination is empty (from 2.10 on) the server has *no transform object*:
    `is_empty` is true and `apply` returns None for every subject. Each feature decides what follows (republish: nothing
    is sent; ingress, sources, mirrors: the subject stays). `is_random` means that the same subject may give different
    results. `defects` are the ids of native defects of this dialect with this transform: `crash-partition-zero` (the
    process ends at the first matching message).
    """

    source: bytes
    destination: bytes
    dialect: Dialect
    parts: tuple[DestinationPart, ...] = field(repr=False)
    apply: Callable[[bytes], bytes | None] = field(repr=False, compare=False)

    @property
    def pattern(self) -> bytes:
        """The source with an empty one filled in."""
        return self.source or REST

    @property
    def is_empty(self) -> bool:
        """Whether the server has no transform object, because the destination is empty."""
        return not self.destination

    @property
    def is_random(self) -> bool:
        """Whether the result may differ from one message to the next."""
        return any(part.kind is Kind.RANDOM and abs(part.number) > 1 for part in self.parts)

    @property
    def defects(self) -> tuple[str, ...]:
        """Ids of the native defects that this transform meets on servers of its dialect."""
        crash = any(part.kind is Kind.PARTITION and part.number == 0 for part in self.parts)
        return ("crash-partition-zero",) if crash and not self.dialect.partition_zero_is_safe else ()

    @property
    def covering(self) -> bytes:
        """A subject with wildcards that covers every result; the source if the transform changes nothing."""
        shapes = [part.shape for part in self.parts]
        if REST in shapes:
            shapes = shapes[: shapes.index(REST) + 1]
        return DOT.join(shapes) or self.pattern

    def explain(self, subject: bytes) -> Explanation:
        """Explain where every token of the result comes from, or why the source does not match."""
        return explain(self.pattern, self.destination, self.parts, self.dialect, subject)

    def reverse(self) -> Transform:
        """Return the transform that reverses this one on every subject that it matches.

        Raises:
            TransformError: code `not_reversible`, unless the destination consists of literals and each wildcard of the
                source exactly once.
        """
        source, destination = reversed_texts(self.pattern, self.parts, self.dialect)
        return compile_transform(source, destination, self.dialect)

    def __reduce__(self) -> tuple[Callable[..., Transform], tuple[bytes, bytes, Dialect]]:
        return compile_transform, (self.source, self.destination, self.dialect)


def compile_transform(source: bytes, destination: bytes, dialect: Dialect = NEWEST) -> Transform:
    """Build a transform as the server of the dialect does.

    Raises:
        TransformError: the server would refuse it; `reason` is its text.
    """
    if not destination and dialect.empty_destination_is_no_transform:
        return Transform(source, destination, dialect, (), _no_transform)
    pattern = source or (REST if dialect.empty_source_is_everything else b"")
    if not is_valid_pattern(pattern) or not is_valid_pattern(destination):
        raise _invalid_subject()
    source_tokens, destination_tokens = tokens(pattern), tokens(destination)
    if ANY in destination_tokens or (source_tokens[-1] == REST) != (destination_tokens[-1] == REST):
        raise _invalid_subject()
    parts = _parts(source_tokens, destination_tokens, destination, dialect)
    return Transform(source, destination, dialect, parts, compile_program(pattern, destination, parts, dialect))


def compile_mapping(source: bytes, destination: bytes, dialect: Dialect = NEWEST) -> Transform:
    """Build a transform with the additional check of mapping destinations before.

    Servers do this for account mappings, and from 2.11 on for all transforms in stream configurations except republish.

    Raises:
        TransformError: the server would refuse it; `reason` is its text.
    """
    check_mapping_destination(destination, dialect)
    return compile_transform(source, destination, dialect)


def _parts(
    source_tokens: list[bytes],
    destination_tokens: list[bytes],
    destination: bytes,
    dialect: Dialect,
) -> tuple[DestinationPart, ...]:
    positions = [position for position, token in enumerate(source_tokens) if token == ANY]
    has_rest = source_tokens[-1] == REST
    if not positions and not has_rest and dialect.literal_source_copies_destination:
        return tuple(DestinationPart(text, Kind.LITERAL) for text in destination_tokens)
    numbered = bool(positions) or (has_rest and not dialect.rest_source_refuses_functions)
    parts: list[DestinationPart] = []
    uses = 0
    for text in destination_tokens:
        token = parse_token(text, dialect)
        if not token.is_function:
            parts.append(replace(token, positions=(len(source_tokens) - 1,) if token.kind is Kind.REST else ()))
        elif numbered:
            uses += len(token.indexes) if dialect.every_index_counts else 1
            parts.append(_numbered_part(token, positions))
        else:
            parts.append(_literal_source_part(token, dialect))
    if uses < len(positions) and not dialect.unused_wildcards_allowed:
        raise unused_wildcards(destination)
    return tuple(parts)


def _numbered_part(token: DestinationPart, positions: list[int]) -> DestinationPart:
    for index in token.indexes:
        if index > len(positions):
            raise index_out_of_range(token, index)
    # Index 0 and negative ones are accepted by every server and mean the subject's first token.
    where = tuple(positions[index - 1] if index > 0 else 0 for index in token.indexes)
    return replace(token, positions=where)


def _literal_source_part(token: DestinationPart, dialect: Dialect) -> DestinationPart:
    if dialect.partition_of_subject and token.kind in (Kind.PARTITION, Kind.RANDOM):
        # The indexes are always dropped: partition hashes the entire subject.
        return replace(token, indexes=())
    raise index_out_of_range(token, None)


def _no_transform(subject: bytes) -> None:
    return None


def _invalid_subject() -> TransformError:
    return TransformError("invalid_subject", "invalid subject")
