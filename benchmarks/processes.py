"""What is compared runs in processes of its own: the sidecar, and nats-py as its documentation shows it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cpu_seconds", "resident_bytes", "running_copier", "running_sidecar"]

_CONFIG = """\
connections:
  default: {{servers: ["{url}"]}}
http: {{listen: ""}}
dialect: native
log: {{format: json}}
rules:
  - name: bench
    kind: republish
    stream: BENCH
    republish: {{src: "bench.>", dest: "bridge.bench.>"}}
    {options}
"""


@contextmanager
def running_sidecar(url: str, options: str = "") -> Iterator[subprocess.Popen[str]]:
    """`nats-bridge run` with one rule on the stream BENCH, ready; stopped at the end.

    Args:
        url: the server.
        options: more lines of the rule, such as `start: first`.

    Raises:
        RuntimeError: it ended instead of getting ready.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "bench.yaml")
        config.write_text(_CONFIG.format(url=url, options=options), "utf-8")
        command = [sys.executable, "-c", "from bridge.cli.entry import main; main()", "run", "-c", str(config)]
        with _running(command, '"sidecar.ready"') as process:
            yield process


@contextmanager
def running_copier(url: str) -> Iterator[subprocess.Popen[str]]:
    """nats-py copying the stream BENCH as `benchmarks/nats_py_copier.py` does, ready; stopped at the end."""
    with _running([sys.executable, "-m", "benchmarks.nats_py_copier", url], "copier ready") as process:
        yield process


@contextmanager
def _running(command: list[str], sign: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if sign in line:
                break
        else:
            raise RuntimeError(f"{command[-1]} ended: {''.join(said)}")
        yield process
    finally:
        process.terminate()
        process.communicate()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory that a process holds at the moment (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no VmRSS: is it still there?")
