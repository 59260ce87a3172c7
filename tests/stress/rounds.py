"""One round: pytest once, with a process that stops those of the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TAIL = 60
_ENDS = 60.0  # seconds that interrupted tests have to end their servers


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round came to."""

    passed: bool
    seed: int
    stops: int
    output: Path

    @property
    def summary(self) -> str:
        """The last line that pytest printed."""
        return self.tail(1).strip("= ")

    def tail(self, lines: int = _TAIL) -> str:
        """The end of the output."""
        return "\n".join(self.output.read_text("utf-8", "replace").splitlines()[-lines:])


def play(tests: Sequence[str], *, seed: int, stops: bool, report: Path) -> Outcome:
    """Run the tests once; the output and the list of stops are in `report`, until the next round."""
    output, stopped, lock = (report.absolute() / name for name in ("output.txt", "stops.txt", "lock"))
    lock.touch()
    stopped.write_text("")
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "tests.stress.unstoppable", f"--stops-lock={lock}"]
    with output.open("wb") as printed, stopped.open("wb") as listed:
        # In sessions of their own: Ctrl-C comes to us alone, and we interrupt the tests once.
        pytest = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stopper = None
        try:
            if stops:
                stopper = _stopper(pytest.pid, seed, lock, listed)
            code = pytest.wait()
        finally:
            _end(pytest)
            if stopper is not None and stopper.wait():  # it ends with pytest
                raise RuntimeError(f"the process that stops others ended with {stopper.returncode}")
    return Outcome(code == 0, seed, len(stopped.read_text().splitlines()), output)


def _stopper(pid: int, seed: int, lock: Path, listed: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.stress.stopper", str(pid), str(seed), str(lock)]
    return subprocess.Popen(command, cwd=ROOT, stdout=listed, start_new_session=True)  # type: ignore[call-overload, no-any-return]


def _end(pytest: subprocess.Popen[bytes]) -> None:
    if pytest.poll() is not None:
        return
    pytest.send_signal(signal.SIGINT)
    try:
        pytest.wait(_ENDS)
    except subprocess.TimeoutExpired:
        os.killpg(pytest.pid, signal.SIGKILL)
        pytest.wait()
