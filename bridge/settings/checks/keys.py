"""Transforms of keys: what cannot be a key, and what would leave the bucket."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from nats_bridge.bridge.settings.checks.origins import Origin
from nats_bridge.bridge.settings.checks.patterns import filter_problem
from nats_bridge.bridge.settings.problems import Problem

__all__ = ["key_problems"]

_BUCKET_SUBJECT: Final = re.compile(r"\$KV\.[^.]*\.(.+)")
_LITERAL: Final = re.compile(r"[-/_=A-Za-z0-9]+")
"""What clients take for a token of a key (ADR-8)."""
_COMPUTED: Final = re.compile(r"\$[0-9]+|\{\{.+\}\}")


def key_problems(origin: Origin) -> Iterator[Problem]:
    """What is wrong with the transforms and exclusions of a bucket; nothing for a stream."""
    if not origin.holds_keys:
        return
    for number, pattern in enumerate(origin.exclude):
        if reason := _not_a_key(pattern):
            yield Problem((*origin.at, "exclude", number), reason)
    for number, transform in enumerate(origin.transforms):
        place = (*origin.at, origin.transforms_key, number)
        if reason := _not_a_key(transform.src) or (transform.src and filter_problem(transform.src, "key")):
            yield Problem((*place, "src"), reason)
        elif reason := _not_a_key(transform.dest) or _unusable(transform.dest):
            yield Problem((*place, "dest"), reason)


def _not_a_key(text: str) -> str | None:
    if not text.startswith("$KV."):
        return None
    subject = _BUCKET_SUBJECT.fullmatch(text)
    return (
        f"'{text}' is a subject, and keys are written without their bucket;"
        f" write '{subject[1] if subject else '>'}' (a key never leaves the bucket that receives)"
    )


def _unusable(destination: str) -> str | None:
    """Why no client could get a key that comes out."""
    for token in destination.split(".") if destination else ():
        if not token:
            return f"'{destination}' is not a key: tokens between dots, none of them empty"
        # A wildcard in the wrong place gets the server's own words.
        if token not in ("*", ">") and not _COMPUTED.fullmatch(token) and not _LITERAL.fullmatch(token):
            return f"'{destination}' is not a key: '{token}' holds other characters than letters, digits and - / _ ="
    return None
