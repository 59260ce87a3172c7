"""Patterns of subjects compared as subscriptions take them, and which subjects a sidecar stays away from.

The engine's own comparisons are the server's, which check the first byte of a token only; a consumer's filter and a
subscription, which is what the sidecar has, take `*x` literally.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from nats_bridge.bridge.settings.problems import Problem
from nats_bridge.marked_yaml import Path
from nats_bridge.transforms.destination import CUTTING, Kind
from nats_bridge.transforms.part import Part
from nats_bridge.transforms.subject import is_valid_filter, is_valid_pattern
from nats_bridge.transforms.transform import Transform

__all__ = [
    "RESERVED",
    "covers",
    "exclusion_problems",
    "filter_problem",
    "has_white_space",
    "in_bytes",
    "may_fit",
    "overlap",
    "reserved_prefix",
]

RESERVED: Final = ("$JS.>", "$SYS.>", "_INBOX.>")
"""Subjects of the servers themselves, and of clients' replies."""

_WHITE_SPACE: Final = re.compile(r"[ \t\r\n\f]")


def in_bytes(subject: str) -> bytes:
    """A subject as the engine takes it."""
    return subject.encode("utf-8", "surrogatepass")


def covers(pattern: str, other: str) -> bool:
    """Whether every subject that fits `other` fits `pattern`."""
    wanted, given = pattern.split("."), other.split(".")
    for position, token in enumerate(wanted):
        if position >= len(given):
            return False
        if token == ">":
            return True
        if given[position] == ">" or token not in ("*", given[position]):
            return False
    return len(wanted) == len(given)


def overlap(one: str, other: str) -> bool:
    """Whether some subject fits both patterns."""
    left, right = one.split("."), other.split(".")
    for mine, yours in zip(left, right, strict=False):
        if ">" in (mine, yours):
            return True
        if mine != yours and "*" not in (mine, yours):
            return False
    return len(left) == len(right)


def may_fit(transform: Transform, pattern: str) -> bool:
    """Whether a subject that comes out of the transform may fit `pattern`."""
    wanted = in_bytes(pattern).split(b".")
    for position, part in enumerate(transform.parts):
        if position >= len(wanted):
            return False
        token = wanted[position]
        if token == b">" or part.kind in _SEVERAL_TOKENS:
            return True
        if token != b"*" and not _may_be(part, token):
            return False
    return len(transform.parts) == len(wanted)


def filter_problem(pattern: str, noun: str = "subject") -> str | None:
    """The reason why `pattern` selects nothing, or None; `noun` names what it should select, if not subjects."""
    if not is_valid_pattern(in_bytes(pattern)):
        return f"'{pattern}' is not a {noun}: tokens between dots, '>' only as the last"
    if not is_valid_filter(in_bytes(pattern)):
        return f"'{pattern}' holds white space; no {noun} can match it"
    return None


def has_white_space(destination: str) -> bool:
    """Whether a destination holds white space where it is not a function's."""
    return any(_WHITE_SPACE.search(token) for token in destination.split(".") if not _is_function(token))


def reserved_prefix(destination: str) -> str | None:
    """The reserved subjects that a destination, or a filter whose subjects are kept, begins with; None without one."""
    return next((space for space in RESERVED if destination.startswith(space.removesuffix(">"))), None)


_SEVERAL_TOKENS: Final = CUTTING | {Kind.REST}


def _may_be(part: Part, token: bytes) -> bool:
    """Whether a part that gives one token may give this one."""
    match part.kind:
        case Kind.LITERAL:
            return part.text == token
        case Kind.PARTITION | Kind.RANDOM:
            return token.isdigit() and (part.number <= 0 or int(token) < part.number)
        case _:
            return True


def _is_function(token: str) -> bool:
    return token.startswith("{{") and token.endswith("}}") and len(token) > 4


def exclusion_problems(
    exclude: Sequence[str], selected: Sequence[str], at: Path, done: str, noun: str = "subject"
) -> Iterator[Problem]:
    """The problems of `exclude`.

    Args:
        exclude: the patterns to leave out.
        selected: what the rule selects without them.
        at: where `exclude` stands.
        done: what happens to the messages that are left, such as `copied`.
        noun: what the patterns select.
    """
    wrong = [
        Problem((*at, number), reason)
        for number, pattern in enumerate(exclude)
        if (reason := filter_problem(pattern, noun)) is not None
    ]
    yield from wrong
    if exclude and not wrong and all(any(covers(pattern, wanted) for pattern in exclude) for wanted in selected):
        shown = ", ".join(f"'{wanted}'" for wanted in selected)
        yield Problem(at, f"leaves out all of {shown}; nothing would be {done}; exclude less")
