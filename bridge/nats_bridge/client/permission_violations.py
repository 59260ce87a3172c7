"""Reads a server's permissions violation: its subject, and the error of the rule."""

import re

from nats_bridge.errors import RuleRefusedError

_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)


def refused_publication(text: str) -> bytes:
    """Return the subject of a refused publication; empty for other errors."""
    return _subject(text, "publish")


def refused_subscription(text: str) -> bytes:
    """Return the subject of a refused subscription; empty for other errors."""
    return _subject(text, "subscription")


def not_allowed(place: str, text: str, wanted: str) -> RuleRefusedError:
    """Return the error that ends a rule.

    Args:
        place: the beginning of the text: the rule, or a stream.
        text: the server's words.
        wanted: the action that the user must be allowed.
    """
    what = "publication" if refused_publication(text) else "subscription"
    return RuleRefusedError(f"{place}: the server refuses a {what} ({text}): allow the user to {wanted}")


def _subject(text: str, kind: str) -> bytes:
    found = _VIOLATION.search(text)
    return found[2].encode() if found and found[1].lower() == kind else b""
