"""`python -m benchmarks.spark`: measure the pipelines, print a table with ratios, draw cost against size."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version as version_of_package
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report
from benchmarks.spark import arms, plain
from benchmarks.spark.figures import Figure, draw, slope
from benchmarks.spark.processes import run_job
from benchmarks.spark.scene import CONFIG, Scene, reported_of, scene
from benchmarks.workers import worker

_ARMS = ("read", "write", "transform", "backfill", "diff")
_PLAIN = 200_000  # messages for nats-py: it is slow, and as slow with more
_DIFFED = 5  # million a side, whatever else is measured
_LIMIT = 3600.0  # seconds that one arm may take
_GIB = 1 << 30


class Measuring:
    """One run: a server, a folder, and the figures so far.

    Args:
        here: the server.
        folder: for files.
        sizes: numbers of messages.
        cores: numbers of cores.
    """

    def __init__(self, here: Scene, folder: Path, sizes: Sequence[int], cores: Sequence[int]) -> None:
        self._here, self._folder = here, folder
        self._sizes, self._cores = sizes, cores
        self.figures: list[Figure] = []

    def read(self) -> None:
        """The data source, nats-py in Spark, nats-py alone."""
        for size in self._sizes:
            self._here.fill(size)
            for cores in self._cores:
                self._spark("read", size, cores, arms.read, self._here.url, size, cores)
                if size == self._sizes[0]:
                    few = min(size, _PLAIN)
                    self._spark(
                        "read, nats-py in Spark", few, cores, arms.read_with_nats_py, self._here.url, few, cores
                    )
        self._loop("read, nats-py in a loop", plain.read_loop, self._here.url, min(self._sizes[0], _PLAIN))

    def write(self) -> None:
        """Rows with ids into a stream on disk; what the server takes at most; nats-py's asynchronous publishing."""
        for size in self._sizes:
            for cores in self._cores:
                for name, own_ids in (("write, own ids", True), ("write", False)):
                    self._here.empty("ROWS", "rows.*")
                    self._spark(name, size, cores, arms.write, self._here.url, "ROWS", size, cores, own_ids)
        self._here.empty("ROWS", "rows.*")
        self._loop("write, bytes made before", plain.publish_ready_made, self._here.url, self._sizes[0])
        few = min(self._sizes[0], _PLAIN)
        self._here.empty("LOOP", "loop.*")
        self._loop("write, nats-py in a loop", plain.publish_loop, self._here.url, few, "loop")
        for stream in ("ROWS", "LOOP"):
            self._here.remove(stream)

    def transform(self) -> None:
        """A column of subjects: tokens in another order; a partition."""
        ways = {
            "transform": ("orders.*.*", "eu.{{wildcard(2)}}.{{wildcard(1)}}"),
            "transform, partition": ("orders.*.*", "{{partition(8,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"),
        }
        for size in self._sizes:
            place = self._folder / "subjects"
            self._ask("subjects", arms.make_subjects, place, size)
            for cores in self._cores:
                for name, (src, dest) in ways.items():
                    self._spark(name, size, cores, arms.transform, place, src, dest, size, cores)

    def backfill(self) -> None:
        """A stream's history through a rule into another stream."""
        config = self._folder / "bench.yaml"
        config.write_text(CONFIG.format(url=self._here.url), "utf-8")
        for size in self._sizes:
            self._here.fill(size)
            for cores in self._cores:
                runs = []
                for _ in range(2):
                    self._here.empty("COPY", "copy.*")
                    runs.append(run_job(self._folder, cores, "backfill", "-c", str(config), "bench"))
                    if (held := self._here.holds("COPY")) != size:
                        raise BenchmarkError(f"backfill: the target holds {held} of {size} messages")
                best = min(runs)
                self._record(Figure("backfill", size, cores, best.seconds, best.peak_bytes, runs[0].seconds))
        self._here.remove("COPY")

    def diff(self) -> None:
        """Two captures with two thousand planted differences."""
        left, right = self._folder / "left", self._folder / "right"
        for size in sorted({*self._sizes, _DIFFED * 1_000_000} if max(self._sizes) >= 1_000_000 else self._sizes):
            self._ask("captures", arms.make_captures, left, right, size)
            for cores in self._cores:
                words = ("diff", str(left), str(right), "--by", "sequence")
                job = run_job(self._folder, cores, *words, exits=(1,))
                self._record(Figure("diff", size, cores, job.seconds, job.peak_bytes))

    def _spark(self, arm: str, messages: int, cores: int, work: Callable[..., None], *arguments: object) -> None:
        seconds, peak, first = self._ask(arm, work, *arguments)
        self._record(Figure(arm, messages, cores, seconds, peak, first))

    def _loop(self, arm: str, work: Callable[..., None], url: str, messages: int, *more: object) -> None:
        self._record(Figure(arm, messages, 1, self._ask(arm, work, url, messages, *more)))

    def _ask(self, name: str, work: Callable[..., None], *arguments: object) -> Any:
        with worker(name, work, *arguments) as asked:
            return asked.receive(_LIMIT)

    def _record(self, figure: Figure) -> None:
        self.figures.append(figure)
        sys.stderr.write(
            f"{figure.arm}: {figure.messages:,} on {figure.cores}: {figure.seconds:.1f} s, {figure.rate:,.0f}/s\n"
        )
        sys.stderr.flush()


def report(figures: Sequence[Figure]) -> Report:
    """The table, and the promised figures on two cores next to the measured ones."""
    rows = [
        (
            f.arm,
            f"{f.messages:,}",
            str(f.cores),
            f"{f.first_seconds:.1f}" if f.first_seconds else "-",
            f"{f.seconds:.1f}",
            f"{f.rate:,.0f}",
            f"{f.peak_bytes / _GIB:.1f}",
        )
        for f in figures
    ]
    ratios = []
    two = [figure for figure in figures if figure.cores == 2]
    for arm, wanted in {"read": 420_000, "write": 180_000, "transform": 3_000_000, "backfill": 110_000}.items():
        if rates := [figure.rate for figure in two if figure.arm == arm]:
            ratios.append(Ratio(f"{arm}, 2 cores, best", max(rates) / 1000, wanted / 1000, unit="thousand/s"))
    ours = [f for f in two if f.arm == "read"]
    theirs = [f for f in two if f.arm == "read, nats-py in Spark"]
    if ours and theirs:
        ratios.append(Ratio("read, relative to nats-py in Spark", ours[0].rate / theirs[0].rate, 5))
    for figure in two:
        if figure.arm == "diff" and figure.messages == _DIFFED * 1_000_000:
            ratios.append(Ratio("diff, 5,000,000 a side", figure.seconds, 30, at_most=True, unit="s"))
            ratios.append(Ratio("diff, peak memory", figure.peak_bytes / _GIB, 4, at_most=True, unit="GiB"))
    for arm in dict.fromkeys(figure.arm for figure in two):
        grown = slope([figure for figure in two if figure.arm == arm])
        ratios += [] if grown is None else [Ratio(f"{arm}, cost per message, largest size to smallest", grown)]
    return Report(("what", "messages", "cores", "first, s", "best, s", "per second", "peak GiB"), rows, ratios)


def main(given: Sequence[str] | None = None) -> int:
    """Run; 0 when every target was reached, 1 when one was not, 2 when something could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark",
        description="Measure the data source and the jobs on Spark, and nats-py, in one run here.",
        epilog="Example: python -m benchmarks.spark read write --sizes 100000,1000000 --plot cost.png",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(_ARMS)}; all when left out")
    parser.add_argument("--sizes", type=_numbers, default=[1_000_000, 10_000_000], help="numbers of messages")
    parser.add_argument("--cores", type=_numbers, default=[1, 2], help="numbers of cores for Spark")
    parser.add_argument("--server-version", default="2.10.27", metavar="V", help="the native server")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to a file as well")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw cost against size (.png or .svg)")
    options = parser.parse_args(given)
    if unknown := [name for name in options.names if name not in _ARMS]:
        parser.error(f"unknown benchmark '{unknown[0]}': there are {', '.join(_ARMS)}")
    environment = {
        "date": str(datetime.date.today()),
        "python": platform.python_version(),
        "pyspark": version_of_package("pyspark"),
        "nats-server": options.server_version,
        "nats-py": version_of_package("nats-py"),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    caption = ", ".join(f"{name} {value}" for name, value in environment.items())
    print(caption, flush=True)

    def measured() -> Report:
        with scene(options.server_version) as here, tempfile.TemporaryDirectory() as folder:
            measuring = Measuring(here, Path(folder), sorted(options.sizes), sorted(options.cores))
            for name in options.names or _ARMS:
                getattr(measuring, name)()
        if options.json:
            reported = {"environment": environment, "figures": [figure.as_dict() for figure in measuring.figures]}
            options.json.write_text(json.dumps(reported, indent=2) + "\n", "utf-8")
        if options.plot:
            draw(measuring.figures, options.plot, cores=max(options.cores), caption=caption)
        return report(measuring.figures)

    return reported_of(measured)


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("numbers from 1 on")
    return numbers


if __name__ == "__main__":
    sys.exit(main())
