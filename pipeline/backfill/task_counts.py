"""What tasks tell the driver: their counts, in one row each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from typing import Any

import pyarrow as pa

from nats_bridge.bridge.observability.logs import configure_logs
from nats_bridge.bridge.settings import Log
from nats_bridge.pipeline.errors import marking

__all__ = ["TOLD", "counts_of", "told_of"]

TOLD = "told string"
"""What a task returns: one row with its counts, as JSON."""


def counts_of(work: Coroutine[Any, Any, dict[str, int]]) -> Iterator[pa.RecordBatch]:
    """Do a task's work; its counts, with the columns `TOLD`.

    Raises:
        PipelineError: marked, for the driver to find.
    """
    configure_logs(Log(level="warning"))
    with marking():
        counts = asyncio.run(work)
    yield pa.record_batch({"told": [json.dumps(counts)]})


def told_of(rows: list[str]) -> dict[str, int]:
    """The counts of all tasks together, from what each of them told; `last` is the highest."""
    total: dict[str, int] = {}
    for text in rows:
        for name, value in json.loads(text).items():
            total[name] = max(total.get(name, 0), value) if name == "last" else total.get(name, 0) + value
    return total
