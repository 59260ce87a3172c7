"""Differential testing: random inputs, real servers against the engine.

``compare`` runs it for one version, ``report.text`` shows what came out. `ALL` are the kinds of comparisons.
"""

from tests.differential.engine import Engine
from tests.differential.result import DifferentialResult, Disagreement
from tests.differential.run import compare
from tests.differential.trial import ALL, Kind

__all__ = ["ALL", "DifferentialResult", "Disagreement", "Engine", "Kind", "compare"]
