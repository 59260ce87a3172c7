"""How long a rule is without a leader: from the end of the one to the first message that the next one publishes.

    python -m benchmarks.takeover [--runs 20] [--version 2.15.3] [--ttl 3]

Two replicas run one republish rule while a message is stored every few milliseconds. The leader is killed, or stopped
with SIGTERM; what is printed is the longest pause between two republished messages around that moment.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from contextlib import ExitStack, suppress
from itertools import pairwise
from threading import Condition, Thread

from benchmarks.errors import BenchmarkError
from benchmarks.load import publish_paced
from benchmarks.processes import REPUBLISH, bench_stream, configuration, running_bridge
from benchmarks.raw_socket import RawSocket
from benchmarks.workers import Send, worker

_RATE = 200  # stored messages per second
_ENDLESS = 10**8  # messages
_LIMIT = 60.0  # seconds for anything
_WAYS = {"crash": signal.SIGKILL, "clean stop": signal.SIGTERM}


class _Arrivals(Thread):
    """When republished messages arrived."""

    def __init__(self, connection: RawSocket) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._more = Condition()
        self.times: list[float] = []

    def run(self) -> None:
        """Until the connection is closed."""
        self._connection.send(b"SUB bridge.bench.> 1\r\n")
        with suppress(OSError):
            while True:
                came = self._connection.receive().count(b"\r\nNats-Stream: ")
                with self._more:
                    self.times += [time.monotonic()] * came
                    self._more.notify()

    def after(self, wanted: int) -> int:
        """Wait for so many more; how many there are then."""
        with self._more:
            wanted += len(self.times)
            if not self._more.wait_for(lambda: len(self.times) >= wanted, _LIMIT):
                raise BenchmarkError(f"nothing is republished for {_LIMIT:g} s")
            return len(self.times)


def _publish(_: Send, port: int) -> None:
    publish_paced(port, _ENDLESS, _RATE)


def _pauses(number: signal.Signals, runs: int, version: str, ttl: float) -> list[float]:
    """Of each takeover after this signal, the longest pause in seconds."""
    with bench_stream(version, native=False) as server, ExitStack() as running:
        config = configuration(server.url, REPUBLISH, leadership={"ttl": ttl})
        arrivals = _Arrivals(running.enter_context(RawSocket(server.port)))
        arrivals.start()
        running.enter_context(worker("publisher", _publish, server.port))
        leader = running.enter_context(running_bridge(config, "rule.ready"))
        pauses = []
        for _ in range(runs):
            standby = running.enter_context(running_bridge(config))
            before = arrivals.after(100)
            os.kill(leader.pid, number)
            # What it had in flight arrives first; a second of messages is more than that.
            end = arrivals.after(_RATE)
            pauses.append(max(later - earlier for earlier, later in pairwise(arrivals.times[before - 1 : end])))
            leader = standby
    return pauses


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--version", default="2.15.3")
    parser.add_argument("--ttl", type=float, default=3.0)
    given = parser.parse_args()
    print(f"nats-server {given.version}, ttl {given.ttl:g} s, {given.runs} runs each")
    for how, number in _WAYS.items():
        pauses = _pauses(number, given.runs, given.version, given.ttl)
        print(f"{how:>10}: median {statistics.median(pauses):.2f} s, worst {max(pauses):.2f} s")


if __name__ == "__main__":
    main()
