"""A standalone cluster of pip's PySpark on loopback: a master and two workers, and `spark-submit` to it.

Nothing of it sees this source tree: the nodes' Python knows the libraries of the one that runs the tests, but neither
its working directory nor what is installed there in editable form. What the jobs need of ours they must be sent.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Final

import pyspark

from tests.live.until import LIMIT

PATIENCE: Final = 30 * LIMIT
"""Seconds after which something of a cluster or job that has not happened never will; a busy machine takes minutes."""

_JAVA_OPTIONS: Final = os.environ.get("SPARK_SUBMIT_OPTS", "")
"""What the Makefile starts Java with in tests; here for each node as well."""
_HOME: Final = Path(pyspark.__file__).parent
_MASTER_AT: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Registering worker ")


class Logged:
    """A process whose output is kept in a file, and can be waited for."""

    def __init__(self, command: list[str], log: Path, place: Path, env: dict[str, str]) -> None:
        self.log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT
            )

    @property
    def text(self) -> str:
        """All that was written so far."""
        return self.log.read_text("utf-8", "replace")

    def says(self, pattern: re.Pattern[str], times: int = 1) -> re.Match[str]:
        """The first match, once there are so many of them."""
        end = time.monotonic() + PATIENCE
        while True:
            over = self.process.poll() is not None
            found = list(pattern.finditer(self.text))
            if len(found) >= times:
                return found[0]
            if over or time.monotonic() > end:
                raise AssertionError(f"{self.log.name} has not said {pattern.pattern}:\n{self.text[-3000:]}")
            time.sleep(0.05)

    def close(self) -> None:
        """End it, and whatever it has started."""
        # Those below first, while their line of descent can still be seen.
        family = descendants(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid, began in family:
            if _began(pid) == began:  # no other process that has got its number
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


class Job(Logged):
    """A submitted job."""

    def made(self, file: Path) -> None:
        """Return once it has made a file."""
        end = time.monotonic() + PATIENCE
        while not file.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{self.log.name}: {file.name} has not been made:\n{self.text[-5000:]}")
            time.sleep(0.02)

    def ended(self) -> int:
        """Its exit code, once it is over."""
        return self.process.wait(PATIENCE)


class StandaloneCluster:
    """A master and workers with one core each, started when made.

    Args:
        place: an empty directory for all that they write.
        workers: how many.
    """

    def __init__(self, place: Path, workers: int = 2) -> None:
        self.place = place
        self._jobs = 0
        self._parts: list[Logged] = []
        self.env = self._environment()
        try:
            self.master = self._start("master", "deploy.master.Master", "--port", "0")
            self.url = self.master.says(_MASTER_AT)[1]
            self.workers = [
                self._start(
                    f"worker{number}",
                    "deploy.worker.Worker",
                    *("--port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(place / f"work{number}")),
                    self.url,
                )
                for number in range(workers)
            ]
            self.master.says(_REGISTERED, workers)
        except BaseException:
            self.close()
            raise

    def submit(self, script: Path, *arguments: str, shipped: Path, conf: dict[str, str] | None = None) -> Job:
        """`spark-submit`, from a directory where nothing is.

        Args:
            script: the job's own file.
            arguments: for it.
            shipped: the archive for `--py-files`.
            conf: further settings of Spark.
        """
        self._jobs += 1
        name = f"job{self._jobs}"
        place = self.place / name
        place.mkdir()
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
            **(conf or {}),
        }
        command = [str(_HOME / "bin" / "spark-submit"), "--master", self.url, "--py-files", str(shipped)]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        job = Job([*command, str(script), *arguments], self.place / f"{name}.log", place, self.env)
        self._parts.append(job)
        return job

    def close(self) -> None:
        """End everything."""
        for part in reversed(self._parts):
            part.close()

    def _start(self, name: str, kind: str, *arguments: str) -> Logged:
        command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.{kind}", "--host", "127.0.0.1"]
        part = Logged([*command, "--webui-port", "0", *arguments], self.place / f"{name}.log", self.place, self.env)
        self._parts.append(part)
        return part

    def _environment(self) -> dict[str, str]:
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME", "LANG") if name in os.environ},
            "SPARK_HOME": str(_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.place / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            **dict.fromkeys(("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"), _JAVA_OPTIONS),
            # Its port is a fixed one, and no test asks there.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": str(self._python()),
        }

    def _python(self) -> Path:
        """The nodes' Python: libraries as they are installed, and nothing that a .pth file adds to them."""
        file = self.place / "node-python"
        libraries = ":".join(dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib")))
        file.write_text(
            f'#!/bin/sh\nPYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{libraries}" exec "{sys.executable}" -S "$@"\n'
        )
        file.chmod(0o755)
        return file


def descendants(pid: int) -> list[tuple[int, int]]:
    """All processes below one, each with the time when it began."""
    found = []
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop()):
            found.append((child, _began(child)))
            waiting.append(child)
    return found


def children(pid: int) -> list[int]:
    """The processes that have this one for their parent."""
    numbers = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
    return [number for number in numbers if _stat(number)[1:2] == [str(pid)]]


def command_of(pid: int) -> str:
    """A process's command line; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _began(pid: int) -> int:
    stat = _stat(pid)
    return int(stat[19]) if stat else -1


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold anything: state, parent, …"""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()
