"""Live end to end, 128-byte messages on 1,000 subjects: native republish, the sidecar, and plain nats-py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from subprocess import Popen

from benchmarks.figures import Ratio, median_of, table
from benchmarks.load import arrivals, publish_all
from benchmarks.processes import cpu_seconds, running_copier, running_sidecar
from benchmarks.raw_socket import RawSocket
from conformance.servers import NativeServer, fetch

__all__ = ["bench_stream", "run"]

_ROUNDS = 5
_Program = Callable[[str], AbstractContextManager["Popen[str] | None"]]


@dataclass
class _Arm:
    name: str
    program: _Program
    native: bool = False
    stored_first: bool = False
    share: float = 1.0  # of the messages, for what is slow
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # seconds per message


def _sidecar(options: str) -> _Program:
    return lambda url: running_sidecar(url, options)


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> tuple[str, list[Ratio]]:
    """Measure; a table, and the ratios."""
    messages = 60_000 if quick else 400_000
    native = _Arm("native republish", lambda _: nullcontext(None), native=True)
    plain = _Arm("nats-py as documented", running_copier, share=0.2)
    live = [
        _Arm("nats-bridge, at_most_once", _sidecar("delivery: at_most_once")),
        _Arm("nats-bridge, at_least_once", _sidecar("delivery: at_least_once")),
        _Arm("nats-bridge, durable: false", _sidecar("durable: false")),
    ]
    stored = _Arm("nats-bridge, catching up on a stored stream", _sidecar("start: first"), stored_first=True)
    arms = [native, *live, plain, stored]
    for number in range(2 if quick else _ROUNDS):
        for arm in arms:
            say(f"throughput: round {number + 1}, {arm.name}")
            _measure(arm, version, int(messages * arm.share))
    rows = [_row(arm) for arm in arms]
    ours = median_of(live[0].rates)
    ratios = [
        Ratio("sidecar over native republish (at_most_once)", ours / median_of(native.rates), 1.1),
        Ratio("sidecar over native republish (at_least_once)", median_of(live[1].rates) / median_of(native.rates)),
        Ratio("sidecar over plain nats-py (at_most_once)", ours / median_of(plain.rates), 7.0),
        Ratio("catching up over live (at_most_once)", median_of(stored.rates) / ours),
    ]
    return table(("what", "messages/s (median)", "lowest", "highest", "CPU per message"), rows), ratios


@contextmanager
def bench_stream(version: str, *, native: bool) -> Iterator[NativeServer]:
    """A server with the stream BENCH in memory; with native republish to `native.bench.>` if wanted."""
    with NativeServer(binary=fetch(version)) as server:
        config: dict[str, object] = {"name": "BENCH", "subjects": ["bench.>"], "storage": "memory"}
        if native:
            config["republish"] = {"src": "bench.>", "dest": "native.bench.>"}
        with RawSocket(server.port) as connection:
            connection.request("$JS.API.STREAM.CREATE.BENCH", config)
        yield server


def _measure(arm: _Arm, version: str, messages: int) -> None:
    with bench_stream(version, native=arm.native) as server:
        subject = "native.bench.>" if arm.native else "bridge.bench.>"
        if arm.stored_first:
            publish_all(server.port, messages)
        with arrivals(server.port, subject, messages) as arrived, arm.program(server.url) as program:
            began, used = time.monotonic(), cpu_seconds(program.pid) if program else 0.0
            if not arm.stored_first:
                publish_all(server.port, messages)
            first, last = arrived.times()
            if program:
                arm.cpu.append((cpu_seconds(program.pid) - used) / messages)
            arm.rates.append(messages / (last - (first if arm.stored_first else began)))


def _row(arm: _Arm) -> tuple[str, ...]:
    cpu = f"{median_of(arm.cpu) * 1e6:.1f} us" if arm.cpu and not arm.stored_first else "-"
    return arm.name, f"{median_of(arm.rates):,.0f}", f"{min(arm.rates):,.0f}", f"{max(arm.rates):,.0f}", cpu
