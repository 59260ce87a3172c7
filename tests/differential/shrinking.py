"""Making a trial that fails smaller while it still fails, judged again each time.

Theory of operation: every trial has a weight; what is long, and what is unusual, weighs more. The lighter trials next
to it are tried from the boldest to the smallest change; the search continues at the first one that still fails. It
ends where no lighter neighbour fails, or when enough has been asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nats_conformance.catalogue.case import Message
from tests.differential.trial import Kind, Trial

MOST_ASKED = 600
"""How often the server is asked for one shrunk trial, at most."""

_PLAIN = frozenset(b"asdx01.*> ")
_NUMBER = re.compile(r"[0-9]+")
_LONGEST_CUT = 80


async def shrunk(trial: Trial, fails: Callable[[Trial], Awaitable[bool]], most: int = MOST_ASKED) -> tuple[Trial, int]:
    """The lightest trial found that still fails, and how many were asked for."""
    asked = 0
    while True:
        for candidate in smaller(trial):
            if asked == most:
                return trial, asked
            asked += 1
            if await fails(candidate):
                trial = candidate
                break
        else:
            return trial, asked


def weight(trial: Trial) -> int:
    """How much there is to read in a trial."""
    configs = json.dumps([trial.config, trial.previous, trial.others], ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
    total = _weight(configs) + 40 * (trial.previous is not None)
    for message in trial.messages:
        total += 40 + _weight(message.subject) + _weight(message.header_block) + _weight(message.payload)
    return total


def _weight(raw: bytes) -> int:
    return sum(4 if byte in _PLAIN else 5 if 0x20 <= byte < 0x7F else 7 for byte in raw)


def smaller(trial: Trial) -> Iterator[Trial]:
    """Lighter trials next to this one, the boldest changes first; each one only once."""
    own, seen = weight(trial), {repr(trial)}
    for candidate in _neighbours(trial):
        if weight(candidate) < own and repr(candidate) not in seen and _is_sound(candidate, trial):
            seen.add(repr(candidate))
            yield candidate


def _is_sound(candidate: Trial, trial: Trial) -> bool:
    """Whether a trial is as quick and as harmless to ask for as the one that it comes from."""
    if any(len(message.header_block) == 1 for message in candidate.messages):
        return False  # no client sends such a block, and not every server bears it
    # The server still removes a stream in files when the next one comes.
    return candidate.config.get("storage") == trial.config.get("storage") or "storage" not in trial.config


def _neighbours(trial: Trial) -> Iterator[Trial]:
    if trial.previous is not None:
        yield replace(trial, kind=Kind.CREATE, config=trial.previous, previous=None)
        yield replace(trial, kind=Kind.CREATE, previous=None)
    for messages in _fewer(trial.messages):
        yield replace(trial, messages=tuple(messages))
    for others in _fewer(trial.others):
        yield replace(trial, others=tuple(others))
    for at, message in enumerate(trial.messages):
        for lighter in _messages(message):
            yield replace(trial, messages=(*trial.messages[:at], lighter, *trial.messages[at + 1 :]))
    for config in _values(trial.config):
        yield replace(trial, config=config)
    if trial.previous is not None:
        for config in _values(trial.previous):
            yield replace(trial, previous=config)
        for config, previous in _both(trial.config, trial.previous):
            yield replace(trial, config=config, previous=previous)


def _fewer(items: Sequence[Any]) -> Iterator[list[Any]]:
    size = len(items)
    while size:
        for at in range(0, len(items), size):
            yield [*items[:at], *items[at + size :]]
        size //= 2


def _both(config: Mapping[str, Any], previous: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """An update and what it updates, the same member taken out of both."""
    for name in config.keys() & previous.keys():
        yield _without(config, name), _without(previous, name)


def _without(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def _messages(message: Message) -> Iterator[Message]:
    if message.header_block:
        yield replace(message, header_block=b"")
        lines = message.header_block.split(b"\r\n")
        for at in range(1, len(lines) - 2):
            yield replace(message, header_block=b"\r\n".join([*lines[:at], *lines[at + 1 :]]))
        for block in _raw(message.header_block):
            yield replace(message, header_block=block)
    if message.payload:
        yield replace(message, payload=b"")
        yield replace(message, payload=b"x")
    tokens = message.subject.split(b".")
    for at in range(1, len(tokens)):
        yield replace(message, subject=b".".join([*tokens[:at], *tokens[at + 1 :]]))
        for token in (b"a", *_raw(tokens[at])):
            if token:
                yield replace(message, subject=b".".join([*tokens[:at], token, *tokens[at + 1 :]]))


def _raw(raw: bytes) -> Iterator[bytes]:
    for at in range(min(len(raw), _LONGEST_CUT)):
        yield raw[:at] + raw[at + 1 :]


def _values(value: Any) -> Iterator[Any]:
    """Lighter values of the same type."""
    match value:
        case Mapping():
            for name in value:
                yield _without(value, name)
            for name, member in value.items():
                for lighter in _values(member):
                    yield {**value, name: lighter}
        case list():
            yield from _fewer(value)
            for at, item in enumerate(value):
                for lighter in _values(item):
                    yield [*value[:at], lighter, *value[at + 1 :]]
        case str():
            yield from _texts(value)
        case bool():
            pass
        case int() | float():
            yield from (number for number in (0, 1, -1) if number != value)


def _texts(text: str) -> Iterator[str]:
    tokens = text.split(".")
    if len(tokens) > 1:
        for at in range(len(tokens)):
            yield ".".join([*tokens[:at], *tokens[at + 1 :]])
    for at, token in enumerate(tokens):
        if token not in ("*", ">", "a"):
            yield ".".join([*tokens[:at], "a", *tokens[at + 1 :]])
    for found in _NUMBER.finditer(text):
        for number in ("1", "0"):
            yield text[: found.start()] + number + text[found.end() :]
    if len(text) > _LONGEST_CUT:
        yield text[: len(text) // 2]
    for at in range(min(len(text), _LONGEST_CUT)):
        yield text[:at] + text[at + 1 :]
