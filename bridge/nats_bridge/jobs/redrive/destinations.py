"""The streams that take what is redriven, as they are at the start."""

from __future__ import annotations

from collections.abc import Sequence

from nats_bridge.client.jetstream_api import Json
from nats_bridge.jobs.redrive.letter import Letter
from nats_transforms.republish import Refusal, unpublishable
from nats_transforms.subject import matches

_UNKNOWN = "\ufffd".encode()  # in JSON, instead of what is not UTF-8


class Destinations:
    """Finds the stream of a subject.

    Args:
        known: the configurations of all streams of the account.
        letters: the stream of the dead letters.
    """

    def __init__(self, known: Sequence[Json], letters: str) -> None:
        self._known = [([subject.encode() for subject in config.get("subjects") or ()], config) for config in known]
        self._letters = letters
        self._found: dict[bytes, Json | None] = {}

    def taker(self, subject: bytes) -> Json | None:
        """The configuration of the stream that stores what is published on a subject."""
        if subject not in self._found:
            takers = (config for subjects, config in self._known if any(matches(subject, own) for own in subjects))
            self._found[subject] = next(takers, None)
        return self._found[subject]

    def obstacle(self, letter: Letter) -> str:
        """Why a letter's message cannot go back to its subject; empty if it can."""
        subject = letter.subject
        if not letter.complete:
            return "its dead letter does not hold the message"
        if _UNKNOWN in subject:
            return "its subject is not UTF-8, and its dead letter does not hold it"
        if (code := unpublishable(subject)) is not None:
            return f"its subject {Refusal(code, subject, native=False).reason}"
        taker = self.taker(subject)
        if taker is None:
            return "no stream that answers takes its subject"
        name, transform = taker["name"], taker.get("subject_transform") or {}
        if taker.get("no_ack"):
            return f"stream {name} confirms nothing (no_ack)"
        if name == self._letters:
            return "the dead letters' own stream takes its subject"
        if transform.get("dest") and matches(subject, (transform.get("src") or ">").encode()):
            return f"stream {name} transforms its subject at the ingress"
        if letter.rejected and name == letter.stream:
            return f"stream {name} has it already: it is the source of the rule that could not copy it"
        return ""
