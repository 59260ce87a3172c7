"""Wrong engines whose transforms give other subjects, or take other texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from nats_conformance.catalogue.case import Json, Refusal
from nats_conformance.implementations.engine_operations import Config, EngineOperations, TransformsEngine
from nats_conformance.observation import Decision
from nats_transforms.destination import Kind, Part
from nats_transforms.dialect import Dialect
from nats_transforms.functions import bind, fnv1a_32, modulus_of
from nats_transforms.republish import Republish
from nats_transforms.sourcing import Sourcing
from nats_transforms.transform import Transform
from tests.miniatures.miniature import Miniature


class _OtherTransforms(TransformsEngine):
    """Has every transform changed, wherever it is applied."""

    def __init__(self, dialect: Dialect, change: Callable[[Transform], Transform]) -> None:
        super().__init__(dialect)
        self._change = change

    def republish_rule(self, stream: str, rule: Config) -> Republish:
        made = super().republish_rule(stream, rule)
        changed = self._change(made.transform)
        return replace(made, transform=changed, destination=changed.apply)

    def ingress_transform(self, pair: Config) -> Transform:
        return self._change(super().ingress_transform(pair))

    def sourcing(self, entry: Config, *, mirrors: bool) -> Sourcing:
        made = super().sourcing(entry, mirrors=mirrors)
        return replace(made, transforms=tuple(self._change(each) for each in made.transforms))


def _changed(change: Callable[[Transform], Transform]) -> Callable[[Dialect], EngineOperations]:
    return lambda dialect: _OtherTransforms(dialect, change)


def _applying(
    wrong: Callable[[Transform, bytes], bytes | None],
) -> Callable[[Dialect], EngineOperations]:
    def change(right: Transform) -> Transform:
        return replace(right, apply=lambda subject: wrong(right, subject))

    return _changed(change)


def _computing(kind: Kind, compute: Callable[[Part, list[bytes]], bytes]) -> Callable[[Dialect], EngineOperations]:
    """Parts of a kind are computed wrongly from their tokens."""

    def wrong(right: Transform, subject: bytes) -> bytes | None:
        if right.apply(subject) is None or not any(part.kind is kind for part in right.parts):
            return right.apply(subject)
        tokens = subject.split(b".")
        return b".".join(_part(part, tokens) for part in right.parts)

    def _part(part: Part, tokens: list[bytes]) -> bytes:
        taken = [tokens[position] for position in part.positions]
        if part.kind is Kind.LITERAL:
            return part.text
        if part.kind is Kind.REST:
            return b".".join(tokens[part.positions[0] :])
        if part.kind is Kind.WILDCARD:
            return taken[0]
        if part.kind is kind:
            return compute(part, taken)
        return bind(part)(b"".join(taken))

    return _applying(wrong)


def _modulo(value: int, part: Part) -> int:
    modulus = modulus_of(part)
    return value % modulus if modulus else 0


def _hash_with_separators(part: Part, tokens: list[bytes]) -> bytes:
    return b"%d" % _modulo(fnv1a_32(b".".join(tokens)), part)


def _hash_in_order_of_subject(part: Part, tokens: list[bytes]) -> bytes:
    positions = sorted(zip(part.positions, tokens, strict=True))
    return b"%d" % _modulo(fnv1a_32(b"".join(token for _, token in positions)), part)


def _hash_of_characters(part: Part, tokens: list[bytes]) -> bytes:
    value = 2166136261
    for character in b"".join(tokens).decode("utf-8", "replace"):
        value = (value ^ ord(character)) * 16777619 & 0xFFFFFFFF
    return b"%d" % _modulo(value, part)


def _signed_hash(part: Part, tokens: list[bytes]) -> bytes:
    value = fnv1a_32(b"".join(tokens))
    return b"%d" % _modulo(abs(value - 2**32 if value >= 2**31 else value), part)


def _split_at_characters(part: Part, tokens: list[bytes]) -> bytes:
    text = tokens[0].decode("utf-8", "replace")
    cut = text if part.number >= len(text) else f"{text[: part.number]}.{text[part.number :]}"
    return cut.encode()


def _split_from_the_other_end(part: Part, tokens: list[bytes]) -> bytes:
    return bind(replace(part, kind=Kind.SPLIT_FROM_LEFT))(tokens[0])


def _slice_from_the_other_end(part: Part, tokens: list[bytes]) -> bytes:
    return bind(replace(part, kind=Kind.SLICE_FROM_LEFT))(tokens[0])


def _split_keeps_empty_pieces(part: Part, tokens: list[bytes]) -> bytes:
    return tokens[0].replace(part.delimiter, b".")


def _rest_of_no_tokens(right: Transform, subject: bytes) -> bytes | None:
    if right.pattern == subject + b".>":
        return right.destination.removesuffix(b".>")
    return right.apply(subject)


def _any_case(right: Transform, subject: bytes) -> bytes | None:
    return right.apply(subject) or right.apply(subject.lower())


def _within_tokens(right: Transform, subject: bytes) -> bytes | None:
    result = right.apply(subject)
    tokens = subject.split(b".")
    stars = [token for token, pattern in zip(tokens, right.pattern.split(b"."), strict=False) if pattern == b"*"]
    if result is None:
        return None
    return re.sub(rb"\$([1-9])", lambda found: (stars[int(found[1]) - 1 :] or [found[0]])[0], result)


def _destination(config: Json) -> str:
    """That of republish; empty where there is none, or it is no text."""
    rule = config.get("republish") if isinstance(config, Mapping) else None
    destination = rule.get("dest") if isinstance(rule, Mapping) else None
    return destination if isinstance(destination, str) else ""


class _RefusesDestinations(TransformsEngine):
    """Refuses republish destinations that have something in them."""

    def __init__(self, dialect: Dialect, pattern: str) -> None:
        super().__init__(dialect)
        self._pattern = pattern

    async def decide(self, config: Json, previous: Config | None, others: Mapping[str, Config]) -> Decision:
        if re.search(self._pattern, _destination(config)):
            return Decision(refusal=Refusal(500, 10052, "stream configuration for republish not valid"))
        return await super().decide(config, previous, others)


def _refusing(pattern: str) -> Callable[[Dialect], EngineOperations]:
    return lambda dialect: _RefusesDestinations(dialect, pattern)


class _AnyCaseOfNames(TransformsEngine):
    """Takes function names in any case."""

    async def decide(self, config: Json, previous: Config | None, others: Mapping[str, Config]) -> Decision:
        destination = _destination(config)
        if destination:
            lower = re.sub(r"\{\{\s*[A-Za-z]+", lambda found: found[0].lower(), destination)
            config = {**config, "republish": {**config["republish"], "dest": lower}}
        return await super().decide(config, previous, others)


FUNCTIONS = (
    Miniature(
        "hashes-with-separators",
        "hashes partition's tokens with dots between them",
        "adr30/hash/tokens/1",
        _computing(Kind.PARTITION, _hash_with_separators),
    ),
    Miniature(
        "hashes-in-order-of-subject",
        "hashes partition's tokens in the subject's order, not in that of the arguments",
        "adr30/hash/tokens/2",
        _computing(Kind.PARTITION, _hash_in_order_of_subject),
    ),
    Miniature(
        "hashes-characters",
        "hashes characters instead of bytes",
        "adr30/hash/bytes/1",
        _computing(Kind.PARTITION, _hash_of_characters),
    ),
    Miniature(
        "hashes-with-sign",
        "takes the hash for a signed number",
        "adr30/hash/tokens/1",
        _computing(Kind.PARTITION, _signed_hash),
    ),
    Miniature(
        "splits-by-characters",
        "counts characters instead of bytes where it splits",
        "adr30/cut/bytes/1",
        _computing(Kind.SPLIT_FROM_LEFT, _split_at_characters),
    ),
    Miniature(
        "splits-from-the-wrong-end",
        "counts splitFromRight from the left",
        "adr30/cut/bytes/2",
        _computing(Kind.SPLIT_FROM_RIGHT, _split_from_the_other_end),
    ),
    Miniature(
        "remainder-at-the-end",
        "leaves sliceFromRight's remainder at the end",
        "adr30/cut/remainder/1",
        _computing(Kind.SLICE_FROM_RIGHT, _slice_from_the_other_end),
    ),
    Miniature(
        "keeps-empty-pieces",
        "leaves empty tokens where split finds two delimiters in a row",
        "adr30/cut/delimiters/1",
        _computing(Kind.SPLIT, _split_keeps_empty_pieces),
    ),
    Miniature(
        "rest-of-no-tokens",
        "lets > stand for no token at all",
        "adr30/tail/one-token/1",
        _applying(_rest_of_no_tokens),
    ),
    Miniature(
        "matches-any-case",
        "matches subjects whatever their case",
        "adr28/selection/source/1",
        _applying(_any_case),
    ),
    Miniature(
        "wildcards-within-tokens",
        "fills in a wildcard that is a part of a token",
        "adr30/spelling/within/1",
        _applying(_within_tokens),
    ),
    Miniature(
        "refuses-index-zero",
        "refuses index 0, as a careful engine would",
        "adr30/index/zero/1",
        _refusing(r"\((0|-)"),
    ),
    Miniature(
        "case-sensitive-names",
        "knows function names in lower case and camel case alone",
        "adr30/spelling/capitals/1",
        _refusing(r"\{\{\s*[A-Z]"),
    ),
    Miniature(
        "anchored-names",
        "wants a function's name right behind the braces",
        "adr30/spelling/search/1",
        _refusing(r"\{\{[a-z]*\{\{"),
    ),
    Miniature(
        "any-case-of-names",
        "knows function names in any case",
        "adr30/spelling/capitals/2",
        _AnyCaseOfNames,
    ),
)
