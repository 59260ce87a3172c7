"""Scratch copies of the repository, and what the tests say in one with a defect planted.

A copy stands first on the path of pytest and of every process that it starts, in front of the installed program.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.defects import Defect, DefectError

ROOT = Path(__file__).parents[2]
_ENDED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", re.MULTILINE)
_PASSED, _FAILED = 0, 1
_PLUGIN = "first_failure"
_LONGEST = 300  # seconds for a test that hangs, which is a way to find a defect


@dataclass(frozen=True, slots=True)
class Trial:
    """What the tests said of a defect.

    Attributes:
        defect: the defect.
        found_by: the node id of the test that failed; empty if all passed.
        seconds: how long that took.
    """

    defect: Defect
    found_by: str
    seconds: float


class Scratch:
    """A copy of the repository to plant defects in, one at a time.

    Args:
        revision: of what to make it; None for the working tree, with what is not committed.
        number: which of several that run at the same time: each has server ports of its own.
        count: how many these are.
    """

    def __init__(self, revision: str | None, number: int = 0, count: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._pytest: subprocess.Popen[str] | None = None
        self._ports = {"PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": str(count)}
        if revision is None:
            _copy_working_tree(self.folder)
        else:
            _unpack(revision, self.folder)
        # A revision may not have it yet.
        shutil.copy2(Path(__file__).with_name(f"{_PLUGIN}.py"), self.folder)

    def stop(self) -> None:
        """Kill the tests that run in it, with the servers that they started: Ctrl-C does not reach them."""
        if self._pytest is not None and self._pytest.poll() is None:
            os.killpg(self._pytest.pid, signal.SIGKILL)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.folder)

    def unchanged(self, tests: Sequence[str]) -> list[str]:
        """Those of some tests that fail without any defect.

        Raises:
            DefectError: pytest cannot run them.
        """
        return self._failing(self._there(tests), "the unchanged tree")

    def trial(self, defect: Defect) -> Trial:
        """Plant a defect, run its tests until one fails, and take it out again.

        Raises:
            DefectError: it cannot be planted, or pytest cannot run its tests.
        """
        path = self.folder / defect.file
        right, times = path.read_text("utf-8"), path.stat()
        _forget_byte_code(path)
        path.write_text(defect.planted(right), "utf-8")
        began = time.monotonic()
        try:
            failing = self._failing(self._there(defect.tests), defect.id, "--exitfirst")
        finally:
            _forget_byte_code(path)
            path.write_text(right, "utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return Trial(defect, failing[0] if failing else "", time.monotonic() - began)

    def _there(self, tests: Sequence[str]) -> list[str]:
        """Those of some tests that this revision has: others were written later."""
        return [test for test in tests if self._has(*test.partition("[")[0].split("::"))]

    def _has(self, file: str, function: str = "") -> bool:
        path = self.folder / file
        return path.exists() and f"def {function}" in path.read_text("utf-8")

    def _failing(self, tests: Sequence[str], what: str, *options: str) -> list[str]:
        if not tests:
            return []
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        process = self._pytest = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", _PLUGIN, f"--timeout={_LONGEST}", *options, *tests],
            cwd=self.folder,
            env=environment | self._ports | {"PYTHONPATH": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            # One test more than there are: pytest cannot end every test that hangs.
            output, errors = process.communicate(timeout=_LONGEST * (len(tests) + 1))
        except subprocess.TimeoutExpired:
            self.stop()
            process.communicate()
            return [f"{tests[0]} (hangs)"]
        if process.returncode not in (_PASSED, _FAILED):
            raise DefectError(f"{what}: pytest ends with {process.returncode}:\n{output[-3000:]}{errors[-1000:]}")
        failing = _ENDED.findall(output)
        if bool(failing) != (process.returncode == _FAILED):
            raise DefectError(f"{what}: pytest names no test that failed:\n{output[-3000:]}")
        return failing


def _copy_working_tree(folder: Path) -> None:
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode()
    for name in filter(None, listed.split("\0")):
        if (source := ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)


def _unpack(revision: str, folder: Path) -> None:
    archive = folder.with_suffix(".tar")
    try:
        archive.write_bytes(_git("archive", "--format=tar", revision))
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    finally:
        archive.unlink(missing_ok=True)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.PIPE).stdout


def _forget_byte_code(path: Path) -> None:
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        cached.unlink()
