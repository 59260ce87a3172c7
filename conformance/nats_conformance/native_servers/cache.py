"""The folder with native servers: `servers/<version>/nats-server` below the cache of this program.

A binary appears there whole or not at all (written next to it, then renamed), so a reader needs no lock. Writers
of one version take turns by a file lock, which spares the second one the work.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from nats_conformance.native_servers.binary import NAME
from nats_conformance.native_servers.errors import InvalidVersionError
from nats_conformance.native_servers.versions import Version, canonical, parse


def default_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Return `$NATS_BRIDGE_CACHE`, or else `$XDG_CACHE_HOME/nats-bridge`, or else `~/.cache/nats-bridge`."""
    if own := environment.get("NATS_BRIDGE_CACHE"):
        return Path(own)
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared) / "nats-bridge"
    return Path.home() / ".cache" / "nats-bridge"


class ServerCache:
    """Native servers below `root` (default: `default_root()`)."""

    __slots__ = ("_folder",)

    def __init__(self, root: Path | None = None) -> None:
        self._folder = (default_root() if root is None else root).absolute() / "servers"

    def path(self, version: str) -> Path:
        """Return the path for the binary of `version`."""
        return self._folder / canonical(version) / NAME

    def versions(self) -> list[str]:
        """Return the versions kept, oldest first."""
        found: list[tuple[Version, str]] = []
        for binary in self._folder.glob(f"*/{NAME}"):
            with suppress(InvalidVersionError):
                found.append((parse(binary.parent.name), binary.parent.name))
        return [name for _, name in sorted(found)]

    def keep(self, binary: Path, version: str) -> Path:
        """Copy `binary` into the cache, atomically. Return its new place."""
        place = self.path(version)
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=place.parent)
        os.close(descriptor)
        fresh = Path(name)
        try:
            shutil.copyfile(binary, fresh)
            fresh.chmod(0o755)
            fresh.replace(place)
        finally:
            fresh.unlink(missing_ok=True)
        return place

    @contextmanager
    def turn(self, version: str) -> Iterator[None]:
        """Hold the lock for fetching `version`; other processes wait here until it is released."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f".{version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
