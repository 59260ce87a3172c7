"""Finds problems of subject patterns, and the subjects that a sidecar must avoid."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.problems import Problem
from nats_transforms.subject import is_valid_filter, is_valid_pattern
from nats_transforms.subject_patterns import Pattern

RESERVED: Final = ("$JS.>", "$SYS.>", "_INBOX.>")
"""Subjects of the servers themselves, and of clients' replies."""

_WHITE_SPACE: Final = re.compile(r"[ \t\r\n\f]")


def in_bytes(subject: str) -> bytes:
    """Return a subject as bytes for the engine."""
    return subject.encode("utf-8", "surrogatepass")


def subjects_of(pattern: str) -> Pattern:
    """Return the subjects of a subscription or filter."""
    return Pattern.of(in_bytes(pattern))


def filter_problem(pattern: str, noun: str = "subject") -> str | None:
    """Return the reason why `pattern` selects nothing, or None.

    `noun` names the selected objects if they are not subjects.
    """
    if not is_valid_pattern(in_bytes(pattern)):
        return f"'{pattern}' is not a {noun}: use tokens between dots, and '>' only as the last one"
    if not is_valid_filter(in_bytes(pattern)):
        return f"'{pattern}' contains white space; no {noun} can match it"
    return None


def has_white_space(destination: str) -> bool:
    """Return whether a destination has white space outside its functions."""
    return any(_WHITE_SPACE.search(token) for token in destination.split(".") if not _is_function(token))


def reserved_problem(destination: str, remedy: str = "use another subject") -> str | None:
    """Return the reason why messages must not get a reserved destination, or None if it is not reserved."""
    space = reserved_prefix(destination)
    return space and f"'{destination}' lies under '{space}', which belongs to servers and replies; {remedy}"


def reserved_prefix(destination: str) -> str | None:
    """Return the reserved subjects that a destination (or a filter that keeps subjects) begins with, if any."""
    return next((space for space in RESERVED if destination.startswith(space.removesuffix(">"))), None)


def _is_function(token: str) -> bool:
    return token.startswith("{{") and token.endswith("}}") and len(token) > 4


def exclusion_problems(
    exclude: Sequence[str], selected: Sequence[str], at: Path, done: str, noun: str = "subject"
) -> Iterator[Problem]:
    """Yield the problems of `exclude`.

    Args:
        exclude: the patterns to leave out.
        selected: the subjects that the rule selects without them.
        at: the path of `exclude`.
        done: what happens to the messages that are left, such as `copied`.
        noun: the objects that the patterns select.
    """
    wrong = [
        Problem((*at, number), reason)
        for number, pattern in enumerate(exclude)
        if (reason := filter_problem(pattern, noun)) is not None
    ]
    yield from wrong
    left_out = [subjects_of(pattern) for pattern in exclude]
    if exclude and not wrong and all(any(map(subjects_of(each).within, left_out)) for each in selected):
        shown = ", ".join(f"'{wanted}'" for wanted in selected)
        yield Problem(at, f"excludes all of {shown}, so nothing would be {done}; exclude less")
