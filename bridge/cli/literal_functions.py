"""Tokens of a destination that look like a function, and which every server takes as they are written."""

from __future__ import annotations

import re

from nats_bridge.transforms.destination import Kind, parse_token
from nats_bridge.transforms.dialect import NEWEST
from nats_bridge.transforms.errors import TransformError
from nats_bridge.transforms.subject import text_of

_LOOKS_SO = re.compile(rb"\{\{|\}\}|\$[0-9]")


def literal_functions(destination: bytes) -> list[str]:
    """Such as ``region-$1``: what is wrong with each of them, in the order in which they stand there."""
    found = []
    for token in destination.split(b"."):
        try:
            is_literal = parse_token(token, NEWEST).kind is Kind.LITERAL
        except TransformError:
            continue
        if is_literal and _LOOKS_SO.search(token):
            found.append(f"'{text_of(token)}' is taken as it is written: a function is a whole token between dots")
    return found
