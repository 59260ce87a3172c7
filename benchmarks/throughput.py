"""Live end to end, 128-byte messages on 1,000 subjects: native republish, the sidecar, and plain nats-py."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import Arrivals, arrivals, publish_all
from benchmarks.processes import Program, bench_stream, cpu_seconds, running_copier, running_sidecar

__all__ = ["run"]

_ROUNDS = 5
_Launch = Callable[[str], AbstractContextManager[Program | None]]


@dataclass(slots=True)
class _Arm:
    """One way to republish, and what each round measured of it."""

    name: str
    launch: _Launch
    native: bool = False
    stored_first: bool = False
    share: float = 1.0  # of the messages, for what is slow
    rates: list[float] = field(default_factory=list)  # messages per second
    cpu: list[float] = field(default_factory=list)  # microseconds of the program per message
    server_cpu: list[float] = field(default_factory=list)  # microseconds of the server per message
    whole: list[float] = field(default_factory=list)  # seconds from the launch of the program to the last message

    @property
    def rate(self) -> float:
        return median_of(self.rates)

    @property
    def used(self) -> float:
        return median_of(self.cpu)

    def row(self) -> tuple[str, ...]:
        rates = self.rate, min(self.rates), max(self.rates)
        cpu = [f"{median_of(used):.1f}" if used else "-" for used in (self.cpu, self.server_cpu)]
        return self.name, *(f"{rate:,.0f}" for rate in rates), *cpu


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round, so that a slow minute of the machine hits them all."""
    messages = 60_000 if quick else 400_000
    native = _Arm("native republish", lambda _: nullcontext(None), native=True)
    most = _Arm("nats-bridge, at_most_once", _sidecar("delivery: at_most_once"))
    least = _Arm("nats-bridge, at_least_once", _sidecar("delivery: at_least_once"))
    passing = _Arm("nats-bridge, durable: false", _sidecar("durable: false"))
    ordered = _Arm("nats-py, ordered consumer", _copier("ordered"), share=0.2)
    durable = _Arm("nats-py, durable consumer, acks", _copier("durable"), share=0.2)
    pull = _Arm("nats-py, pull consumer, acks", _copier("pull"), share=0.1)
    stored = _Arm("nats-bridge, catching up", _sidecar("start: first"), stored_first=True)
    arms = (native, most, least, passing, ordered, durable, pull, stored)
    rounds = 2 if quick else _ROUNDS
    for number in range(1, rounds + 1):
        for arm in arms:
            say(f"throughput: round {number} of {rounds}, {arm.name}")
            _measure(arm, version, int(messages * arm.share))
    ratios = [
        Ratio("nats-bridge over native republish, at most once", most.rate / native.rate, 1.1),
        Ratio("nats-bridge over native republish, at least once", least.rate / native.rate),
        # nats-py documents several ways, which differ a lot; the target was set for pulling.
        Ratio("nats-bridge, at most once, over nats-py with an ordered consumer", most.rate / ordered.rate),
        Ratio("nats-bridge, at most once, over nats-py with a pull consumer", most.rate / pull.rate, 7.0),
        Ratio("nats-bridge, at least once, over nats-py with a durable consumer", least.rate / durable.rate),
        Ratio("nats-bridge, at least once, over nats-py with a pull consumer", least.rate / pull.rate),
        Ratio("CPU of nats-py, ordered consumer, over nats-bridge's, at most once", ordered.used / most.used),
        Ratio("nats-bridge, catching up over live", stored.rate / most.rate),
    ]
    header = "median of the rounds", "messages/s", "lowest", "highest", "µs CPU per message", "of the server"
    note = (
        f"Catching up counts from the first message; all {messages:,} were there {median_of(stored.whole):.1f} s"
        " after the launch of the process."
    )
    return Report(header, [arm.row() for arm in arms], ratios, (note,))


def _sidecar(options: str) -> _Launch:
    return lambda url: running_sidecar(url, options)


def _copier(way: str) -> _Launch:
    return lambda url: running_copier(url, way)


def _measure(arm: _Arm, version: str, messages: int) -> None:
    with bench_stream(version, native=arm.native) as server:
        subject = "native.bench.>" if arm.native else "bridge.bench.>"
        if arm.stored_first:
            publish_all(server.port, messages)
        with arrivals(server.port, subject, messages) as subscriber, arm.launch(server.url) as program:
            began = time.monotonic()
            used, server_used = cpu_seconds(program.pid) if program else 0.0, cpu_seconds(server.pid)
            if not arm.stored_first:
                publish_all(server.port, messages)
            came: Arrivals = subscriber.receive()
            arm.rates.append(messages / (came.last - (came.first if arm.stored_first else began)))
            if program:
                arm.whole.append(came.last - program.launched)
            if arm.stored_first:
                return  # part of the work was done before the sidecar was ready
            arm.server_cpu.append((cpu_seconds(server.pid) - server_used) / messages * 1e6)
            if program:
                arm.cpu.append((cpu_seconds(program.pid) - used) / messages * 1e6)
