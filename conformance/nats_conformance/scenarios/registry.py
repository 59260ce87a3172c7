"""Registers scenarios by the names in the catalogue."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from nats_conformance.errors import CatalogueError
from nats_conformance.observation import Observation
from nats_conformance.scenarios.laboratory import Laboratory

Facts: TypeAlias = dict[str, Any]
Scenario: TypeAlias = Callable[[Laboratory], Awaitable[Facts]]

_scenarios: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Register a scenario under its own name, written with hyphens."""
    register(function.__name__.replace("_", "-"), function)
    return function


def register(name: str, function: Scenario) -> None:
    """Register a scenario under a name."""
    _scenarios[name] = function


def scenario_names() -> frozenset[str]:
    """Return all names."""
    return frozenset(_scenarios)


async def play_scenario(name: str, binary: Path, directory: Path) -> Observation:
    """Run a scenario on separate servers of one version.

    Raises:
        CatalogueError: a scenario of this name does not exist.
        SubjectError: a server does not answer.
    """
    function = _scenarios.get(name)
    if function is None:
        raise CatalogueError(f"scenario '{name}' does not exist; there are: {', '.join(sorted(_scenarios))}")
    async with Laboratory(binary, directory) as laboratory:
        return Observation(facts=await function(laboratory))
