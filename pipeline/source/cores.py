"""How many tasks run at once, for the processes that plan reads: they do not know the session."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["CORES", "cores"]

CORES: Final = "NATS_BRIDGE_SPARK_CORES"
"""The environment variable in which `pyspark_jetstream.register` passes Spark's default parallelism."""


def cores() -> int:
    """Spark's default parallelism where it is configured, else this machine's cores."""
    reported = os.environ.get(CORES, "")
    return int(reported) if reported.isdigit() and int(reported) else os.cpu_count() or 1
