"""Plays one version in processes: the catalogue, the random comparisons and the live tests, some at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nats_conformance.native_servers.processes import Report
from tests.follow.newer import Step

SEEDS = range(1, 6)
"""Of the random comparisons."""

TEST_SERVER = "NATS_BRIDGE_TEST_SERVER"
"""The environment variable by which live tests run on one version; see tests/live/tiers.py."""

_AT_ONCE = 2
# These two play the catalogue and the random comparisons, as the other parts do.
_LEFT_OUT = ("test_catalogue.py", "test_differential.py")
_LIMIT = 1800.0
"""Seconds until a part that has not ended is taken for a hanging one."""
_GRACE = 20.0
"""Seconds in which an interrupted part ends its servers."""


@dataclass(frozen=True, slots=True)
class Part:
    """A process.

    Attributes:
        result: the file that it writes, whatever it finds.
        environment: in addition to ours.
    """

    name: str
    command: Sequence[str]
    result: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """The file that holds its output."""
        return self.result.with_suffix(".log")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the parts of a step are.

    Attributes:
        waiting: names of the parts that have not ended.
        broken: by name, why a part has no result.
    """

    waiting: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)


def catalogue_part(version: str) -> str:
    """The name of the part that plays the catalogue on a version."""
    return f"catalogue on {version}"


def history_of(folder: Path, version: str) -> Path:
    """The history of the catalogue on a version."""
    return folder / version / "catalogue" / "history.jsonl"


def parts(step: Step, folder: Path) -> list[Part]:
    """The parts of a step whose results are not there yet; the longest one first."""
    python, own = (sys.executable, "-m"), folder / step.version
    conform = (str(Path(sys.executable).with_name("nats-conform")), "run")
    live = own / "live.xml"
    left_out = (f"--ignore=tests/live/conformance/{name}" for name in _LEFT_OUT)
    processes = ("--numprocesses", "3", "--dist", "worksteal")
    found = [
        Part(
            "live tests",
            (*python, "pytest", "-q", "tests/live", *left_out, *processes, f"--junit-xml={live}"),
            live,
            {TEST_SERVER: step.version},
        )
    ]
    for version in (step.previous, step.version):
        history = history_of(folder, version)
        asked = ("--versions", version, "--subjects", "native,engine", "--report", str(history.parent))
        found.append(Part(catalogue_part(version), (*conform, *asked), history))
    for seed in SEEDS:
        file = own / f"seed-{seed}.json"
        asked = ("--versions", step.version, "--seed", str(seed), "--json", str(file))
        found.append(Part(f"random comparisons, seed {seed}", (*python, "tests.differential", *asked), file))
    return [part for part in found if not part.result.exists()]


async def play(found: Sequence[Part], report: Report, ended: Callable[[Progress], None]) -> None:
    """Run parts, some at the same time; all are ended if this is cancelled.

    Args:
        found: the parts.
        report: gets a line for each part that ended.
        ended: called after each part.
    """
    turns = asyncio.Semaphore(_AT_ONCE)
    waiting = [part.name for part in found]
    broken: dict[str, str] = {}

    async def one(part: Part) -> None:
        async with turns:
            reason = await _run(part, report)
        waiting.remove(part.name)
        if reason:
            broken[part.name] = reason
        ended(Progress(tuple(waiting), dict(broken)))

    async with asyncio.TaskGroup() as group:
        for part in found:
            group.create_task(one(part))


async def _run(part: Part, report: Report) -> str:
    part.result.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with part.log.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *part.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **part.environment},
            start_new_session=True,  # one interruption of ours is enough
        )
        try:
            async with asyncio.timeout(_LIMIT):
                code = await process.wait()
        except TimeoutError:
            code = None
        finally:
            await _ended(process)
    report(f"{part.name}: {time.monotonic() - began:.0f} s")
    if code in (0, 1) and part.result.exists():
        return ""
    last = (part.log.read_text("utf-8", "replace").strip().splitlines() or ["no output"])[-1]
    return f"it took longer than {_LIMIT:.0f} s" if code is None else f"it ended with {code}: {last}"


async def _ended(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE):
                    await process.wait()
