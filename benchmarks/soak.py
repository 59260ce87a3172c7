"""Memory over ten million messages: what the sidecar holds after each million that it has republished and copied.

One sidecar has both rules. The streams are limited (`max_msgs`), as streams that live long are, so the server's store
stays small and the bridge has to follow what the limit removes. The publisher waits for the rules every 25,000
messages: the limit must not remove unread ones.

The first 200,000 are published while the sidecar is stopped. So it meets the largest backlog at once, and the memory
that it takes for one is there before the first figure: what grows later, grows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report
from benchmarks.load import FILLING, SUBJECTS, publish_all
from benchmarks.processes import REPUBLISH, Program, configuration, memory_of, running_bridge
from benchmarks.raw_socket import RawSocket
from nats_conformance.native_servers import NativeServer, fetch

_MESSAGES = 10_000_000
_MILESTONES = 10
_BURST = 25_000
_BACKLOG = 200_000  # of the first burst
_KEPT = 500_000  # messages that the streams keep
_FLAT = 1.10  # times what was held after the first milestone
_PATIENCE = 120.0  # seconds without progress
_COPIES = {
    "name": "sources",
    "kind": "sources",
    "dialect": "native",
    "stream": "COPY",
    "sources": [{"name": "BENCH", "subject_transforms": [{"src": "bench.>", "dest": "copy.bench.>"}]}],
}


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure, with a tenth of the messages when quick.

    Raises:
        BenchmarkError: a rule is stalled, or did not handle every message.
    """
    messages = _MESSAGES // 10 if quick else _MESSAGES
    step = messages // _MILESTONES
    rows: list[tuple[str, ...]] = []
    held: list[int] = []
    with NativeServer(binary=fetch(version)) as server:
        with RawSocket(server.port) as connection:
            for name, subject in (("BENCH", "bench.>"), ("COPY", "copy.>")):
                config = {"name": name, "subjects": [subject], "storage": "memory", "max_msgs": _KEPT}
                connection.request(f"$JS.API.STREAM.CREATE.{name}", config)
        rules = {**REPUBLISH, "start": "first"}, _COPIES
        with running_bridge(configuration(server.url, *rules, name="soak", http={"listen": "127.0.0.1:0"})) as sidecar:
            rows.append(("0", f"{memory_of(sidecar.pid).now / 1e6:.1f}", "", ""))
            sent = 0
            for milestone in range(1, _MILESTONES + 1):
                began = time.monotonic()
                while sent < milestone * step:
                    burst = min(_BURST if sent else _BACKLOG, milestone * step - sent)
                    with _stopped(sidecar) if not sent else contextlib.nullcontext():
                        publish_all(server.port, burst, SUBJECTS, window=FILLING)
                    sent += burst
                    _caught_up(server.port, sent, sidecar)
                rate = step / (time.monotonic() - began)
                memory = memory_of(sidecar.pid)
                held.append(memory.now)
                row = (f"{milestone * step:,}", f"{memory.now / 1e6:.1f}", f"{memory.peak / 1e6:.1f}", f"{rate:,.0f}")
                rows.append(row)
                say(f"soak: {row[0]} messages, {row[1]} MB resident, {row[3]} msg/s through both rules")
    # The first tenth of few messages still warms up.
    target = None if quick else _FLAT
    ratios = [
        Ratio(f"resident after {messages:,} over after {step:,}", held[-1] / held[0], target, at_most=True),
        Ratio(f"most resident over after {step:,}", max(held) / held[0], target, at_most=True),
    ]
    note = "Every message was republished, and stored in a second stream, by one sidecar; 1,000 subjects."
    return Report(("messages", "MB resident", "peak", "msg/s"), rows, ratios, (note,))


@contextlib.contextmanager
def _stopped(program: Program) -> Iterator[None]:
    os.kill(program.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(program.pid, signal.SIGCONT)


def _caught_up(port: int, messages: int, sidecar: Program) -> None:
    """Wait until both rules are at this message."""
    with RawSocket(port) as connection:
        before, moved = (-1, -1), time.monotonic()
        while True:
            consumer = connection.request("$JS.API.CONSUMER.INFO.BENCH.soak_bench")
            copied = connection.request("$JS.API.STREAM.INFO.COPY")["state"]["last_seq"]
            now = consumer["delivered"]["stream_seq"], copied
            if now == (messages, messages):
                return
            if max(now) > messages:
                raise BenchmarkError(f"soak: of {messages:,} messages {now[0]:,} were republished, {now[1]:,} copied")
            if now != before:
                before, moved = now, time.monotonic()
            elif time.monotonic() - moved > _PATIENCE:
                last = "".join(sidecar.said[-3:]).strip()
                raise BenchmarkError(f"soak: stands at {now} of {messages:,}: {last}")
            time.sleep(0.02)
