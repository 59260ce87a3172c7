"""`python -m benchmarks`: run comparisons and print tables and ratios."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks import engine, latency, memory, throughput
from benchmarks.figures import Ratio

_Benchmark = Callable[..., tuple[str, list[Ratio]]]
_LIVE: dict[str, _Benchmark] = {"throughput": throughput.run, "latency": latency.run, "memory": memory.run}
_NAMES = ("engine", *_LIVE)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare nats-bridge with native republish and with nats-py, in one run on this machine.",
        epilog="Example: python -m benchmarks throughput latency --quick",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(_NAMES)}; all when left out")
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds: under a minute, less exact")
    parser.add_argument("--server-version", default="2.15.1", metavar="V", help="the native server (default: 2.15.1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the ratios to a file as well")
    parsed = parser.parse_args(given)
    unknown = [name for name in parsed.names if name not in _NAMES]
    if unknown:
        parser.error(f"unknown benchmark '{unknown[0]}': there are {', '.join(_NAMES)}")
    parsed.names = parsed.names or list(_NAMES)
    return parsed


def main() -> int:
    """Run; 0 when every target was reached, 1 when not."""
    options = arguments()
    print(
        f"{datetime.date.today()}, Python {platform.python_version()}, nats-server {options.server_version},"
        f" {os.cpu_count()} cores, {platform.machine()}"
    )
    everything: list[Ratio] = []
    for name in options.names:
        print(f"\n## {name}\n", flush=True)
        if name == "engine":
            _say("engine")
            text, ratios = engine.run(quick=options.quick)
        else:
            text, ratios = _LIVE[name](options.server_version, quick=options.quick, say=_say)
        _say("")
        print(text + "\n")
        for ratio in ratios:
            print(ratio, flush=True)
        everything += ratios
    if options.json:
        options.json.write_text(json.dumps([asdict(ratio) for ratio in everything], indent=2) + "\n", "utf-8")
    return 0 if all(ratio.reached is not False for ratio in everything) else 1


def _say(what: str) -> None:
    """Progress, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{what}")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
