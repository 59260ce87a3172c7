"""`python -m benchmarks.spark.local_jobs`: the jobs in one process against plain programs that do the same.

Each program is a process of its own. Its time and its CPU seconds are measured; the server's are not. On a busy machine
compare the CPU seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import BenchmarkError
from benchmarks.spark.scene import CONFIG, SOURCE, Scene, scene
from nats_bridge.consuming.ack_reply import AckReply
from nats_bridge.consuming.replay import Replay
from nats_bridge.settings import Connection
from nats_bridge_spark.connections import connected

_BRIDGE = (sys.executable, "-m", "nats_bridge")
_LOOK = 0.1  # seconds


class Cost(NamedTuple):
    """What a program took: seconds, CPU seconds, and MB of memory at most."""

    seconds: float
    cpu: float
    memory: float


def cost_of(words: Sequence[str], until: Callable[[], bool] | None = None) -> Cost:
    """Run a program to its end, or until something holds and then stop it."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, stdout=output, stderr=output)
        while until is not None and not until() and process.poll() is None:
            time.sleep(_LOOK)
        seconds = time.monotonic() - begin
        if until is not None:
            process.terminate()
        _, status, usage = os.wait4(process.pid, 0)
        if until is None:
            seconds = time.monotonic() - begin
            if code := os.waitstatus_to_exitcode(status):
                output.seek(0)
                raise BenchmarkError(f"{' '.join(words)}: exit code {code}\n{output.read().decode()}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


async def compare(url: str, left: str, right: str) -> None:
    """Read two streams in step, and count the messages that differ."""
    differ = 0
    async with connected(Connection(servers=(url,))) as one, connected(Connection(servers=(url,))) as other:
        sides = [Replay(each.api, name).between(1, 1 << 62) for each, name in ((one, left), (other, right))]
        held: tuple[list[tuple[object, ...]], ...] = ([], [])
        while True:
            for side, rows in zip(sides, held, strict=True):
                if not rows and (batch := await anext(side, None)):
                    rows += [(AckReply.parse(reply).stream_sequence, *rest) for subject, reply, *rest in batch]
            count = min(map(len, held))
            if not count:
                break
            differ += sum(a != b for a, b in zip(held[0][:count], held[1][:count], strict=True))
            del held[0][:count], held[1][:count]
    print(differ, len(held[0]) + len(held[1]))


def measure(here: Scene, messages: int, folder: Path) -> None:
    """Run every job, and the plain programs, and print a line for each."""
    here.fill(messages)
    config = folder / "bench.yaml"
    config.write_text(CONFIG.format(url=here.url))
    server, capture = ("--server", here.url), str(folder / "capture")
    to_copy = ("--transform", "bench.*", "copy.$1")

    here.empty("COPY", "copy.>")
    _print("the sidecar", cost_of((*_BRIDGE, "run", "-c", str(config)), lambda: here.holds("COPY") >= messages))
    here.empty("COPY", "copy.>")
    _print("backfill", cost_of((*_BRIDGE, "backfill", "-c", str(config), "bench")))
    here.remove("COPY")
    _print("capture", cost_of((*_BRIDGE, "capture", SOURCE, capture, *server, "--engine", "local")))
    _print("restore", cost_of((*_BRIDGE, "restore", capture, *server, "--as", "COPY", *to_copy)))
    sides = (SOURCE, "COPY", *server, *to_copy, "--by", "sequence")
    _print("diff", cost_of((*_BRIDGE, "diff", *sides, "--engine", "local")))
    compare = (sys.executable, "-m", "benchmarks.spark.local_jobs", "--compare", here.url, SOURCE, "COPY")
    _print("compared in step", cost_of(compare))


def _print(job: str, cost: Cost) -> None:
    print(f"{job:16}  {cost.seconds:6.1f} s  {cost.cpu:6.1f} CPU s  {cost.memory:5.0f} MB", flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description="Measure the jobs in one process against plain programs.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--server-version", default="2.15.3")
    parser.add_argument("--compare", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compare:
        asyncio.run(compare(*given.compare))
        return
    with scene(given.server_version) as here, tempfile.TemporaryDirectory() as folder:
        measure(here, given.messages, Path(folder))


if __name__ == "__main__":
    main()
