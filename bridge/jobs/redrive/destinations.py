"""The streams that take what is redriven, as they are at the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nats_bridge.bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.bridge.jobs.redrive.letter import Letter
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.errors import TransformError
from nats_bridge.transforms.subject import is_valid_publish, matches
from nats_bridge.transforms.transform import compile_transform

__all__ = ["Destination", "Destinations"]

_WINDOW = 120 * 10**9  # nanoseconds; what a server takes where a stream names no duplicate window


@dataclass(frozen=True, slots=True)
class Destination:
    """A stream that takes messages.

    Attributes:
        name: its name.
        subjects: its subjects.
        keeps_read: whether messages stay when consumers have acknowledged them.
        duplicate_window: seconds for which it remembers ids.
        config: its configuration.
    """

    name: str
    subjects: tuple[bytes, ...]
    keeps_read: bool
    duplicate_window: float
    config: Json

    @classmethod
    def of(cls, info: Json) -> Destination:
        """From `STREAM.INFO`."""
        config = info["config"]
        return cls(
            config["name"],
            tuple(subject.encode() for subject in config.get("subjects") or ()),
            config.get("retention", "limits") == "limits",
            (config.get("duplicate_window") or _WINDOW) / 1e9,
            config,
        )

    def stores_as(self, subject: bytes) -> bytes:
        """What it stores a subject under: its own transform may change it at the ingress."""
        transform = self.config.get("subject_transform") or {}
        if not transform.get("dest"):
            return subject
        try:
            made = compile_transform(transform.get("src", "").encode(), transform["dest"].encode(), NEWEST)
        except TransformError:
            return b""
        return made.apply(subject) or subject


class Destinations:
    """Finds the stream of a subject.

    Args:
        known: all streams of the account.
        letters: the stream of the dead letters, if it is in this account; else empty.
    """

    def __init__(self, known: Sequence[Destination], letters: str) -> None:
        self._known = known
        self._letters = letters
        self._found: dict[bytes, Destination | None] = {}

    @classmethod
    async def look(cls, api: JetStreamApi, letters: str) -> Destinations:
        """As they are now.

        Raises:
            ApiError: the server cannot be asked.
        """
        listed, _ = await api.streams()
        return cls([Destination.of(info) for info in listed], letters)

    def taker(self, subject: bytes) -> Destination | None:
        """The stream that stores what is published on a subject, and confirms it."""
        if subject not in self._found:
            self._found[subject] = next(
                (each for each in self._known if any(matches(subject, own) for own in each.subjects)), None
            )
        return self._found[subject]

    def named(self, name: str) -> Destination | None:
        """A stream by its name."""
        return next((each for each in self._known if each.name == name), None)

    def obstacle(self, letter: Letter, subject: bytes) -> str:
        """Why a letter's message cannot go back to its subject; empty if it can."""
        if not is_valid_publish(subject):
            return "its subject cannot be published on"
        taker = self.taker(subject)
        if taker is None:
            return "no stream takes its subject"
        if taker.config.get("no_ack"):
            return f"stream {taker.name} confirms nothing (no_ack)"
        if taker.name == self._letters:
            return "the dead letters' own stream takes its subject"
        if taker.stores_as(subject) != subject:
            return f"stream {taker.name} transforms its subject at the ingress"
        if letter.rejected and taker.name == letter.stream:
            return f"stream {taker.name} has it already: it is the source of the rule that could not copy it"
        return ""
