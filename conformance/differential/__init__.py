"""Differential testing: random inputs, real servers against the engine.

``compare`` runs it for one version, ``report.text`` shows what came out. `ALL` are the kinds of comparisons.
"""

from conformance.differential.engine import Engine
from conformance.differential.result import DifferentialResult, Disagreement
from conformance.differential.run import compare
from conformance.differential.trial import ALL, Kind

__all__ = ["ALL", "DifferentialResult", "Disagreement", "Engine", "Kind", "compare"]
