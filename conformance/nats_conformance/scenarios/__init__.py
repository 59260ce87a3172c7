"""Scenarios: cases that data cannot express (crashes, upgrades, clusters, timing), as functions that return facts.

Each module has the scenarios of one concern. Importing all of them here registers their names.
"""

from importlib import import_module
from pkgutil import iter_modules

from nats_conformance.scenarios.registry import play_scenario, scenario_names

__all__ = ["play_scenario", "scenario_names"]

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
