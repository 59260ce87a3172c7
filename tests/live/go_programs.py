"""Builds the Go programs of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def go_program(folder: str, directory: Path) -> Path:
    """Build the program in a folder of the repository, and return it."""
    go = shutil.which("go")
    assert go is not None, f"this test builds {folder}: install Go (go.dev/dl), and put it on PATH"
    # As servers are built: what both have in common is compiled once.
    environment = {**os.environ, "GOFLAGS": "", "GOWORK": "off"}
    program = directory / Path(folder).name
    command = [go, "build", "-buildvcs=false", "-o", str(program), "."]
    place = REPOSITORY / folder
    built = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program
