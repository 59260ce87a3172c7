"""Latency: one stream republished natively and by the sidecar at once, the two copies of each message compared."""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Callable, Sequence

from benchmarks.figures import Ratio, Report, percentile
from benchmarks.load import publish_paced
from benchmarks.processes import REPUBLISH, bench_stream, configuration, running_bridge
from benchmarks.raw_socket import RawSocket
from benchmarks.workers import Send, worker

_RATES = (1_000, 10_000)  # messages per second
_DELIVERIES = ("at_most_once", "at_least_once")
_PERCENTS = (50, 90, 99, 99.9)
# A copy begins with the number of the message and the time at which it was published.
_COPY = re.compile(rb"HMSG (native|bridge)\.bench\.\d+ \d+ \d+ \d+\r\n.*?\r\n\r\n(\d{9}) (\d{19})", re.DOTALL)


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure."""
    rows: list[tuple[str, ...]] = []
    ratios: list[Ratio] = []
    for delivery in _DELIVERIES:
        for rate in _RATES:
            what = f"{delivery}, {rate:,} messages/s"
            say(f"latency: {what}")
            native, bridge = _measure(version, delivery, rate, seconds=2 if quick else 8)
            each = [ours - theirs for ours, theirs in zip(bridge, native, strict=True)]
            for name, values in (("native", native), ("nats-bridge", bridge), ("one message's two copies", each)):
                rows.append((f"{name}, {what}", *(f"{percentile(values, percent):.3f}" for percent in _PERCENTS)))
            ratios += [
                Ratio(f"added at {what}, p{percent}", added(native, bridge, percent), target, at_most=True, unit="ms")
                for percent, target in ((50, 0.1), (99, 0.0))
            ]
    header = "milliseconds from publication", *(f"p{percent:g}" for percent in _PERCENTS)
    note = (
        "Added is the sidecar's percentile minus the native one of the same run and the same messages;"
        " next to it, the percentiles of the delay of each message's second copy."
    )
    return Report(header, rows, ratios, (note,))


def added(native: Sequence[float], bridge: Sequence[float], percent: float) -> float:
    """The difference of two percentiles."""
    return percentile(bridge, percent) - percentile(native, percent)


def _measure(version: str, delivery: str, rate: int, *, seconds: int) -> tuple[Sequence[float], Sequence[float]]:
    """Milliseconds until each message's native copy came, and until the sidecar's did, by the message's number."""
    messages = rate * seconds
    with (
        bench_stream(version, native=True) as server,
        running_bridge(configuration(server.url, {**REPUBLISH, "delivery": delivery})),
        worker("subscriber", _subscribe, server.port, messages) as subscriber,
    ):
        subscriber.receive()
        with worker("publisher", _publish, server.port, messages, rate) as publisher:
            publisher.receive()
            native, bridge = subscriber.receive()
    return native, bridge


def _publish(send: Send, port: int, messages: int, rate: int) -> None:
    publish_paced(port, messages, rate)
    send("published")


def _subscribe(send: Send, port: int, messages: int) -> None:
    latencies = {who: array("d", [-1.0]) * messages for who in (b"native", b"bridge")}
    missing = 2 * messages
    with RawSocket(port) as connection:
        connection.send(b"SUB native.bench.> 1\r\nSUB bridge.bench.> 2\r\n")
        connection.flush()
        send("subscribed")
        data = b""
        try:
            while missing:
                data += connection.receive()
                now = time.monotonic_ns()
                end = 0
                for copy in _COPY.finditer(data):
                    latencies[copy[1]][int(copy[2])] = (now - int(copy[3])) / 1e6
                    missing -= 1
                    end = copy.end()
                data = data[end:]
        except TimeoutError:
            raise TimeoutError(f"{missing:,} of {2 * messages:,} copies did not come within a minute") from None
    send((latencies[b"native"], latencies[b"bridge"]))
