"""Scenarios: what data cannot say (crashes, upgrades, clusters, timing), as functions that answer with facts."""

from conformance.scenarios.registry import play_scenario, scenario_names

__all__ = ["play_scenario", "scenario_names"]
