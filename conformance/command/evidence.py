"""The evidence of a certified run: everything that is needed to verify it.

In addition to the history and the reports: ``environment.json`` (suite, catalogue, Python, system, servers with the
    checksums
of their binaries) and ``CHECKSUMS``, which ``sha256sum -c`` reads.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["objections", "write_evidence"]

CHECKSUMS = "CHECKSUMS"


def write_evidence(folder: Path, servers: Mapping[str, Path], **run: Any) -> None:
    """Write the environment and the checksums of everything in the folder; ``run`` is written as it is."""
    environment = {
        **run,
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "servers": {version: {"sha256": _checksum(binary)} for version, binary in servers.items()},
    }
    (folder / "environment.json").write_text(json.dumps(environment, indent=2) + "\n", "utf-8")
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != CHECKSUMS)
    lines = [f"{_checksum(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    (folder / CHECKSUMS).write_text("".join(lines), "utf-8")


def objections(counts: Mapping[str, int], *, is_complete: bool, disagreements: int = 0) -> list[str]:
    """Why a run cannot be certified; ``counts`` are those of outcomes, by their names."""
    found = [] if is_complete else ["the run is not complete"]
    for outcome, what in (("fail", "failed"), ("errored", "could not be played"), ("skipped", "were skipped")):
        if counts.get(outcome):
            found.append(f"{counts[outcome]} cases {what}")
    if disagreements:
        found.append(f"{disagreements} random comparisons disagree")
    return found


def _checksum(file: Path) -> str:
    with file.open("rb") as binary:
        return hashlib.file_digest(binary, "sha256").hexdigest()
