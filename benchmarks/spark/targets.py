"""`python -m benchmarks.spark.targets`: the data source and the jobs on Spark against plain programs, and the targets.

Compared arms take turns, so that a busy minute slows down all of them. The best turn of each arm counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.errors import BenchmarkError
from benchmarks.figures import Ratio, Report
from benchmarks.go_copier.build import built
from benchmarks.spark import arms, plain
from benchmarks.spark.local_jobs import Cost, cost_of
from benchmarks.spark.processes import peak_of_tree, run_job
from benchmarks.spark.scene import CONFIG, SOURCE, Scene, reported_of, scene
from benchmarks.workers import worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_READER, _GO_READER, _NOOP, _PARQUET = (
    "reader without Spark",
    "nats.go, ordered consumer",
    "read, noop",
    "read, Parquet",
)
_PUBLISHER, _WRITE = "nats.go, async publish", "write, own ids"
_BACKFILL, _DIFF = "backfill", "diff of two streams"
_NAMES = ("read", "write", "backfill", "diff")
_WARM_UP = 100_000  # messages
_LARGE = 10_000_000  # messages, which the targets of the jobs are about
_LIMIT = 3600.0  # seconds that one arm may take
_MB = 1 << 20


class Turns:
    """One run: a server with a filled stream, a folder, and what every arm took in each turn.

    Args:
        here: the server.
        folder: for files.
        messages: how many each arm handles.
        cores: for Spark.
    """

    def __init__(self, here: Scene, folder: Path, messages: int, cores: int) -> None:
        self._here, self._folder = here, folder
        self._messages, self._cores = messages, cores
        self._spark: SparkSession | None = None
        self.costs: dict[str, list[Cost]] = {}

    def read(self) -> None:
        """The stream to nowhere and to Parquet, the reader of a task in a plain loop, and nats.go."""
        history = arms.history(self._session(), self._here.url, self._cores, self._messages)
        parquet = str(self._folder / "parquet")
        self._note(_NOOP, _timed(lambda: arms.nowhere(history)))
        with worker(_READER, plain.read_without_spark, self._here.url, self._messages) as asked:
            seconds, cpu = asked.receive(_LIMIT)
        self._note(_READER, Cost(seconds, cpu, 0))
        self._note(_PARQUET, _timed(lambda: history.write.mode("overwrite").parquet(parquet)))
        self._note(_GO_READER, cost_of((str(built()), self._here.url, "read", str(self._messages))))

    def write(self) -> None:
        """Rows with ids into a stream on disk, and the same messages with nats.go."""
        spark, url, publish = self._session(), self._here.url, (str(built()), self._here.url, "publish")
        ways: dict[str, Callable[[], Cost]] = {
            _WRITE: lambda: _timed(lambda: arms.store(spark, url, "ROWS", self._messages, True)),
            _PUBLISHER: lambda: cost_of((*publish, str(self._messages))),
        }
        for arm, cost in ways.items():
            self._here.empty("ROWS", "rows.*")
            self._note(arm, cost())
            self._require("ROWS")
        self._here.remove("ROWS")

    def backfill(self) -> None:
        """The stream through a rule into another stream."""
        config = self._folder / "bench.yaml"
        config.write_text(CONFIG.format(url=self._here.url), "utf-8")
        self._here.empty("COPY", "copy.*")
        self._note(_BACKFILL, self._job("backfill", "-c", str(config), "bench"))
        self._require("COPY")
        self._here.remove("COPY")

    def diff(self) -> None:
        """The stream and the server's mirror of it."""
        if _DIFF not in self.costs:
            self._here.mirror("MIRROR")
        self._note(_DIFF, self._job("diff", SOURCE, "MIRROR", "--server", self._here.url, "--engine", "spark"))

    def _session(self) -> SparkSession:
        spark = self._spark = self._spark or arms.session(self._cores)
        arms.nowhere(arms.history(spark, self._here.url, self._cores, _WARM_UP))  # Spark ends idle workers
        self._here.empty("ROWS", "rows.*")
        arms.store(spark, self._here.url, "ROWS", _WARM_UP, True)
        return spark

    def _job(self, *words: str) -> Cost:
        job = run_job(self._folder, self._cores, *words)
        return Cost(job.seconds, job.cpu, job.peak_bytes / _MB)

    def _require(self, stream: str) -> None:
        if (held := self._here.holds(stream)) != self._messages:
            raise BenchmarkError(f"stream {stream} holds {held} of {self._messages} messages")

    def _note(self, arm: str, cost: Cost) -> None:
        self.costs.setdefault(arm, []).append(cost)
        sys.stderr.write(f"{arm}: {cost.seconds:.1f} s, {cost.cpu:.1f} CPU s\n")
        sys.stderr.flush()


def _timed(work: Callable[[], None]) -> Cost:
    with peak_of_tree() as peak:
        begin = time.monotonic()
        work()
        seconds = time.monotonic() - begin
    return Cost(seconds, peak.cpu, peak.held / _MB)


def report(costs: dict[str, list[Cost]], messages: int) -> Report:
    """The table, and the targets that the measured arms have."""
    rows = []
    rates: dict[str, float] = {}
    for arm, turns in costs.items():
        seconds = [cost.seconds for cost in turns]
        rates[arm] = messages / min(seconds)
        cpu = min(cost.cpu for cost in turns)
        rows.append((arm, f"{min(seconds):.1f}", f"{median(seconds):.1f}", f"{rates[arm]:,.0f}", f"{cpu:.1f}"))
    ratios = []
    if _READER in rates:
        reader = rates[_READER]
        ratios.append(Ratio(f"{_NOOP}, relative to the {_READER}", rates[_NOOP] / reader, 0.9))
        ratios.append(Ratio(f"{_NOOP}, relative to {_GO_READER}", rates[_NOOP] / rates[_GO_READER]))
        wanted = min(180, round(0.7 * reader / 1000, 1))  # either is good
        ratios.append(Ratio(_PARQUET, rates[_PARQUET] / 1000, wanted, unit="thousand/s"))
    if _WRITE in rates:
        ratios.append(Ratio(f"{_WRITE}, relative to {_PUBLISHER}", rates[_WRITE] / rates[_PUBLISHER], 1))
    is_large = messages >= _LARGE
    if _BACKFILL in rates:
        ratios.append(Ratio(_BACKFILL, rates[_BACKFILL] / 1000, 150 if is_large else None, unit="thousand/s"))
    if _DIFF in rates:
        wanted = 45 * messages / _LARGE
        ratios.append(Ratio(_DIFF, messages / rates[_DIFF], wanted if is_large else None, at_most=True, unit="s"))
    return Report(("what", "best, s", "median, s", "per second", "CPU s"), rows, ratios)


def main(given: Sequence[str] | None = None) -> int:
    """Run; 0 when every target was reached, 1 when one was not, 2 when something could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark.targets",
        description="Measure reads, writes and jobs on Spark next to plain programs, against the targets.",
        epilog="Example: python -m benchmarks.spark.targets backfill diff --messages 10000000",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(_NAMES)}; all when left out")
    parser.add_argument("--messages", type=int, default=1_000_000, help="the jobs have targets from 10,000,000 on")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="for Spark")
    parser.add_argument("--server-version", default="2.10.27", metavar="V", help="the native server")
    options = parser.parse_args(given)
    if unknown := [name for name in options.names if name not in _NAMES]:
        parser.error(f"unknown benchmark '{unknown[0]}': there are {', '.join(_NAMES)}")

    def measured() -> Report:
        with scene(options.server_version) as here, tempfile.TemporaryDirectory() as folder:
            here.fill(options.messages)
            turns = Turns(here, Path(folder), options.messages, options.cores)
            for name in options.names or _NAMES:
                for _ in range(options.turns):
                    getattr(turns, name)()
        print(f"{options.messages:,} messages, {options.cores} cores")
        return report(turns.costs, options.messages)

    return reported_of(measured)


if __name__ == "__main__":
    sys.exit(main())
