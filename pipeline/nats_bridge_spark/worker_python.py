"""Chooses the Python of Spark's workers."""

from __future__ import annotations

import os
import sys
from typing import Any


def use_this_python(context: Any) -> None:
    """On this machine, have workers run the Python of this process, unless Spark's settings name one.

    Spark would use the `python3` on PATH, which may lack pyarrow and this package. On a cluster, the nodes' own Python
    is used.
    """
    is_named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if context.master.startswith("local") and not is_named:
        context.pythonExec = sys.executable
