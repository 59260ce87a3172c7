"""Native servers by way of the Go tool chain, which builds any released version from its module."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from nats_conformance.native_servers.binary import NAME
from nats_conformance.native_servers.errors import WayFailedError
from nats_conformance.native_servers.processes import Report, run

MODULE = "github.com/nats-io/nats-server/v2"
BUILD_LIMIT = 900.0
LIST_LIMIT = 60.0


def build(version: str, folder: Path, report: Report) -> Path:
    """Build `version` into `folder`, and return the binary. Raise WayFailedError."""
    report(f"go install {MODULE}@v{version}")
    run(
        [_go(), "install", f"{MODULE}@v{version}"],
        limit=BUILD_LIMIT,
        report=report,
        environment=_environment(GOBIN=str(folder)),
        directory=folder,
    )
    return folder / NAME


def released_versions(folder: Path, report: Report) -> list[str]:
    """Return the versions of the module, including pre-releases. Raise WayFailedError."""
    listed = run(
        [_go(), "list", "-m", "-versions", MODULE],
        limit=LIST_LIMIT,
        report=report,
        environment=_environment(),
        directory=folder,
    )
    return listed.split()[1:]


def _go() -> str:
    found = shutil.which("go")
    if found is None:
        raise WayFailedError("there is no Go on PATH")
    return found


def _environment(**extra: str) -> dict[str, str]:
    # Flags of a project (-mod=vendor) or of a cross build (GOOS) in the environment would fail the build.
    kept = {name: value for name, value in os.environ.items() if name not in {"GOOS", "GOARCH", "GOFLAGS"}}
    return {**kept, "GOFLAGS": "", "GOWORK": "off", **extra}
