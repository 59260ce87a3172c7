"""Native servers from Debian's packages, downloaded and unpacked without root."""

from __future__ import annotations

from pathlib import Path

from conformance.servers.errors import WayFailedError
from conformance.servers.processes import Report

__all__ = ["unpack"]


def unpack(version: str, folder: Path, report: Report) -> Path:
    """Placeholder."""
    raise WayFailedError("not yet")
