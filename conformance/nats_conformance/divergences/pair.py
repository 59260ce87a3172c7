"""An expectation with its observation, and how a part of both is removed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias, TypeVar

from nats_conformance.catalogue.case import Case, Expectation, Message, MessagePattern
from nats_conformance.identity import Identity
from nats_conformance.observation import Observation
from nats_transforms.republish import unpublishable

_NO_LINES: Final = b"NATS/1.0\r\n\r\n"
_Message = TypeVar("_Message")


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

    def expecting(self, **members: Any) -> Self:
        """Return the pair with other members of the expectation."""
        return replace(self, expectation=replace(self.expectation, **members))

    def with_expected(self, change: Callable[[MessagePattern, str | None], MessagePattern | None]) -> Self:
        """Return the pair with every expected message changed, or removed where `change` returns None.

        `change` also gets the message's stream; None for a received message.
        """
        received, stored = self.expectation.received, self.expectation.stored
        if received is not None:
            received = _left(change(each, None) for each in received)
        if stored is not None:
            stored = {stream: _left(change(each, stream) for each in messages) for stream, messages in stored.items()}
        return self.expecting(received=received, stored=stored)

    def with_seen(self, change: Callable[[Message, str | None], Message | None]) -> Self:
        """Return the pair with every observed message changed, or removed where `change` returns None.

        `change` also gets the message's stream; None for a received message. Stored ones cannot be removed.
        """
        seen = self.observation
        stored = {
            stream: tuple(replace(each, message=change(each.message, stream) or each.message) for each in messages)
            for stream, messages in seen.stored.items()
        }
        received = _left(change(message, None) for message in seen.received)
        return replace(self, observation=replace(seen, received=received, stored=stored))

    def with_expected_blocks(self, change: Callable[[bytes], bytes], streams: frozenset[str] | None = None) -> Self:
        """Return the pair with every expected header block changed. With `streams`, only those stored there."""

        def changed(each: MessagePattern, stream: str | None) -> MessagePattern:
            if each.header_block is None or (streams is not None and stream is not None and stream not in streams):
                return each
            return replace(each, header_block=tidy(change(each.header_block)))

        return self.with_expected(changed)

    def with_seen_blocks(self, change: Callable[[bytes], bytes]) -> Self:
        """Return the pair with every observed header block changed."""
        return self.with_seen(lambda each, _: replace(each, header_block=tidy(change(each.header_block))))

    def without_unpublishable(self, streams: frozenset[str]) -> Self:
        """Remove expected messages that the sidecar does not publish, and adjust the sequences of later ones."""
        stored: dict[str, tuple[MessagePattern, ...]] = {}
        for stream, messages in (self.expectation.stored or {}).items():
            kept: list[MessagePattern] = []
            for at, each in enumerate(messages):
                if stream not in streams or unpublishable(each.subject) is None:
                    gone = at - len(kept)
                    kept.append(each if each.sequence is None else replace(each, sequence=each.sequence - gone))
            stored[stream] = tuple(kept)
        return self.expecting(stored=stored) if stored else self


Normaliser: TypeAlias = Callable[[Pair], Pair]
"""Returns both sides without its divergence; an equal pair if there is nothing to remove."""


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
        return pair.with_seen(lambda each, stream: None if stream is None and each in stored else each)

    return normalise


def tidy(block: bytes) -> bytes:
    """Return a header block, or none if its last line was removed."""
    return b"" if block == _NO_LINES else block


def _left(messages: Iterable[_Message | None]) -> tuple[_Message, ...]:
    return tuple(message for message in messages if message is not None)
