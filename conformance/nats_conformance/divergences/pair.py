"""An expectation with its observation, and how a part of both is removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from nats_conformance.catalogue.case import Case, Expectation, Message, MessagePattern
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation, Stored
from nats_transforms.republish import unpublishable

_NO_LINES: Final = b"NATS/1.0\r\n\r\n"
_DEL: Final = b"\x7f"


@dataclass(frozen=True, slots=True)
class Pair:
    """The expectation and the observation of a case on a test subject."""

    case: Case
    subject: Identity
    expectation: Expectation
    observation: Observation

    @property
    def refusals(self) -> tuple[str, ...]:
        """The bridge's own words on the rules that it refuses."""
        return tuple(str(text) for fact, text in self.observation.facts.items() if fact.startswith("refused "))

    def streams(self, member: str) -> frozenset[str]:
        """Return the streams of the case that have a member in some configuration."""
        return frozenset(str(config.get("name")) for config in self.case.configs if config.get(member))

    @property
    def copies(self) -> frozenset[str]:
        """The streams of the case that copy from others."""
        return self.streams("sources") | self.streams("mirror")


Normaliser: TypeAlias = Callable[[Pair], Pair]
"""Returns both sides without its divergence; the same objects if there is nothing to remove."""


def published(*members: str) -> Normaliser:
    """Ignore messages that rules publish and native servers only store, which subscribers of these subjects receive."""

    def normalise(pair: Pair) -> Pair:
        streams = frozenset[str]().union(*(pair.streams(member) for member in members))
        stored = {
            each.message
            for stream, messages in pair.observation.stored.items()
            if stream in streams
            for each in messages
        }
        kept = tuple(each for each in pair.observation.received if each not in stored)
        return replace(pair, observation=replace(pair.observation, received=kept))

    return normalise


def without_unpublishable(pair: Pair, streams: frozenset[str]) -> Pair:
    """Remove expected messages that the sidecar does not publish, and adjust the sequences of later ones."""
    stored: dict[str, tuple[MessagePattern, ...]] = {}
    for stream, messages in (pair.expectation.stored or {}).items():
        kept: list[MessagePattern] = []
        for at, each in enumerate(messages):
            if stream not in streams or unpublishable(each.subject) is None:
                gone = at - len(kept)
                kept.append(each if each.sequence is None else replace(each, sequence=each.sequence - gone))
        stored[stream] = tuple(kept)
    return replace(pair, expectation=replace(pair.expectation, stored=stored)) if stored else pair


def unfound(pair: Pair) -> Pair:
    """Remove messages that a consumer's filter does not find: those with the byte 7f in the subject."""
    filled = pair.copies
    found = pair.expectation
    received = None if found.received is None else tuple(each for each in found.received if _DEL not in each.subject)
    stored = {
        stream: tuple(each for each in messages if stream not in filled or _DEL not in each.subject)
        for stream, messages in (found.stored or {}).items()
    }
    return replace(pair, expectation=replace(found, received=received, stored=stored or found.stored))


def expected_blocks(pair: Pair, change: Callable[[bytes], bytes], streams: frozenset[str] | None = None) -> Pair:
    """With every expected header block changed, of these streams alone if they are given."""

    def changed(each: MessagePattern) -> MessagePattern:
        if each.header_block is None:
            return each
        return replace(each, header_block=_tidy(change(each.header_block)))

    found = pair.expectation
    stored = None
    if found.stored is not None:
        stored = {
            stream: tuple(map(changed, messages)) if streams is None or stream in streams else messages
            for stream, messages in found.stored.items()
        }
    received = None if found.received is None else tuple(map(changed, found.received))
    return replace(pair, expectation=replace(found, stored=stored, received=received))


def seen_blocks(pair: Pair, change: Callable[[bytes], bytes]) -> Pair:
    """With every header block changed that was seen."""
    seen = pair.observation
    stored = {stream: tuple(stored_with(each, change) for each in messages) for stream, messages in seen.stored.items()}
    received = tuple(message_with(message, change) for message in seen.received)
    return replace(pair, observation=replace(seen, stored=stored, received=received))


def stored_with(stored: Stored, change: Callable[[bytes], bytes]) -> Stored:
    """Return a stored message with its header block changed."""
    return replace(stored, message=message_with(stored.message, change))


def message_with(message: Message, change: Callable[[bytes], bytes]) -> Message:
    """Return a message with its header block changed."""
    return replace(message, header_block=_tidy(change(message.header_block)))


def _tidy(block: bytes) -> bytes:
    """Return a header block, or none if its last line was removed."""
    return b"" if block == _NO_LINES else block
