"""A failing seed is shrunk to the faults that matter, and replayed exactly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import Replay

ROOT = Path(__file__).resolve().parents[3]


def with_defect(*options: str) -> str:
    """What the simulation of a sidecar prints that loses a message after each reconnect."""
    command = [sys.executable, "-m", "tests.unit.simulation.planted_defect", *options]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, env=environment)
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stdout


def found(shown: str) -> list[tuple[str, str]]:
    """The violations, and the event log's hash, of each run."""
    return re.findall(r"^SEED=.* event log (\w+)\n((?:  \S.*: .*\n)+)", shown, re.MULTILINE)


@pytest.mark.exhaustive  # many runs, and only the simulation's own tool is at stake
def test_one_fault_is_left_and_breaks_the_same_promise_again() -> None:
    shown = with_defect("--seed", "6", "--shrink", "14")
    before, found_one, smallest = shown.partition("  with 1 of ")
    assert found_one, before[-3000:]
    [number] = re.findall(r"make simulate SEED=6 KEEP=(\d+)\n", smallest)
    assert re.search(r"power cut|connections reset|server killed|network cut", smallest), "what makes it reconnect"
    again = with_defect("--seed", "6", "--keep", number, "--shrink", "0")
    [(_, violations)] = found(again)
    assert "lost" in violations
    assert violations.strip() in smallest
    assert with_defect("--seed", "6", "--keep", number, "--shrink", "0").splitlines()[:-1] == again.splitlines()[:-1]


@pytest.mark.parametrize("replay", [Replay(7), Replay(7, (3, 7)), Replay(7, ()), Replay(7, (1,), turn=2, minutes=0.5)])
def test_what_is_printed_can_be_a_line_of_the_file(replay: Replay) -> None:
    assert Replay.parse(str(replay)) == replay
