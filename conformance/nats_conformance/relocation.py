"""Moves a case to separate names, so that it can run on a server with other users.

Every stream name and subject of the case gets the same prefix, and everything that comes back loses it again, so the
expectations stay as written. That works if the first token of each subject is a literal that no function reads; other
cases need a separate account.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nats_conformance.catalogue.case import Case, Json, Message, Publish

_NAMES = frozenset({"name"})
_SUBJECTS = frozenset({"src", "dest", "filter_subject"})
_FIRST_TOKEN = re.compile(r"\$[-+0]|[(,]\s*[-+0]|[pP]artition\s*\([^,)]*\)|^[*>$]|^\{\{")
_LITERAL = re.compile(r"[A-Za-z0-9_-]+(\.|$)")
_NAMING_HEADERS = (b"Nats-Expected-Stream", b"Nats-Stream-Source", b"Nats-Schedule")


@dataclass(frozen=True, slots=True)
class Relocation:
    """Adds a prefix to names and subjects, and removes it again. An empty one changes nothing."""

    prefix: str

    def name(self, stream: str) -> str:
        """Return the stream's name on the server."""
        return self.prefix + stream

    def subject(self, subject: bytes) -> bytes:
        """Return the subject on the server."""
        return self.prefix.encode() + subject

    def config(self, config: Mapping[str, Json]) -> dict[str, Json]:
        """Return the configuration to create."""

        def moved(key: str, text: str) -> str:
            stays = not text if key in _NAMES else key in _SUBJECTS and not _LITERAL.match(text)
            return text if stays else self.prefix + text

        return _with_texts(config, moved) if self.prefix else dict(config)

    def raw_back(self, raw: bytes) -> bytes:
        """Bytes from the server, with the case's own names."""
        return raw.replace(self.prefix.encode(), b"") if self.prefix else raw

    def message_back(self, message: Message) -> Message:
        """Return a message from the server, with the case's own names."""
        return Message(
            self.raw_back(message.subject), self.raw_back(message.header_block), self.raw_back(message.payload)
        )

    def json_back(self, value: Json) -> Json:
        """Return an answer of the server, with the case's own names."""
        return json.loads(json.dumps(value).replace(self.prefix, "")) if self.prefix else value


HERE = Relocation("")
"""No move at all."""


def obstacle(case: Case) -> str | None:
    """Return the reason why the case cannot be moved to other subjects; None if it can."""
    if "account" in case.needs or case.scenario is not None:
        return "it needs a server or an account of its own"
    for config in case.configs:
        for key, text in _texts(config):
            if key == "src" and text in ("", ">"):
                continue  # everything in the case's own stream
            if text and (_FIRST_TOKEN.search(text) or not _LITERAL.match(text)):
                return f"'{text}' cannot be moved to a subject of its own"
    for subject in case.listen:
        if not _LITERAL.match(subject.decode("utf-8", "replace")):
            return f"it listens to '{subject.decode('utf-8', 'replace')}'"
    for step in case.steps:
        if isinstance(step, Publish):
            if any(header in step.message.header_block for header in _NAMING_HEADERS):
                return "a header names a stream"
            if not _LITERAL.match(step.message.subject.decode("utf-8", "replace")):
                return f"it publishes to '{step.message.subject.decode('utf-8', 'replace')}'"
    return None


def _texts(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and subjects in a configuration, with their keys."""
    found: list[tuple[str, str]] = []

    def noted(key: str, text: str) -> str:
        found.append((key, text))
        return text

    _with_texts(config, noted)
    return found


def _with_texts(config: Mapping[str, Any], change: Callable[[str, str], str]) -> dict[str, Any]:
    """Return a configuration with every name and subject changed."""
    made = dict(config)
    for key, value in config.items():
        if key in _NAMES | _SUBJECTS and isinstance(value, str):
            made[key] = change(key, value)
        elif key == "subjects" and isinstance(value, list):
            made[key] = [change(key, each) if isinstance(each, str) else each for each in value]
        elif isinstance(value, Mapping):
            made[key] = _with_texts(value, change)
        elif isinstance(value, list):
            made[key] = [_with_texts(each, change) if isinstance(each, Mapping) else each for each in value]
    return made
