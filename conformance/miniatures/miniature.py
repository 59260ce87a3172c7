"""What a miniature is: an engine that is wrong in one way, and the case that must find it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from conformance.subjects.engine_operations import EngineOperations
from transforms.dialect import NEWEST, Dialect

__all__ = ["Miniature"]


@dataclass(frozen=True, slots=True)
class Miniature:
    """A wrong engine.

    Attributes:
        name: with hyphens.
        description: what it does wrong, in one line.
        caught_by: the id of the case that it must fail.
        build: makes it.
    """

    name: str
    description: str
    caught_by: str
    build: Callable[[Dialect], EngineOperations]

    def engine(self) -> EngineOperations:
        """The wrong engine, in the newest dialect."""
        return self.build(NEWEST)
