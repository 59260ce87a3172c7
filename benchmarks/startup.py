"""The cost of starting: CPU seconds of whole processes, next to an empty Python; the least of several.

`run` is measured until it connects: to a silent socket, at which the process is killed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report
from benchmarks.processes import REPUBLISH, configuration

_BRIDGE = (sys.executable, "-m", "nats_bridge")
_LIMIT = 60.0  # seconds until a process has connected, or ended


def run(*, quick: bool, say: Callable[[str], None]) -> Report:
    """Measure."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.TemporaryDirectory() as folder:
        server.settimeout(_LIMIT)
        quiet, listening = Path(folder, "quiet.yaml"), Path(folder, "listening.yaml")
        url = f"nats://127.0.0.1:{server.getsockname()[1]}"
        quiet.write_text(configuration(url, REPUBLISH), "utf-8")
        listening.write_text(configuration(url, REPUBLISH, http={"listen": "127.0.0.1:0"}), "utf-8")
        measured: tuple[tuple[str, Sequence[str], socket.socket | None, float | None], ...] = (
            ("python -c pass", (sys.executable, "-c", "pass"), None, None),
            ("--help", (*_BRIDGE, "--help"), None, 0.15),
            ("explain", (*_BRIDGE, "explain", "orders.*", "o.$1", "orders.eu"), None, 0.15),
            ("check", (*_BRIDGE, "check", "-c", str(quiet)), None, 0.15),
            ("run, until it connects", (*_BRIDGE, "run", "-c", str(quiet)), server, 0.4),
            ("the same with http.listen", (*_BRIDGE, "run", "-c", str(listening)), server, None),
        )
        least: dict[str, float] = {}
        for number in range(3 if quick else 10):
            say(f"startup: round {number + 1}")
            # Each in every round, so that a busy minute hits all of them.
            for name, command, accepting, _ in measured:
                spent = _cpu_seconds(command, accepting)
                least[name] = min(least.get(name, spent), spent)
    bare = least["python -c pass"]
    rows = [(name, f"{spent * 1000:.0f}", f"{spent / bare:.1f}") for name, spent in least.items()]
    ratios = [
        Ratio(f"{name}, CPU", least[name], wanted, at_most=True, unit="s")
        for name, _, _, wanted in measured
        if wanted is not None
    ]
    return Report(("process", "CPU ms", "times a bare Python"), rows, ratios)


def _cpu_seconds(command: Sequence[str], accepting: socket.socket | None) -> float:
    """User and system time of a process, until it ends or, with a socket, until it connects there."""
    # Compiled files are kept, as they are where the package is installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        if accepting is not None:
            connection, _ = accepting.accept()
            process.kill()
            connection.close()
    except TimeoutError:
        process.kill()
        raise BenchmarkError(f"{' '.join(command)}: did not connect within {_LIMIT:g} s") from None
    finally:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if accepting is None and process.returncode:
        raise BenchmarkError(f"{' '.join(command)}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime
