"""Native servers by way of the Go tool chain, which builds any released version from its module."""

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
    _go("install", f"{MODULE}@v{version}", folder=folder, limit=BUILD_LIMIT, report=report)
    return folder / NAME


def released_versions(folder: Path, report: Report) -> list[str]:
    """Return the versions of the module, including pre-releases. Raise WayFailedError."""
    return _go("list", "-m", "-versions", MODULE, folder=folder, limit=LIST_LIMIT, report=report).split()[1:]


def _go(*words: str, folder: Path, limit: float, report: Report) -> str:
    found = shutil.which("go")
    if found is None:
        raise WayFailedError("there is no Go on PATH")
    # Flags of a project (-mod=vendor) or of a cross build (GOOS) in the environment would fail the build.
    kept = {name: value for name, value in os.environ.items() if name not in {"GOOS", "GOARCH"}}
    environment = {**kept, "GOFLAGS": "", "GOWORK": "off", "GOBIN": str(folder)}
    return run([found, *words], limit=limit, report=report, environment=environment, directory=folder)
