"""What telemetry costs: republishing with and without it, 128-byte messages on 1,000 subjects."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import Arrivals, arrivals, publish_all
from benchmarks.processes import Program, bench_stream, cpu_seconds, running_bridge

__all__ = ["run"]

_ROUNDS = 7
_CONFIG = """\
connections:
  default: {{servers: ["{url}"]}}
http: {{listen: "{listen}"}}
dialect: native
log: {{format: json}}
telemetry: {{trace: {trace}}}
rules:
  - name: bench
    kind: republish
    stream: BENCH
    republish: {{src: "bench.>", dest: "bridge.bench.>"}}
"""
_TRACED = b"NATS/1.0\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-%b\r\n\r\n"
_NOT_SAMPLED, _SAMPLED = _TRACED % b"00", _TRACED % b"01"


@dataclass(slots=True)
class _Arm:
    """One way to run the sidecar, and what each round measured of it."""

    name: str
    reported: bool = True  # whether it measures its work, and is asked for it every second
    trace: str = "passthrough"
    exports: bool = False
    block: bytes = b""
    share: float = 1.0  # of the messages, for what is slow
    rates: list[float] = field(default_factory=list)  # messages per second
    cpu: list[float] = field(default_factory=list)  # microseconds of the program per message

    @property
    def rate(self) -> float:
        return median_of(self.rates)

    @property
    def used(self) -> float:
        return median_of(self.cpu)

    def row(self) -> tuple[str, ...]:
        return (
            self.name,
            *(f"{rate:,.0f}" for rate in (self.rate, min(self.rates), max(self.rates))),
            f"{self.used:.2f}",
        )


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round, so that a slow minute of the machine hits them all."""
    messages = 100_000 if quick else 400_000
    off = _Arm("nothing measured, nothing exported", reported=False)
    on = _Arm("measured, /metrics asked for every second")
    otlp = _Arm("the same, and OTLP every second", exports=True)
    plain = _Arm("messages with a traceparent, passthrough", block=_NOT_SAMPLED)
    unsampled = _Arm("trace: link, no message sampled", trace="link", exports=True, block=_NOT_SAMPLED)
    link = _Arm("trace: link, every message sampled", trace="link", exports=True, block=_SAMPLED)
    single = _Arm("trace: continue, every message sampled", trace="continue", exports=True, block=_SAMPLED, share=0.1)
    arms = (off, on, otlp, plain, unsampled, link, single)
    rounds = 2 if quick else _ROUNDS
    for number in range(1, rounds + 1):
        # Backwards in every other round: whatever comes first finds another machine than what comes last.
        for arm in arms if number % 2 else arms[::-1]:
            say(f"telemetry: round {number} of {rounds}, {arm.name}")
            _measure(arm, version, int(messages * arm.share))
    ratios = [
        Ratio("with telemetry over without, messages/s", on.rate / off.rate, 0.95),
        Ratio("without telemetry over with, CPU per message", off.used / on.used, 0.95),
        Ratio("with telemetry and OTLP over without, messages/s", otlp.rate / off.rate),
        Ratio("link over passthrough, no message sampled, messages/s", unsampled.rate / plain.rate),
        Ratio("link over passthrough, every message sampled, messages/s", link.rate / plain.rate),
        Ratio("continue over passthrough, every message sampled, messages/s", single.rate / plain.rate),
    ]
    header = "median of the rounds", "messages/s", "lowest", "highest", "µs CPU per message"
    return Report(header, [arm.row() for arm in arms], ratios)


def _measure(arm: _Arm, version: str, messages: int) -> None:
    with (
        bench_stream(version, native=False) as server,
        _environment(arm) as environment,
        arrivals(server.port, "bridge.bench.>", messages) as subscriber,
        _sidecar(arm, server.url, environment) as program,
        _asking(arm, program),
    ):
        began, used = time.monotonic(), cpu_seconds(program.pid)
        publish_all(server.port, messages, block=arm.block)
        came: Arrivals = subscriber.receive()
        arm.rates.append(messages / (came.last - began))
        arm.cpu.append((cpu_seconds(program.pid) - used) / messages * 1e6)


def _environment(arm: _Arm) -> AbstractContextManager[Mapping[str, str]]:
    return _collector() if arm.exports else nullcontext({})


def _asking(arm: _Arm, program: Program) -> AbstractContextManager[None]:
    return _asked(program) if arm.reported else nullcontext()


def _sidecar(arm: _Arm, url: str, environment: Mapping[str, str]) -> AbstractContextManager[Program]:
    config = _CONFIG.format(url=url, listen="127.0.0.1:0" if arm.reported else "", trace=arm.trace)
    return running_bridge(
        config, entry="nats_bridge.bridge.cli" if arm.reported else "benchmarks.unreported", environment=environment
    )


@contextmanager
def _asked(program: Program) -> Iterator[None]:
    """Ask for `/metrics` every second."""
    url = f"http://{program.logged('sidecar.ready')['http']}/metrics"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a loopback address of our own
    over, failed = threading.Event(), threading.Event()

    def ask() -> None:
        while not over.wait(1.0):
            try:
                with opener.open(url, timeout=60) as answer:
                    answer.read()
            except OSError:
                failed.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
    if failed.is_set():
        raise BenchmarkError(f"{url} did not answer")


class _Taker(BaseHTTPRequestHandler):
    """Takes whatever is exported."""

    def do_POST(self) -> None:  # the name that the standard library calls
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _collector() -> Iterator[Mapping[str, str]]:
    """Run an OTLP collector; return the environment that names it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taker) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
                "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            }
        finally:
            server.shutdown()
            thread.join()
