"""How long a rule is without a leader: from the end of the one to the first message that the next one publishes.

    python -m benchmarks.takeover [--runs 20] [--version 2.15.1] [--ttl 3]

Two replicas run one republish rule while a message is stored every few milliseconds. The leader is killed, or stopped
with SIGTERM; what is printed is the longest pause between two republished messages around that moment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Literal

from nats_bridge.bridge.client.wire import Delivered, WireClient
from nats_bridge.native_servers import NativeServer, fetch

_PACE = 0.005  # seconds between two stored messages
_LIMIT = 60.0  # seconds for anything


class _Arrivals:
    """When republished messages arrived."""

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self.last = time.monotonic()
        self.longest = 0.0
        self.count = 0

    def add(self, batch: list[Delivered]) -> None:
        now = time.monotonic()
        self.longest = max(self.longest, now - self.last)
        self.last = now
        self.count += len(batch)
        self._came.set()

    def begin(self) -> None:
        self.longest, self.last = 0.0, time.monotonic()

    async def more(self, wanted: int) -> None:
        """Wait for so many more."""
        wanted += self.count
        async with asyncio.timeout(_LIMIT):
            while self.count < wanted:
                self._came.clear()
                await self._came.wait()


class _Replica:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if line.startswith(b"{"):
                self._events[str(json.loads(line).get("event"))].set()

    async def said(self, event: str) -> None:
        async with asyncio.timeout(_LIMIT):
            await self._events[event].wait()

    async def end(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            os.kill(self.process.pid, number)
        await self.process.wait()
        await self._reader


async def _replica(config: Path) -> _Replica:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nats_bridge", "run", "-c", str(config)), stderr=asyncio.subprocess.PIPE
    )
    replica = _Replica(process)
    await replica.said("sidecar.ready")
    return replica


async def _measure(how: Literal["crash", "clean stop"], runs: int, url: str, config: Path) -> list[float]:
    client = WireClient()
    await client.connect(url)
    arrivals = _Arrivals()
    await client.subscribe_batches("measured.>", arrivals.add)

    async def publish() -> None:
        while True:
            client.write_raw(b"PUB orders.x 2\r\nhi\r\n")
            await asyncio.sleep(_PACE)

    publishing = asyncio.create_task(publish())
    leader = await _replica(config)
    await leader.said("rule.ready")
    pauses = []
    try:
        for _ in range(runs):
            standby = await _replica(config)
            await arrivals.more(100)
            arrivals.begin()
            await leader.end(signal.SIGKILL if how == "crash" else signal.SIGTERM)
            await standby.said("rule.ready")
            await arrivals.more(20)
            pauses.append(arrivals.longest)
            leader = standby
    finally:
        publishing.cancel()
        await leader.end(signal.SIGTERM)
        await client.close()
    return pauses


async def _run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, NativeServer(binary=fetch(arguments.version)) as server:
        document = {
            "connections": {"default": {"servers": [server.url]}},
            "http": {"listen": ""},
            "log": {"format": "json"},
            "leadership": {"ttl": arguments.ttl},
            "rules": [
                {
                    "name": "orders",
                    "kind": "republish",
                    "stream": "ORDERS",
                    "republish": {"src": "orders.>", "dest": "measured.>"},
                }
            ],
        }
        config = Path(folder) / "replica.yaml"
        await asyncio.to_thread(config.write_text, json.dumps(document), "utf-8")
        client = WireClient()
        await client.connect(server.url)
        stream = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "max_msgs": 10_000}
        await client.request("$JS.API.STREAM.CREATE.ORDERS", json.dumps(stream).encode())
        await client.close()
        print(f"nats-server {arguments.version}, ttl {arguments.ttl:g} s, {arguments.runs} runs each")
        ways: tuple[Literal["crash", "clean stop"], ...] = ("crash", "clean stop")
        for how in ways:
            pauses = await _measure(how, arguments.runs, server.url, config)
            print(f"{how:>10}: median {statistics.median(pauses):.2f} s, worst {max(pauses):.2f} s")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--version", default="2.15.1")
    parser.add_argument("--ttl", type=float, default=3.0)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
