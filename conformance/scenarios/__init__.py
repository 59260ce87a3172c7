"""Scenarios: what data cannot say (crashes, upgrades, clusters, timing), as functions that answer with facts.

Each module holds those of one concern; importing them here is what makes their names known.
"""

from conformance.scenarios import (  # noqa: F401 - imported to be registered
    crashes,
    deduplication,
    limits_and_expiry,
    restarts,
    stalls,
    timing,
)
from conformance.scenarios.registry import play_scenario, scenario_names

__all__ = ["play_scenario", "scenario_names"]
