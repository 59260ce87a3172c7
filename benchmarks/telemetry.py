"""What telemetry costs: republishing with and without it, 128-byte messages on 1,000 subjects."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report
from benchmarks.load import chunks
from benchmarks.processes import REPUBLISH, Program, configuration, running_bridge
from benchmarks.republish_arm import Arm, measure
from benchmarks.rounds import HEADER, turns

_ROUNDS = 7
_TRACED = b"NATS/1.0\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-%b\r\n\r\n"
_NOT_SAMPLED, _SAMPLED = _TRACED % b"00", _TRACED % b"01"


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure. The arms take turns, round after round, so that a slow minute of the machine hits them all."""
    messages = 100_000 if quick else 400_000
    off = _arm("nothing measured, nothing exported", reported=False)
    on = _arm("measured, /metrics asked for every second")
    otlp = _arm("the same, and OTLP every second", exports=True)
    plain = _arm("messages with a traceparent, passthrough")
    unsampled = _arm("trace: link, no message sampled", trace="link", exports=True)
    link = _arm("trace: link, every message sampled", trace="link", exports=True)
    single = _arm("trace: continue, every message sampled", trace="continue", exports=True, share=0.1)
    arms = (off, on, otlp, plain, unsampled, link, single)
    blocks = dict.fromkeys((plain.name, unsampled.name), _NOT_SAMPLED) | dict.fromkeys(
        (link.name, single.name), _SAMPLED
    )
    for arm in turns("telemetry", 2 if quick else _ROUNDS, arms, say):
        count = int(messages * arm.share)
        measure(arm, count, chunks(count, block=blocks.get(arm.name, b"")), version=version)
    ratios = [
        Ratio("with telemetry over without, messages/s", on.rate / off.rate, 0.95),
        Ratio("without telemetry over with, CPU per message", off.used / on.used, 0.95),
        Ratio("with telemetry and OTLP over without, messages/s", otlp.rate / off.rate),
        Ratio("link over passthrough, no message sampled, messages/s", unsampled.rate / plain.rate),
        Ratio("link over passthrough, every message sampled, messages/s", link.rate / plain.rate),
        Ratio("continue over passthrough, every message sampled, messages/s", single.rate / plain.rate),
    ]
    return Report(HEADER, [arm.row() for arm in arms], ratios)


def _arm(
    name: str, *, reported: bool = True, trace: str = "passthrough", exports: bool = False, share: float = 1.0
) -> Arm:
    """One way to run the sidecar; `reported`: it measures its work, and is asked for it every second."""

    @contextmanager
    def launch(url: str) -> Iterator[Program]:
        http = {"listen": "127.0.0.1:0" if reported else ""}
        config = configuration(url, REPUBLISH, http=http, telemetry={"trace": trace})
        entry = "nats_bridge.cli" if reported else "benchmarks.unreported"
        collector: AbstractContextManager[Mapping[str, str]] = _collector() if exports else nullcontext({})
        with collector as environment, running_bridge(config, entry=entry, environment=environment) as program:
            asking: AbstractContextManager[None] = _asked(program) if reported else nullcontext()
            with asking:
                yield program

    return Arm(name, launch, share=share)


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
