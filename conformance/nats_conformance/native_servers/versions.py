"""Versions of native servers: reading them, and finding the newest patch of a minor line.

A pre-release (`2.16.0-RC.1`) is only used if it is named explicitly.
"""

import re
from collections.abc import Iterable
from contextlib import suppress

from nats_conformance.native_servers.errors import InvalidVersionError

Version = tuple[int, int, int]

_TEXT = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6})(-[0-9A-Za-z][0-9A-Za-z.-]*)?)?", re.ASCII)


def _read(text: str) -> tuple[tuple[int, ...], str]:
    matched = _TEXT.fullmatch(text.strip())
    if matched is None:
        raise InvalidVersionError(f"version {text!r}: expected a form such as 2.10.27, or 2.10 for its newest patch")
    return tuple(int(field) for field in matched.groups()[:3] if field is not None), matched[4] or ""


def is_minor(text: str) -> bool:
    """Return whether `text` is a minor line (`2.10`) instead of a full version. Raise InvalidVersionError."""
    return len(_read(text)[0]) == 2


def parse(text: str) -> Version:
    """Return a release, `2.10.27` or `v2.10.27`, as three numbers. Raise InvalidVersionError for anything else."""
    if _read(text)[1]:
        raise InvalidVersionError(f"version {text!r}: a release is needed here, not a pre-release")
    return numbers(text)


def numbers(text: str) -> Version:
    """Return the numbers of a full version; of its release for a pre-release. Raise InvalidVersionError."""
    fields, _ = _read(text)
    if len(fields) != 3:
        raise InvalidVersionError(f"version {text!r}: a patch number is needed here, such as {text}.0")
    return (fields[0], fields[1], fields[2])


def canonical(text: str) -> str:
    """Return a full version as servers print it: `2.10.27`, `2.16.0-RC.1`. Raise InvalidVersionError."""
    return ".".join(map(str, numbers(text))) + _read(text)[1]


def newest_patch(minor: str, versions: Iterable[str]) -> str | None:
    """Return the newest of `versions` within the line `minor`. Texts that are not releases are skipped."""
    line, _ = _read(minor)
    found: list[Version] = []
    for text in versions:
        with suppress(InvalidVersionError):
            found.append(parse(text))
    return ".".join(map(str, max(of_line))) if (of_line := [each for each in found if each[:2] == line]) else None
