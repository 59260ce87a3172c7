"""Sets of subjects as patterns: intersects two, and applies a transform to one. Pure.

Theory of operation. One pattern, tokens and perhaps a `>`, describes the subjects that a message may have anywhere on
its path. The intersection of two patterns is again one pattern, or empty. A transform turns a pattern into the pattern
of its results: literals stay, a wildcard carries its token along, `partition` and `random` give a number, and all other
functions may give anything (functions that may split a token may give anything from there on). So a pattern never
excludes a subject that can occur, but it may stand for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from nats_transforms.destination import CUTTING, DestinationPart, Kind
from nats_transforms.dialect import Dialect
from nats_transforms.functions import modulus_of
from nats_transforms.subject import ANY, DOT, REST, bytes_of, is_wild
from nats_transforms.transform import Transform


@dataclass(frozen=True, slots=True)
class _Number:
    """A token that is a decimal number from 0 up to `limit`, exclusive."""

    limit: int

    def holds(self, token: bytes) -> bool:
        """Return whether a literal token is such a number, as a server writes it."""
        return token.isdigit() and (token == b"0" or token[:1] != b"0") and int(token) < self.limit


_Token: TypeAlias = bytes | _Number

_ANYTHING: Final = b"nats-bridge"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A set of subjects.

    Attributes:
        tokens: literals, `*`, and numbers.
        rest: whether one or more arbitrary tokens follow.
    """

    tokens: tuple[_Token, ...]
    rest: bool = False

    @classmethod
    def of(cls, text: str | bytes) -> Pattern:
        """Return the set of subjects of a subscription, a stream's subject or a consumer's filter."""
        tokens = (bytes_of(text) if isinstance(text, str) else text).split(DOT)
        return cls(tuple(tokens[:-1]), rest=True) if tokens[-1] == REST else cls(tuple(tokens))

    @classmethod
    def of_source(cls, text: str | bytes, dialect: Dialect) -> Pattern:
        """Return the set of subjects that a transform's source matches on servers of a dialect.

        Until 2.14.10 and 2.15.3 a token such as `*x` matches any token there (`Dialect.first_byte_is_wildcard`).
        """
        pattern = cls.of(text)
        wild = partial(is_wild, by_first_byte=dialect.first_byte_is_wildcard)
        loose = tuple(ANY if isinstance(token, bytes) and wild(token) else token for token in pattern.tokens)
        return cls(loose, pattern.rest)

    @classmethod
    def of_transform(cls, transform: Transform) -> Pattern:
        """Return the set of subjects that a transform matches, on servers of its dialect."""
        return cls.of_source(transform.pattern, transform.dialect)

    @classmethod
    def of_destination(cls, text: str) -> Pattern:
        """Return the largest set of subjects that a destination's text allows."""
        plain: list[bytes] = []
        for token in bytes_of(text).split(DOT):
            if token == REST or b"{{" in token or token[:1] == b"$":
                return cls(tuple(plain), rest=True)
            plain.append(token)
        return cls(tuple(plain))

    def meet(self, other: Pattern) -> Pattern | None:
        """Return the intersection of both; None if it is empty."""
        common: list[_Token] = []
        for one, two in zip(self.tokens, other.tokens, strict=False):
            token = _meet(one, two)
            if token is None:
                return None
            common.append(token)
        shorter, longer = sorted((self, other), key=lambda pattern: len(pattern.tokens))
        if len(shorter.tokens) == len(longer.tokens):
            return Pattern(tuple(common), self.rest) if self.rest == other.rest else None
        if not shorter.rest:
            return None
        return Pattern((*common, *longer.tokens[len(common) :]), longer.rest)

    def within(self, other: Pattern) -> bool:
        """Return whether `other` stands for every subject that this pattern stands for."""
        if len(other.tokens) > len(self.tokens):
            return False
        if not all(_covers(two, one) for one, two in zip(self.tokens, other.tokens, strict=False)):
            return False
        return self.rest == other.rest if len(other.tokens) == len(self.tokens) else other.rest

    def through(self, transform: Transform) -> Pattern | None:
        """Return the results of a transform for matching subjects; None if none matches.

        A transform with an empty destination leaves the subjects as they are.
        """
        matching = self.meet(Pattern.of_transform(transform))
        if matching is None or transform.is_empty:
            return matching
        if not transform.is_random and (subject := matching.literal) is not None:
            result = transform.apply(subject)
            return None if result is None else Pattern.of(result)
        tokens: list[_Token] = []
        for part in transform.parts:
            if part.kind in CUTTING:
                return Pattern(tuple(tokens), rest=True)
            if part.kind is Kind.REST:
                return Pattern((*tokens, *matching.tokens[part.positions[0] :]), matching.rest)
            tokens.append(_result(part, matching.tokens))
        return Pattern(tuple(tokens))

    def shortened(self, depth: int) -> Pattern:
        """Return a pattern of at most `depth` tokens that stands for these subjects, and perhaps more."""
        return Pattern(self.tokens[:depth], rest=True) if len(self.tokens) > depth else self

    @property
    def first(self) -> bytes | None:
        """The first token, if it is a literal."""
        token = self.tokens[0] if self.tokens else ANY
        return token if isinstance(token, bytes) and token != ANY else None

    @property
    def literal(self) -> bytes | None:
        """The only subject that the pattern stands for; None if there are several."""
        plain = [token for token in self.tokens if isinstance(token, bytes) and token not in (ANY, REST)]
        return DOT.join(plain) if not self.rest and len(plain) == len(self.tokens) else None

    @property
    def example(self) -> bytes:
        """One of the subjects, with the bridge's name wherever it may be anything."""
        tokens = [b"0" if isinstance(token, _Number) else token for token in (*self.tokens, *([ANY] * self.rest))]
        return DOT.join([_ANYTHING if token == ANY else token for token in tokens])

    def __str__(self) -> str:
        texts = [token.decode("utf-8", "replace") if isinstance(token, bytes) else "*" for token in self.tokens]
        return ".".join((*texts, ">") if self.rest else texts)


EVERYTHING: Final = Pattern((), rest=True)
"""All subjects."""


def _meet(one: _Token, two: _Token) -> _Token | None:
    if one in (ANY, two):
        return two
    if two == ANY:
        return one
    if isinstance(one, _Number) and isinstance(two, _Number):
        return min(one, two, key=lambda number: number.limit)
    if isinstance(one, _Number) and isinstance(two, bytes):
        return two if one.holds(two) else None
    if isinstance(two, _Number) and isinstance(one, bytes):
        return one if two.holds(one) else None
    return None


def _covers(one: _Token, two: _Token) -> bool:
    return one == ANY or (two != ANY and _meet(one, two) == two)


def _result(part: DestinationPart, tokens: tuple[_Token, ...]) -> _Token:
    """Return the token that results from a part of a destination."""
    if part.kind is Kind.LITERAL:
        return part.text
    if part.kind is Kind.WILDCARD:
        # Index 0 means the subject's first token, and of `>` not even that one is known.
        return tokens[part.positions[0]] if part.positions[0] < len(tokens) else ANY
    if part.kind is Kind.PARTITION:
        return _Number(modulus_of(part) or 1)
    if part.kind is Kind.RANDOM:
        return _Number(abs(part.number) or 1)
    return ANY
