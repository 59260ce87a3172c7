"""Versions of native servers: reading them, and finding the newest patch of a minor line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from nats_bridge.native_servers.errors import InvalidVersionError

Version = tuple[int, int, int]

_TEXT = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", re.ASCII)


def _fields(text: str) -> tuple[int, ...]:
    matched = _TEXT.fullmatch(text.strip())
    if matched is None:
        raise InvalidVersionError(f"version {text!r}: expected a form such as 2.10.27, or 2.10 for its newest patch")
    return tuple(int(field) for field in matched.groups() if field is not None)


def is_minor(text: str) -> bool:
    """Whether ``text`` names a minor line (``2.10``) and not a full version; raises InvalidVersionError."""
    return len(_fields(text)) == 2


def parse(text: str) -> Version:
    """``2.10.27`` or ``v2.10.27`` as three numbers; raises InvalidVersionError, also for a minor line."""
    fields = _fields(text)
    if len(fields) != 3:
        raise InvalidVersionError(f"version {text!r}: a patch number is needed here, such as {text}.0")
    return (fields[0], fields[1], fields[2])


def newest_patch(minor: str, versions: Iterable[str]) -> str | None:
    """The newest of ``versions`` within the line ``minor``; texts that name no release are passed over."""
    line = _fields(minor)
    found: list[Version] = []
    for text in versions:
        try:
            version = parse(text)
        except InvalidVersionError:
            continue
        if version[:2] == line:
            found.append(version)
    return ".".join(map(str, max(found))) if found else None
