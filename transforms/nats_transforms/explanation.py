"""Explains where each token of a result comes from, or why a subject does not match.

Plain data only; the command line renders it.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, assert_never

from nats_transforms.destination import DestinationPart, Kind
from nats_transforms.dialect import Dialect
from nats_transforms.functions import bind, bind_random, fnv1a_32, modulus_of
from nats_transforms.subject import DOT, REST, UNMATCHABLE, is_wild, text_of, tokens


@dataclass(frozen=True, slots=True)
class Input:
    """A token of the subject that went into a function.

    `wildcard` is its number as written (None if a function takes the entire subject), `position` the token's place in
    the subject from 1 (None in that case), `value` its bytes.
    """

    wildcard: int | None
    position: int | None
    value: bytes


@dataclass(frozen=True, slots=True)
class TokenOrigin:
    """The computation of one token of the destination.

    `function` is `literal`, `>` or a function's name; `arguments` its other arguments by name (`n`, `delimiter`); for
    partition, `hash` and `modulus` are the operands of the division.
    """

    token: bytes
    function: str
    inputs: tuple[Input, ...]
    result: bytes
    arguments: dict[str, int | str] = field(default_factory=dict)
    hash: int | None = None
    modulus: int | None = None


@dataclass(frozen=True, slots=True)
class SubjectMismatch:
    """The reason why a subject is not transformed.

    `code` is `no_transform`, `empty_token`, `wildcard_in_subject`, `different`, `too_short` or `too_long`; `position`
    counts tokens from 1 (None for `no_transform`); `expected` is the source's token there, `found` the subject's, or
    None if it has none.
    """

    code: str
    position: int | None
    expected: bytes | None
    found: bytes | None
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation for one subject: a `result` and its `tokens`, or a `mismatch`."""

    source: bytes
    destination: bytes
    subject: bytes
    result: bytes | None
    tokens: tuple[TokenOrigin, ...]
    mismatch: SubjectMismatch | None

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON.

        Bytes that are not UTF-8 are escaped with backslashes; unused numbers are left out.
        """
        found: dict[str, object] = _plain(asdict(self))
        return found


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return text_of(value)
        case dict():
            found = {name: _plain(each) for name, each in value.items()}
            return {name: each for name, each in found.items() if each is not None or name not in _OF_PARTITION}
        case tuple():
            return [_plain(each) for each in value]
        case _:
            return value


_OF_PARTITION = frozenset({"hash", "modulus"})


def explain(
    pattern: bytes, destination: bytes, parts: tuple[DestinationPart, ...], dialect: Dialect, subject: bytes
) -> Explanation:
    """Apply a compiled transform slowly and keep every step."""
    have = tokens(subject)
    if not destination:
        reason = "the destination is empty: there is no transform"
        mismatch: SubjectMismatch | None = SubjectMismatch("no_transform", None, None, None, reason)
    elif pattern == REST and destination == REST:
        mismatch = None
    else:
        mismatch = _unmatchable(have) or _difference(tokens(pattern), have, dialect)
    if mismatch is not None:
        return Explanation(pattern, destination, subject, None, (), mismatch)
    explained = tuple(_explained(part, have, subject) for part in parts)
    result = DOT.join([each.result for each in explained])
    return Explanation(pattern, destination, subject, result, explained, None)


def _unmatchable(have: list[bytes]) -> SubjectMismatch | None:
    for position, token in enumerate(have, 1):
        if not token:
            return SubjectMismatch("empty_token", position, None, token, f"token {position} of the subject is empty")
        if token in UNMATCHABLE:
            reason = f"token {position} of the subject is {text_of(token)}: such subjects are never transformed"
            return SubjectMismatch("wildcard_in_subject", position, None, token, reason)
    return None


def _difference(want: list[bytes], have: list[bytes], dialect: Dialect) -> SubjectMismatch | None:
    for position, token in enumerate(want, 1):
        if position > len(have):
            reason = f"the subject has {len(have)} tokens: nothing for token {position} of the source"
            return SubjectMismatch("too_short", position, token, None, reason)
        if token == REST:
            return None
        found = have[position - 1]
        if token != found and not is_wild(token, by_first_byte=dialect.first_byte_is_wildcard):
            reason = f"token {position} is {text_of(found)}, the source wants {text_of(token)}"
            if found.lower() == token.lower():
                reason += ": upper and lower case differ"
            return SubjectMismatch("different", position, token, found, reason)
    if len(have) > len(want):
        reason = f"the subject has {len(have)} tokens, the source {len(want)}"
        return SubjectMismatch("too_long", len(want) + 1, None, have[len(want)], reason)
    return None


def _explained(part: DestinationPart, have: list[bytes], subject: bytes) -> TokenOrigin:
    if part.kind is Kind.LITERAL:
        return TokenOrigin(part.text, part.kind.value, (), part.text)
    if part.kind is Kind.REST:
        first = part.positions[0]
        copied = tuple(Input(None, at + 1, have[at]) for at in range(first, len(have)))
        return TokenOrigin(part.text, part.kind.value, copied, DOT.join(have[first:]))
    if part.kind is Kind.RANDOM:
        return TokenOrigin(part.text, part.kind.value, (), bind_random(part)(), _arguments(part))
    if part.positions:
        inputs = tuple(Input(index, at + 1, have[at]) for index, at in zip(part.indexes, part.positions, strict=True))
    else:
        inputs = (Input(None, None, subject),)
    key = b"".join([item.value for item in inputs])
    if part.kind is Kind.WILDCARD:
        return TokenOrigin(part.text, part.kind.value, inputs, key)
    result = bind(part)(key)
    if part.kind is Kind.PARTITION:
        modulus = modulus_of(part)
        return TokenOrigin(part.text, part.kind.value, inputs, result, _arguments(part), fnv1a_32(key), modulus)
    return TokenOrigin(part.text, part.kind.value, inputs, result, _arguments(part))


def _arguments(part: DestinationPart) -> dict[str, int | str]:
    match part.kind:
        case Kind.LITERAL | Kind.REST | Kind.WILDCARD:
            return {}
        case Kind.SPLIT:
            return {"delimiter": text_of(part.delimiter)}
        case (
            Kind.PARTITION
            | Kind.RANDOM
            | Kind.SPLIT_FROM_LEFT
            | Kind.SPLIT_FROM_RIGHT
            | Kind.SLICE_FROM_LEFT
            | Kind.SLICE_FROM_RIGHT
            | Kind.LEFT
            | Kind.RIGHT
        ):
            return {"n": part.number}
        case forgotten:
            assert_never(forgotten)
