"""The subject of a server's permissions violation."""

from __future__ import annotations

import re

__all__ = ["refused_publication", "refused_subscription"]

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)


def refused_publication(text: str) -> bytes:
    """Return the subject that may not be published to, in lower case as nats-py gives it; else empty."""
    return _subject(text, "publish")


def refused_subscription(text: str) -> bytes:
    """Return the subject that may not be subscribed to, in lower case; else empty."""
    return _subject(text, "subscription")


def _subject(text: str, kind: str) -> bytes:
    found = _VIOLATION.search(text)
    return found[2].lower().encode() if found and found[1].lower() == kind else b""
