"""Latency: one stream republished natively and by the sidecar at once, the two copies of each message compared."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

from benchmarks.figures import Ratio, percentile, table
from benchmarks.load import PAYLOAD, SUBJECTS
from benchmarks.processes import running_sidecar
from benchmarks.raw_socket import RawSocket
from benchmarks.throughput import bench_stream

__all__ = ["run"]

_RATES = (1_000, 10_000)  # messages per second
_TICK = 0.001  # seconds between two writes of the publisher
_COPY = re.compile(rb"HMSG (native|bridge)\.bench\.\d+ \d+ \d+ \d+\r\n.*?\r\n\r\nT(\d{19})", re.DOTALL)
_Latencies = dict[bytes, dict[int, float]]  # who → time of publication in ns → milliseconds until it arrived
_spawned = multiprocessing.get_context("spawn")


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> tuple[str, list[Ratio]]:
    """Measure; a table, and what the sidecar adds."""
    rows: list[tuple[str, ...]] = []
    ratios: list[Ratio] = []
    for rate in _RATES:
        say(f"latency: {rate:,} messages/s")
        latencies = _measure(version, rate, seconds=2 if quick else 10)
        native, bridge = latencies[b"native"], latencies[b"bridge"]
        added = [bridge[sent] - native[sent] for sent in native]
        for name, values in (("native", native.values()), ("nats-bridge", bridge.values()), ("added", added)):
            shown = [f"{percentile(list(values), percent):.3f}" for percent in (50, 90, 99, 99.9)]
            rows.append((f"{name} at {rate:,} messages/s", *shown))
        ratios += [
            Ratio(f"added at {rate:,} messages/s, p50", percentile(added, 50), 0.3, at_most=True, unit="ms"),
            Ratio(f"added at {rate:,} messages/s, p99", percentile(added, 99), 2.0, at_most=True, unit="ms"),
        ]
    return table(("milliseconds from publication", "p50", "p90", "p99", "p99.9"), rows), ratios


def _measure(version: str, rate: int, *, seconds: int) -> _Latencies:
    messages = rate * seconds
    queue: Queue[_Latencies] = _spawned.Queue()
    ready = _spawned.Event()
    with bench_stream(version, native=True) as server, running_sidecar(server.url):
        subscriber = _spawned.Process(target=_subscribe, args=(server.port, messages, ready, queue), daemon=True)
        publisher = _spawned.Process(target=_publish, args=(server.port, messages, rate), daemon=True)
        try:
            subscriber.start()
            ready.wait()
            publisher.start()
            return queue.get(timeout=60 + 10 * seconds)
        finally:
            for process in (publisher, subscriber):
                if process.pid is not None:
                    process.terminate()
                    process.join()


def _publish(port: int, messages: int, rate: int) -> None:
    at_once = max(int(rate * _TICK), 1)
    rest = b"x" * (PAYLOAD - 20)
    with RawSocket(port) as connection:
        tick = time.monotonic()
        for begin in range(0, messages, at_once):
            tick += at_once / rate
            time.sleep(max(tick - time.monotonic(), 0))
            operations = b""
            for number in range(begin, begin + at_once):
                operations += b"PUB bench.%d %d\r\nT%019d%b\r\n" % (
                    number % SUBJECTS,
                    PAYLOAD,
                    time.monotonic_ns(),
                    rest,
                )
            connection.send(operations)
        connection.flush()


def _subscribe(port: int, messages: int, ready: Event, queue: Queue[_Latencies]) -> None:
    latencies: _Latencies = {b"native": {}, b"bridge": {}}
    with RawSocket(port, timeout=600.0) as connection:
        connection.send(b"SUB native.bench.> 1\r\nSUB bridge.bench.> 2\r\n")
        connection.flush()
        ready.set()
        data = b""
        while min(map(len, latencies.values())) < messages:
            data += connection.receive()
            now = time.monotonic_ns()
            end = 0
            for copy in _COPY.finditer(data):
                sent = int(copy[2])
                latencies[copy[1]][sent] = (now - sent) / 1e6
                end = copy.end()
            data = data[end:]
    queue.put(latencies)
