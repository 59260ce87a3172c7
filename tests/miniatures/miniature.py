"""What a miniature is: an engine that is wrong in one way, and the case that must find it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nats_conformance.implementations.engine_operations import EngineOperations
from nats_transforms.dialect import NEWEST, Dialect


@dataclass(frozen=True, slots=True)
class Miniature:
    """A wrong engine.

    Attributes:
        name: with hyphens.
        description: what it does wrong, in one line.
        case: the id of the case that must find it out.
        build: makes it.
    """

    name: str
    description: str
    case: str
    build: Callable[[Dialect], EngineOperations]

    def engine(self) -> EngineOperations:
        """The wrong engine, in the newest dialect."""
        return self.build(NEWEST)
