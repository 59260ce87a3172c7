"""Every page of the reference that is made from the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from docs.reference import (
    commands,
    configuration,
    dialects,
    errors,
    log_events,
    metrics,
    statements,
)

FOLDER: Final = Path(__file__).parent

PAGES: Final[Mapping[str, Callable[[], str]]] = MappingProxyType(
    {
        "configuration.md": configuration.page,
        "commands.md": commands.page,
        "errors.md": errors.page,
        "dialects.md": dialects.page,
        "metrics.md": metrics.page,
        "coverage.md": statements.page,
        "../../conformance/STATEMENTS.md": statements.whole_list,
        "../logs.md": log_events.page,
    }
)
"""The text of each page, by its file's name."""
