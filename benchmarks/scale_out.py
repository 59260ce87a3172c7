"""Rules on one and on two workers; one stream by one rule and by two; what consumers give to a bare socket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.figures import Ratio, Report, median_of
from benchmarks.load import PAYLOAD, SUBJECTS, arrivals
from benchmarks.processes import Program, cpu_seconds, memory_of, running_bridge
from benchmarks.raw_socket import RawSocket
from benchmarks.workers import Send, worker
from conformance.servers import NativeServer, fetch

__all__ = ["run", "run_one_rule"]

_ROUNDS = 3
_CHUNK = 1_000  # messages for one stream, written at once; the last of them is acknowledged
_WINDOW = 16  # chunks under way without an acknowledgement, over all streams
_ACKNOWLEDGEMENT = b"MSG _stored "


@dataclass(slots=True)
class _Arm:
    """One way to do it, and what each round measured."""

    name: str
    workers: int
    parts: int  # streams with a rule each; or rules on one stream
    one_stream: bool = False
    stored_first: bool = False
    storage: str = "memory"
    rates: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # microseconds of all processes of the sidecar per message
    server_cpu: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # MB of all processes of the sidecar

    @property
    def rate(self) -> float:
        return median_of(self.rates)

    def row(self) -> tuple[str, ...]:
        rates = self.rate, min(self.rates), max(self.rates)
        used = [f"{median_of(each):.1f}" if each else "-" for each in (self.cpu, self.server_cpu)]
        return self.name, *(f"{rate:,.0f}" for rate in rates), *used, f"{median_of(self.memory):.0f}"

    @property
    def config(self) -> Callable[[str], str]:
        def written(url: str) -> str:
            rules = [
                {
                    "name": f"rule-{part}",
                    "kind": "republish",
                    "stream": "BENCH0" if self.one_stream else f"BENCH{part}",
                    "republish": {"src": f"bench.{part}.>", "dest": f"bridge.{part}.>"},
                    **({"start": "first"} if self.stored_first else {}),
                }
                for part in range(self.parts)
            ]
            return json.dumps(
                {
                    "connections": {"default": {"servers": [url]}},
                    "http": {"listen": ""},
                    "dialect": "native",
                    "log": {"format": "json"},
                    "workers": self.workers,
                    "rules": rules,
                }
            )

        return written


_HEADER = (
    *("median of the rounds", "messages/s", "lowest", "highest"),
    *("µs CPU per message", "of the server", "MB"),
)


def run(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """Several streams with a rule each, live and catching up, on one and on two workers."""
    arms = [
        _Arm(f"{'catching up' if stored else 'live'}, {parts} rules, workers: {workers}", workers, parts, False, stored)
        for stored in (False, True)
        for parts in (2, 8)
        for workers in (1, 2)
    ]
    _play("scale-out", arms, version, quick=quick, say=say)
    ratios = [
        Ratio(f"{two.name}, over one", two.rate / one.rate) for one, two in zip(arms[::2], arms[1::2], strict=True)
    ]
    return Report(_HEADER, [arm.row() for arm in arms], ratios)


def run_one_rule(version: str, *, quick: bool, say: Callable[[str], None]) -> Report:
    """One stream's history by one rule, and by two that have half of the subjects each."""
    arms = [
        _Arm(f"{storage}, {rules} of the stream, workers: {workers}", workers, parts, True, True, storage)
        for storage in ("memory", "file")
        for rules, parts, workers in (("one rule", 1, 1), ("two rules", 2, 1), ("two rules", 2, 2))
    ]
    _play("one-rule", arms, version, quick=quick, say=say)
    ratios = [
        Ratio(f"{split.name}, over one rule", split.rate / whole.rate)
        for whole, *splits in (arms[:3], arms[3:])
        for split in splits
    ]
    notes = []
    for consumers in (1, 2):
        rates = [_read_only(version, consumers, _messages(quick)) for _ in range(_rounds(quick))]
        rate, cpu = median_of([rate for rate, _ in rates]), median_of([used for _, used in rates])
        notes.append(
            f"Read by a bare socket that throws it away, memory, {consumers} consumer{'s'[: consumers - 1]}:"
            f" {rate:,.0f} messages/s, {cpu:.1f} µs of the server's CPU per message."
        )
    return Report(_HEADER, [arm.row() for arm in arms], ratios, notes)


def _messages(quick: bool) -> int:
    return 64_000 if quick else 400_000


def _rounds(quick: bool) -> int:
    return 1 if quick else _ROUNDS


def _play(name: str, arms: Sequence[_Arm], version: str, *, quick: bool, say: Callable[[str], None]) -> None:
    for number in range(1, _rounds(quick) + 1):
        # There and back again, so that a machine that gets slower hits all arms alike.
        for arm in arms if number % 2 else reversed(arms):
            say(f"{name}: round {number} of {_rounds(quick)}, {arm.name}")
            _measure(arm, version, _messages(quick))


def _measure(arm: _Arm, version: str, messages: int) -> None:
    with _streams(version, arm) as server:
        if arm.stored_first:
            _publish(server.port, messages, arm.parts)
        with arrivals(server.port, "bridge.>", messages) as subscriber:
            server_before = cpu_seconds(server.pid)
            with running_bridge(arm.config(server.url)) as program:
                pids = _processes(program)
                before, began = sum(map(cpu_seconds, pids)), time.monotonic()
                if not arm.stored_first:
                    server_before = cpu_seconds(server.pid)
                    _publish(server.port, messages, arm.parts)
                came = subscriber.receive()
                arm.rates.append(messages / (came.last - (came.first if arm.stored_first else began)))
                arm.server_cpu.append((cpu_seconds(server.pid) - server_before) / messages * 1e6)
                if not arm.stored_first:  # else a part of the work was done before it was ready
                    arm.cpu.append((sum(map(cpu_seconds, pids)) - before) / messages * 1e6)
                arm.memory.append(sum(memory_of(pid).now for pid in pids) / 1e6)


@contextmanager
def _streams(version: str, arm: _Arm) -> Iterator[NativeServer]:
    with NativeServer(binary=fetch(version)) as server:
        with RawSocket(server.port) as connection:
            for number in range(1 if arm.one_stream else arm.parts):
                subjects = ["bench.>"] if arm.one_stream else [f"bench.{number}.>"]
                config = {"name": f"BENCH{number}", "subjects": subjects, "storage": arm.storage}
                connection.request(f"$JS.API.STREAM.CREATE.BENCH{number}", config)
        yield server


def _processes(program: Program) -> list[int]:
    lines = (json.loads(line) for line in program.said if '"worker.started"' in line)
    return [program.pid, *(line["pid"] for line in lines)]


def _publish(port: int, messages: int, parts: int) -> None:
    """Publish to `bench.PART.N` in chunks, the parts in turn, as fast as the streams acknowledge."""
    body = b"x" * PAYLOAD
    chunks = [
        b"".join(
            b"PUB bench.%d.%d %b%d\r\n%b\r\n"
            % (part, n % (SUBJECTS // parts), b"_stored " if n == _CHUNK - 1 else b"", PAYLOAD, body)
            for n in range(_CHUNK)
        )
        for part in range(parts)
    ]
    with RawSocket(port) as connection:
        connection.send(b"SUB _stored 1\r\n")
        under_way, tail = 0, b""
        total = messages // _CHUNK
        for number in range(total):
            connection.send(chunks[number % parts])
            under_way += 1
            while under_way >= _WINDOW or (under_way and number + 1 == total):
                data = tail + connection.receive()
                under_way -= data.count(_ACKNOWLEDGEMENT)
                tail = data[-(len(_ACKNOWLEDGEMENT) - 1) :]


def _read_only(version: str, consumers: int, messages: int) -> tuple[float, float]:
    """What consumers with disjoint filters push at full speed: messages/s, and the server's CPU in µs per message."""
    arm = _Arm("", 1, consumers, one_stream=True)
    with _streams(version, arm) as server, ExitStack() as stack:
        _publish(server.port, messages, consumers)
        readers = [
            stack.enter_context(worker(f"reader {part}", _read, server.port, part, messages // consumers))
            for part in range(consumers)
        ]
        for reader in readers:
            reader.receive()
        before = cpu_seconds(server.pid)
        with RawSocket(server.port) as connection:
            for part in range(consumers):
                config = {"deliver_subject": f"read.{part}", "ack_policy": "none", "filter_subject": f"bench.{part}.>"}
                connection.request("$JS.API.CONSUMER.CREATE.BENCH0", {"stream_name": "BENCH0", "config": config})
        times = [reader.receive() for reader in readers]
        took = max(last for _, last in times) - min(first for first, _ in times)
        return messages / took, (cpu_seconds(server.pid) - before) / messages * 1e6


def _read(send: Send, port: int, part: int, messages: int) -> None:
    with RawSocket(port) as connection:
        connection.send(b"SUB read.%d 1\r\n" % part)
        connection.flush()
        send("subscribed")
        sign, count, tail, first = b" $JS.ACK.", 0, b"", 0.0
        while count < messages:
            data = tail + connection.receive()
            first = first or time.monotonic()
            count += data.count(sign)
            tail = data[-(len(sign) - 1) :]
        send((first, time.monotonic()))
