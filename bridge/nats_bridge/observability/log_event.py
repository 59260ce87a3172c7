"""Describes an event of the log, for the page on logs and for the test that compares the page with the code."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A log event.

    Attributes:
        level: how bad it is.
        meaning: its consequence, or its cause, in plain words.
        fields: its fields, in addition to those that any event may have.
    """

    level: Level
    meaning: str
    fields: tuple[str, ...] = ()
