"""What is compared runs in processes of its own: a server, the sidecar, and nats-py as its documentation shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.errors import BenchmarkError
from benchmarks.go_copier.build import built
from benchmarks.raw_socket import RawSocket
from nats_conformance.native_servers import NativeServer, fetch

REPUBLISH: Mapping[str, Any] = {
    "name": "bench",
    "kind": "republish",
    "dialect": "native",
    "stream": "BENCH",
    "republish": {"src": "bench.>", "dest": "bridge.bench.>"},
}
"""The rule of most benchmarks, on the stream of `bench_stream`."""

PATIENT = "max_pending: 1GB\n"
"""For servers: by default they disconnect a subscriber that lags by 64 MB, which is not what is measured."""

_READY_LIMIT = 120.0  # seconds until ready; generous: a million subjects may be learnt before
_STOP_LIMIT = 60.0


@contextmanager
def bench_stream(version: str, *, native: bool) -> Iterator[NativeServer]:
    """A server with the stream BENCH on `bench.>`, in memory; republished natively to `native.bench.>` if wanted."""
    with NativeServer(binary=fetch(version), config=PATIENT) as server:
        config: dict[str, object] = {"name": "BENCH", "subjects": ["bench.>"], "storage": "memory"}
        if native:
            config["republish"] = {"src": "bench.>", "dest": "native.bench.>"}
        with RawSocket(server.port) as connection:
            connection.request("$JS.API.STREAM.CREATE.BENCH", config)
        yield server


@dataclass(slots=True)
class Program:
    """A program that is being measured.

    Attributes:
        pid: its process.
        launched: when, in seconds of the monotonic clock.
        ready: when it reported that it was, or 0.
        said: the lines of its stderr so far.
    """

    pid: int
    launched: float
    ready: float = 0.0
    said: list[str] = field(default_factory=list)

    def logged(self, event: str) -> dict[str, Any]:
        """Return the fields of the first line of its log with this event.

        Raises:
            BenchmarkError: there is none.
        """
        for line in self.said:
            if f'"{event}"' in line:
                found: dict[str, Any] = json.loads(line)
                return found
        raise BenchmarkError(f"process {self.pid} did not log '{event}'")


def configuration(url: str, *rules: Mapping[str, Any], **more: Any) -> str:
    """The sidecar's configuration file (JSON is YAML too).

    Args:
        url: the server of the connection `default`.
        rules: as in the file.
        more: other members, also in place of those that are here.
    """
    document = {
        "connections": {"default": {"servers": [url]}},
        "http": {"listen": ""},
        "log": {"format": "json"},
        "rules": rules,
    }
    return json.dumps(document | more)


@contextmanager
def running_bridge(
    config: str,
    until: str = "sidecar.ready",
    *,
    entry: str = "nats_bridge.cli",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """`nats-bridge run`, stopped at the end.

    Args:
        config: the text of its configuration file, whose log format must be JSON.
        until: the event in its log that is waited for, whose time is the program's `ready`.
        entry: the module whose `main` is the command.
        environment: variables in addition to the present ones.

    Raises:
        BenchmarkError: it ended before that, or did not get there.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "bench.yaml")
        file.write_text(config, "utf-8")
        command = [sys.executable, "-c", f"from {entry} import main; main()", "run", "-c", str(file)]
        with _running("nats-bridge", command, f'"{until}"', environment) as program:
            yield program


@contextmanager
def running_copier(url: str, way: str) -> Iterator[Program]:
    """nats-py copying the stream BENCH to `bridge.bench.>`, ready; stopped at the end.

    Args:
        url: the server.
        way: of `benchmarks.nats_py_copier`.
    """
    with _running("nats-py", [sys.executable, "-m", "benchmarks.nats_py_copier", url, way], "copier ready") as program:
        yield program


@contextmanager
def running_go_copier(url: str, way: str) -> Iterator[Program]:
    """nats.go copying, ready; stopped at the end.

    Args:
        url: the server.
        way: of `benchmarks/go_copier`.

    Raises:
        BenchmarkError: it cannot be built here.
    """
    with _running("nats.go", [str(built()), url, way], "copier ready") as program:
        yield program


@contextmanager
def running_replicator(url: str, program: str) -> Iterator[Program]:
    """Choria's stream-replicator copying the stream BENCH to COPY, ready; stopped at the end.

    Args:
        url: the server.
        program: where the replicator is.

    Raises:
        BenchmarkError: it did not get ready.
    """
    stream = {
        "stream": "BENCH",
        "source_url": url,
        "target_url": url,
        "target_stream": "COPY",
        "no_target_create": True,
    }
    renaming = {"target_subject_prefix": "copy", "target_subject_remove": "bench."}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "replicator.yaml")
        config = {"name": "bench", "state_store": folder, "streams": [{**stream, **renaming}]}
        file.write_text(json.dumps(config), "utf-8")
        command = [program, "replicate", "--config", str(file)]
        with _running("stream-replicator", command, "data copier for BENCH") as running:
            yield running


@contextmanager
def far_wire(url: str, one_way: float) -> Iterator[str]:
    """A wire in a process of its own, see `benchmarks.far_wire`; its URL.

    Args:
        url: the server at its other end.
        one_way: seconds that a byte takes.

    Raises:
        BenchmarkError: it did not start.
    """
    command = [sys.executable, "-m", "benchmarks.far_wire", url, str(one_way)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        near = process.stdout.readline().strip()
        if not near:
            raise BenchmarkError(f"the wire to {url} did not start")
        yield near
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@contextmanager
def _running(
    name: str, command: list[str], sign: str, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    launched = time.monotonic()
    # A session of its own: Ctrl-C in the terminal reaches it through us, in order.
    variables = {**os.environ, **(environment or {})}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=variables)
    program = Program(process.pid, launched)
    seen = threading.Event()
    assert process.stderr is not None
    reader = threading.Thread(target=_read, args=(process.stderr, program, sign, seen), daemon=True)
    try:
        reader.start()
        if not seen.wait(_READY_LIMIT) or not program.ready:
            last = "".join(program.said[-3:]).strip() or "no message"
            raise BenchmarkError(f"{name} did not get ready: {last}")
        yield program
    finally:
        process.terminate()
        try:
            process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stderr.close()


def _read(stderr: IO[str], program: Program, sign: str, seen: threading.Event) -> None:
    # To the end, or a full pipe would stop the program that is measured.
    for line in stderr:
        program.said.append(line)
        if sign in line and not program.ready:
            program.ready = time.monotonic()
            seen.set()
    seen.set()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far.

    Raises:
        BenchmarkError: this is not Linux, or there is no such process.
    """
    fields = _proc(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of memory that a process holds, now and at most so far."""

    now: int
    peak: int

    def cells(self, idle: Memory) -> tuple[str, ...]:
        """Megabytes for a table: now, over what an idle one holds, at most."""
        return tuple(f"{size / 1e6:.0f}" for size in (self.now, self.now - idle.now, self.peak))


def memory_of(pid: int) -> Memory:
    """The resident memory of a process.

    Raises:
        BenchmarkError: this is not Linux, or there is no such process.
    """
    lines = (line.split() for line in _proc(pid, "status").splitlines())
    fields = {words[0]: int(words[1]) * 1024 for words in lines if words[0] in {"VmRSS:", "VmHWM:"}}
    if len(fields) != 2:
        raise BenchmarkError(f"process {pid} has no memory: it has ended")
    return Memory(fields["VmRSS:"], fields["VmHWM:"])


def _proc(pid: int, name: str) -> str:
    if not Path("/proc/self/stat").exists():
        raise BenchmarkError("processes are measured through /proc, which this system lacks: run this one on Linux")
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError as error:
        raise BenchmarkError(f"process {pid}: {error.strerror}") from None
