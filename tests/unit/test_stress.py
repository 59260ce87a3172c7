"""`python -m tests.stress`: rounds until one fails, and what it leaves behind."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stress.busy import busy_loops

pytestmark = pytest.mark.exhaustive  # each starts several processes, and only the tests' own tool is at stake

ROOT = Path(__file__).parents[2]
LIMIT = 120
"""Seconds until something counts as hung."""


@pytest.fixture
def case(tmp_path: Path) -> list[str]:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --disable-plugin-autoload\nmarkers = unstoppable: here\n")
    report, case = tmp_path / "report", tmp_path / "test_case.py"
    return [sys.executable, "-m", "tests.stress", f"--report={report}", "--busy=0", str(case)]


def _play(command: list[str], *more: str) -> tuple[int, str]:
    done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert not done.stderr
    return done.returncode, done.stdout


def test_as_many_rounds_as_asked_for(case: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_case.py").write_text("def test_it(): pass\n\ndef test_other(): 1 / 0")
    code, out = _play(case, "-k", "test_it", "--times", "2", "--seed", "7")
    assert code == 0
    lines = out.splitlines()
    assert [line.partition(" stops")[0].rpartition(",")[0] for line in lines] == [
        "round 1 of 2: passed, seed 7",
        "round 2 of 2: passed, seed 8",
    ]
    assert all("1 passed, 1 deselected" in line for line in lines)


def test_the_first_failure_is_the_last_round(case: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_case.py").write_text(
        "from pathlib import Path\n\n"
        "def test_it():\n"
        "    rounds = Path(__file__).with_name('rounds')\n"
        "    with rounds.open('a') as more: more.write('x')\n"
        "    assert rounds.read_text() != 'xx', 'the second time'\n"
    )
    code, out = _play(case, "--times", "9", "--seed", "7", "--no-stops")
    assert code == 1
    assert out.splitlines()[0].startswith("round 1 of 9: passed, seed 7, 0 stops, ")
    assert out.splitlines()[1].startswith("round 2 of 9: FAILED, seed 8, 0 stops, ")
    assert "round 3" not in out
    assert "the second time" in out
    assert out.splitlines()[-1].endswith(" --seed=8 --no-stops")
    assert "the second time" in (tmp_path / "report" / "output.txt").read_text()


def test_nothing_to_run_is_no_success(case: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_case.py").write_text("")
    assert _play(case)[0] == 1
    assert subprocess.run(case[:-1], cwd=ROOT, capture_output=True, timeout=LIMIT).returncode == 2


def test_processes_of_a_test_are_stopped_and_continued(case: list[str], tmp_path: Path) -> None:
    # waitid reports the stop of a child, and that it was continued: the test waits for both.
    (tmp_path / "test_case.py").write_text(
        "import os, subprocess\n\n"
        "def test_it():\n"
        "    child = subprocess.Popen(['sleep', '1000'])\n"
        "    os.waitid(os.P_PID, child.pid, os.WSTOPPED)\n"
        "    os.waitid(os.P_PID, child.pid, os.WCONTINUED)\n"
        "    child.kill()\n"
        "    child.wait()\n"
    )
    code, out = _play(case, "--times", "1")
    assert code == 0, out
    # Named as its parent, where it was stopped before it became sleep.
    assert re.fullmatch(r"\d+ (sleep|py\S*) \d+ ms", (tmp_path / "report" / "stops.txt").read_text().splitlines()[0])


def test_an_unstoppable_test_holds_off_the_stops(case: list[str], tmp_path: Path) -> None:
    # No time to wait for shows that nothing happens: so what would stop something is seen to be kept from it.
    (tmp_path / "test_case.py").write_text(
        "import fcntl, os, pathlib, pytest\n\n"
        "@pytest.fixture\n"
        "def lock(): return open(pathlib.Path(__file__).parent / 'report' / 'lock')\n\n"
        "@pytest.mark.unstoppable\n"
        "def test_it(lock):\n"
        "    with pytest.raises(BlockingIOError):\n"
        "        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "    lock.close()\n\n"
        "def test_then(lock):\n"
        "    fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "    lock.close()\n"
    )
    code, out = _play(case, "--times", "1")
    assert code == 0, out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_with_all_that_it_started(case: list[str], tmp_path: Path, number: signal.Signals) -> None:
    ended = tmp_path / "ended"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)
        (tmp_path / "test_case.py").write_text(
            "import pathlib, socket, threading\n\n"
            "def test_it():\n"
            "    try:\n"
            f"        socket.create_connection({listener.getsockname()!r}).close()\n"
            "        threading.Event().wait()\n"
            "    finally:\n"
            f"        pathlib.Path({str(ended)!r}).touch()\n"
        )
        process = subprocess.Popen([*case, "--busy=2"], cwd=ROOT, start_new_session=True)
        with process:
            listener.accept()[0].close()
            started = set(_below(process.pid))
            process.send_signal(number)
            assert process.wait(LIMIT) == 130
    assert len(started) == 4  # with pytest and who stops processes
    assert ended.exists()
    assert not [pid for pid in started if _runs(pid)]


def test_busy_loops_end_with_the_block() -> None:
    with contextlib.suppress(ZeroDivisionError), busy_loops(2) as loops:
        assert len(loops) == 2
        assert all(_runs(pid) for pid in loops)
        _ = 1 / 0
    assert not any(_runs(pid) for pid in loops)


def _below(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
