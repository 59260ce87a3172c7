"""Observes the run: the sidecars' status, the streams' ends, and all messages in the streams at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nats_conformance.errors import SubjectError
from tests.chaos.history import Historian
from tests.chaos.peers import Peer, place_of
from tests.chaos.plan import QUEUES
from tests.chaos.sidecars import Sidecar
from tests.chaos.workload import row_of

_INTERVAL = 0.5
_TRIES = 20


async def watch(sidecars: Sequence[Sidecar], historian: Historian) -> None:
    """Record each sidecar's status repeatedly, until cancelled."""
    while True:
        for sidecar in sidecars:
            await look(sidecar, historian)
        await asyncio.sleep(_INTERVAL)


async def look(sidecar: Sidecar, historian: Historian) -> dict[str, Any] | None:
    """Record a sidecar's status once, and return it; None without an answer."""
    pid = sidecar.pid
    status = await sidecar.status()
    if status is None or not pid or pid != sidecar.pid:
        return None
    historian.record(
        "status",
        replica=sidecar.number,
        pid=pid,
        ready=status["ready"],
        states={rule["name"]: rule["state"] for rule in status["rules"]},
        errors={rule["name"]: rule["error"] for rule in status["rules"] if rule["state"] == "failed"},
        rules={rule["name"]: _plain(rule["counters"]) for rule in status["rules"]},
    )
    return status


def _plain(counters: Mapping[str, Any]) -> dict[str, int]:
    return {name: count for name, count in counters.items() if isinstance(count, int) and count}


async def read_streams(peer: Peer, streams: Sequence[str], historian: Historian, report: Callable[[str], None]) -> None:
    """Write everything that streams hold into the history, in place of what was written before.

    Raises:
        SubjectError: a stream cannot be read.
    """
    for stream in streams:
        for _ in range(_TRIES):
            state = await peer.state(stream)
            # Only its own consumer can read a work queue.
            deliveries = await peer.read(stream) if state["messages"] and stream not in QUEUES else []
            if deliveries is not None:
                break
            await asyncio.sleep(0.5)
        else:
            raise SubjectError(f"{stream}: cannot be read, {_TRIES} times")
        historian.record("again", stream=stream)
        rows = [[*place_of(each.reply), *row_of(each.message)] for each in deliveries]
        for start in range(0, len(rows), 500):
            historian.record("final", stream=stream, rows=rows[start : start + 500])
        report(f"read {stream}: {len(rows)} messages")
    historian.flush()
