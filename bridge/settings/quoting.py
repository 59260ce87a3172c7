"""The line of a configuration file that an error is about, with a mark below the place.

A line that may hold a secret is not quoted: passwords and tokens do not belong into the file, and a user who puts one
there must not find it in a log.
"""

from __future__ import annotations

import re
from typing import Final

from nats_bridge.bridge.settings.problems import one_line
from nats_bridge.marked_yaml import Mark

__all__ = ["quoted"]

_WIDTH: Final = 110  # characters of a line that are shown
_BEFORE: Final = 60  # of these, before the place, where the line is longer
_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # as `marked_yaml` counts lines
_SECRET: Final = re.compile(r"pass|token|seed|secret|nkey|jwt|creds|credential|auth|-----|://[^/\s]*@", re.IGNORECASE)
_ABOVE: Final = 3  # lines above in which the key of a text of several lines may stand


def quoted(text: str, mark: Mark) -> str:
    """Two lines, the one at `mark` and the mark below it; empty if there is nothing to show, or it may be a secret.

    Args:
        text: the whole file.
        mark: the place.
    """
    lines = _LINE_BREAK.split(text)
    if not 1 <= mark.line <= len(lines) or not lines[mark.line - 1].strip():
        return ""
    if any(_SECRET.search(line) for line in lines[max(0, mark.line - 1 - _ABOVE) : mark.line]):
        return ""
    line, place = lines[mark.line - 1], mark.column - 1
    cut = max(0, place - _BEFORE) if len(line) > _WIDTH else 0
    shown = one_line(line[cut : cut + _WIDTH])
    return f"    {shown}\n    {' ' * len(one_line(line[cut:place]))}^"
