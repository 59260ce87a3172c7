"""The version that a nats-server binary prints: the only accepted proof of it."""

import re
import shutil
import subprocess
from pathlib import Path

from nats_conformance.native_servers.errors import WayFailedError
from nats_conformance.native_servers.versions import canonical

NAME = "nats-server"
_SAYS = re.compile(r"nats-server:\s*v?(\S+)")
_LIMIT = 60.0


def version_of(binary: Path) -> str:
    """Return the version that `binary -v` prints, such as `2.10.27`. Raise WayFailedError without one."""
    try:
        done = subprocess.run(
            [str(binary), "-v"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_LIMIT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WayFailedError(f"{binary} -v: {error}") from error
    matched = _SAYS.search(done.stdout)
    if done.returncode != 0 or matched is None:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise WayFailedError(f"{binary} -v ended with {done.returncode}: {said[0] if said else 'no output'}")
    return matched[1]


def require_version(binary: Path, version: str) -> None:
    """Raise WayFailedError unless `binary` prints exactly `version`."""
    said = version_of(binary)
    if said != canonical(version):
        raise WayFailedError(f"{binary} says it is {said}, wanted {version}")


def on_path() -> Path | None:
    """Return the nats-server that a shell would start, if any."""
    found = shutil.which(NAME)
    return Path(found) if found else None
