"""`python -m benchmarks`: run comparisons and print tables and ratios."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version as version_of_package
from pathlib import Path
from typing import Any

from benchmarks import (
    catch_up,
    copy_latency,
    copy_memory,
    distance,
    engine,
    latency,
    live_copying,
    memory,
    peers,
    replicated,
    rules,
    sizes,
    soak,
    startup,
    subjects,
    telemetry,
)
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Report
from benchmarks.go_copier.build import client_version
from nats_conformance.native_servers import ServersError, fetch

_BENCHMARKS: Mapping[str, Any] = {
    "engine": engine,
    "latency": latency,
    "memory": memory,
    "sizes": sizes,
    "subjects": subjects,
    "rules": rules,
    "peers": peers,
    "catch-up": catch_up,
    "live-copying": live_copying,
    "copy-latency": copy_latency,
    "copy-memory": copy_memory,
    "distance": distance,
    "replicated": replicated,
    "telemetry": telemetry,
    "startup": startup,
    "soak": soak,
}
"""Modules by name. `OLDER`, where there is one, are more servers that it starts."""
_WITHOUT_SERVER = frozenset({"engine", "startup"})
_LONG = ("soak",)
"""Run only where they are named."""
_NAMES = tuple(name for name in _BENCHMARKS if name not in _LONG)
_EXIT_MISSED, _EXIT_IMPOSSIBLE, _EXIT_INTERRUPTED = 1, 2, 130


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: `names`, `quick`, `server_version`, `json`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare nats-bridge with native republish and sources and with nats-py, in one run here.",
        epilog="Exit code: 0 every target reached, 1 one missed, 2 something could not be measured."
        " Example: python -m benchmarks sizes latency --quick",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(_NAMES)}; all of these when left out; or {', '.join(_LONG)}",
    )
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds: a few minutes, less exact")
    parser.add_argument("--server-version", default="2.15.3", metavar="V", help="the native server (default: 2.15.3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    parsed = parser.parse_args(given)
    unknown = [name for name in parsed.names if name not in (*_NAMES, *_LONG)]
    if unknown:
        parser.error(f"unknown benchmark '{unknown[0]}': there are {', '.join((*_NAMES, *_LONG))}")
    parsed.names = list(dict.fromkeys(parsed.names)) or list(_NAMES)
    return parsed


def main(given: Sequence[str] | None = None) -> int:
    """Run; 0 when every target was reached, 1 when one was not, 2 when something could not be measured."""
    options = arguments(given)
    # A request to end works as Ctrl-C does: what was started is stopped first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(options)
    except (BenchmarkError, ServersError, OSError) as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return _EXIT_IMPOSSIBLE
    except KeyboardInterrupt:
        sys.stderr.write("benchmarks: interrupted\n")
        return _EXIT_INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    version = options.server_version
    served = [name for name in options.names if name not in _WITHOUT_SERVER]
    # Now, not in the middle of a measurement.
    older = (each for name in served for each in getattr(_BENCHMARKS[name], "OLDER", ()))
    for needed in {version, *older} if served else ():
        fetch(needed)
    environment = {
        "date": str(datetime.date.today()),
        "python": platform.python_version(),
        "nats-server": version,
        "nats-py": version_of_package("nats-py"),
        "nats.go": client_version(),
        "nats-bridge": version_of_package("nats-bridge"),
        "cores": str(os.cpu_count()),
        "machine": f"{platform.system()} {platform.machine()}",
        "quick": "yes" if options.quick else "no",
    }
    print(", ".join(f"{name} {value}" for name, value in environment.items()), flush=True)
    reports: dict[str, Report] = {}
    for name in options.names:
        more = {"version": version} if name in served else {}
        reports[name] = _BENCHMARKS[name].run(**more, quick=options.quick, say=_say)
        print(f"\n## {name}\n\n{reports[name]}", flush=True)
    if options.json:
        found = {name: report.as_dict() for name, report in reports.items()}
        text = json.dumps({"environment": environment, "benchmarks": found}, indent=2, ensure_ascii=False)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n", "utf-8")
    missed = any(ratio.reached is False for report in reports.values() for ratio in report.ratios)
    return _EXIT_MISSED if missed else 0


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
