"""Scenarios: cases that data cannot express (crashes, upgrades, clusters, timing), as functions that return facts.

Each module has the scenarios of one concern. Importing them here registers their names.
"""

from nats_conformance.scenarios import (  # noqa: F401 - imported to be registered
    accounts_and_mappings,
    advisories,
    batches_and_counters,
    clusters,
    consumers,
    crashes,
    deduplication,
    limits_and_expiry,
    loops,
    markers,
    records,
    requests,
    restarts,
    stalls,
    timing,
    upgrades,
    work_queues,
)
from nats_conformance.scenarios.registry import play_scenario, scenario_names

__all__ = ["play_scenario", "scenario_names"]
