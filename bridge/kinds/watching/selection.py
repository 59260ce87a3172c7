"""Which streams are watched. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Selection"]


class Selection:
    """Names of streams, in which `*` stands for any characters.

    Args:
        patterns: the names.

    Attributes:
        named: those without `*`: streams that must be there.
    """

    def __init__(self, patterns: Iterable[str] = ("*",)) -> None:
        patterns = tuple(patterns)
        self.named = tuple(each for each in patterns if "*" not in each)
        alternatives = "|".join(re.escape(each).replace(r"\*", ".*") for each in patterns)
        self._selected = re.compile(alternatives, re.DOTALL)

    def __contains__(self, stream: str) -> bool:
        return self._selected.fullmatch(stream) is not None
