"""Running a foreign command with a time limit, its output handed on line by line while it works."""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nats_conformance.native_servers.errors import WayFailedError

Report = Callable[[str], None]

HEARTBEAT = 15.0
"""Seconds of silence after which a command is reported to be still running."""


def run(
    command: Sequence[str],
    *,
    limit: float,
    report: Report,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Run `command` and return its stdout. Its stderr lines are passed to `report` as they come.

    `limit` is in seconds. Raises WayFailedError if the command is missing, fails (with its last line), or takes longer;
    it is then ended together with its child processes.
    """
    complaints: list[str] = []

    def read_errors() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if text := line.strip():
                complaints.append(text)
                report(text)

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                cwd=directory,
                start_new_session=True,
            )
        except OSError as error:
            raise WayFailedError(f"{command[0]}: {error.strerror}") from error
        with process:
            reader = threading.Thread(target=read_errors, daemon=True)
            reader.start()
            try:
                _await_end(process, command, limit, report)
            finally:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                reader.join()
        if process.returncode != 0:
            last = complaints[-1] if complaints else "no message"
            raise WayFailedError(f"{command[0]} ended with {process.returncode}: {last}")
        output.seek(0)
        return output.read()


def _await_end(process: subprocess.Popen[str], command: Sequence[str], limit: float, report: Report) -> None:
    waited = 0.0
    while True:
        pause = min(HEARTBEAT, limit - waited)
        if pause <= 0:
            raise WayFailedError(f"{command[0]} took longer than {limit:g} s and was ended")
        try:
            process.wait(timeout=pause)
        except subprocess.TimeoutExpired:
            waited += pause
            report(f"{command[0]}: still running after {waited:.0f} s")
        else:
            return
