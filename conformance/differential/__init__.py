"""Differential testing: random inputs, real servers against the engine.

``compare`` runs it for one version, ``report.text`` shows what came out. `ALL` are the kinds of comparisons.
"""

from nats_bridge.conformance.differential.engine import Engine
from nats_bridge.conformance.differential.result import DifferentialResult, Disagreement
from nats_bridge.conformance.differential.run import compare
from nats_bridge.conformance.differential.trial import ALL, Kind

__all__ = ["ALL", "DifferentialResult", "Disagreement", "Engine", "Kind", "compare"]
