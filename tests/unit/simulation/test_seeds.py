"""Some seeds of the simulation: no promise is broken, and a seed gives the same event log in every process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def simulated(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def digests(shown: str) -> dict[str, str]:
    return dict(re.findall(r"^SEED=(\d+): .* event log (\w+)$", shown, re.MULTILINE))


def test_no_seed_breaks_a_promise_and_each_can_be_replayed() -> None:
    many = simulated("--seeds", "8", "--digests")
    assert many.returncode == 0, many.stdout + many.stderr
    assert len(digests(many.stdout)) == 8
    alone = simulated("--seed", "7")
    assert digests(alone.stdout)["7"] == digests(many.stdout)["7"], "another event log in another process"


def test_what_once_found_something_finds_nothing_any_more() -> None:
    known = simulated("--found")
    assert known.returncode == 0, known.stdout + known.stderr
