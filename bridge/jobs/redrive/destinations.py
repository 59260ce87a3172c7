"""The streams that take what is redriven, as they are at the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nats_bridge.bridge.client.jetstream_api import JetStreamApi, Json
from nats_bridge.bridge.jobs.redrive.letter import Letter
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.errors import TransformError
from nats_bridge.transforms.republish import Refusal, unpublishable
from nats_bridge.transforms.subject import matches
from nats_bridge.transforms.transform import compile_transform

_UNKNOWN = "\ufffd".encode()  # in JSON, instead of what is not UTF-8
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
        """The subject under which it stores a message: its ingress transform may change it."""
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
        silent: streams that gave no answer, because they have no leader at this moment.
    """

    def __init__(self, known: Sequence[Destination], letters: str, silent: Sequence[str] = ()) -> None:
        self._known = known
        self._letters = letters
        self._silent = silent
        self._found: dict[bytes, Destination | None] = {}

    @classmethod
    async def look(cls, api: JetStreamApi, letters: Json) -> Destinations:
        """Read the present state.

        Args:
            api: the API of the connection that holds them.
            letters: `STREAM.INFO` of the dead letters' stream, which may be among them under another connection.

        Raises:
            ApiError: the server cannot be asked.
        """
        listed, silent = await api.streams()
        name, created = letters["config"]["name"], letters["created"]
        is_here = any((info["config"]["name"], info["created"]) == (name, created) for info in listed)
        return cls([Destination.of(info) for info in listed], name if is_here else "", silent)

    def taker(self, subject: bytes) -> Destination | None:
        """The stream that stores what is published on a subject, and confirms it."""
        if subject not in self._found:
            self._found[subject] = next(
                (each for each in self._known if any(matches(subject, own) for own in each.subjects)), None
            )
        return self._found[subject]

    def obstacle(self, letter: Letter) -> str:
        """Why a letter's message cannot go back to its subject; empty if it can."""
        subject = letter.subject
        if _UNKNOWN in subject:
            return "its subject is not UTF-8, and its dead letter does not hold it"
        if (code := unpublishable(subject)) is not None:
            return f"its subject {Refusal(code, subject, native=False).reason}"
        taker = self.taker(subject)
        if taker is None:
            away = f", of those that answer; {', '.join(self._silent)} did not" if self._silent else ""
            return f"no stream takes its subject{away}"
        if taker.config.get("no_ack"):
            return f"stream {taker.name} confirms nothing (no_ack)"
        if taker.name == self._letters:
            return "the dead letters' own stream takes its subject"
        if taker.stores_as(subject) != subject:
            return f"stream {taker.name} transforms its subject at the ingress"
        if letter.rejected and taker.name == letter.stream:
            return f"stream {taker.name} has it already: it is the source of the rule that could not copy it"
        return ""
