"""Getting a native server of a wanted version, from wherever one can be had.

Ways are tried in a fixed order: PATH, the cache, Go, Debian's packages. The version of every result is checked before
use. A server that was built or downloaded goes into the cache.

Python packages with a server's binary exist, and none is used. Third parties build them from the sources, so the
project's checksums do not fit, and they lack most of the versions that the suite tests.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nats_conformance.native_servers import debian, go_build
from nats_conformance.native_servers.binary import on_path, require_version, version_of
from nats_conformance.native_servers.cache import ServerCache
from nats_conformance.native_servers.errors import ServerNotFoundError, ServersError, WayFailedError
from nats_conformance.native_servers.processes import Report
from nats_conformance.native_servers.versions import canonical, is_minor, newest_patch
from nats_transforms.tested_versions import TESTED_VERSIONS


class Way(NamedTuple):
    """A named way to make a server of some version appear in a given folder."""

    name: str
    obtain: Callable[[str, Path, Report], Path]


class FoundServer(NamedTuple):
    """A server in reach: its version, its binary, and where it was found (`path` or `cache`)."""

    version: str
    binary: Path
    origin: str


WAYS = (Way("go install", go_build.build), Way("Debian packages", debian.unpack))


def _silent(_: str) -> None:
    return


def fetch(
    version: str, *, cache: ServerCache | None = None, report: Report = _silent, ways: Sequence[Way] = WAYS
) -> Path:
    """Return the binary of `version` (`2.10.27`, `2.16.0-RC.1`, or `2.10` for its newest patch), ready to run.

    `report` is called for each step. Raises InvalidVersionError, or ServerNotFoundError with the error of each way.
    """
    cache = cache or ServerCache()
    version = resolve(version, cache=cache, report=report) if is_minor(version) else canonical(version)
    attempts: list[tuple[str, str]] = []
    for name, binary in (("PATH", on_path()), ("cache", cache.path(version))):
        if binary is None or not binary.exists():
            attempts.append((name, f"no {binary}" if binary else "there is no nats-server on it"))
            continue
        try:
            require_version(binary, version)
        except WayFailedError as error:
            attempts.append((name, str(error)))
        else:
            report(f"nats-server {version}: {name}, {binary}")
            return binary
    with cache.turn(version):
        with suppress(WayFailedError):
            require_version(binary := cache.path(version), version)
            report(f"nats-server {version}: cache, {binary}, stored by another process")
            return binary
        for way in ways:
            report(f"nats-server {version}: trying {way.name}")
            try:
                with tempfile.TemporaryDirectory(prefix="nats-bridge-fetch-") as folder:
                    built = way.obtain(version, Path(folder), report)
                    require_version(built, version)
                    kept = cache.keep(built, version)
            except WayFailedError as error:
                report(f"nats-server {version}: {way.name} failed: {error}")
                attempts.append((way.name, str(error)))
            else:
                report(f"nats-server {version}: {way.name}, kept as {kept}")
                return kept
    raise ServerNotFoundError(version, attempts)


def binary_of(version: str | None, binary: Path | None) -> Path:
    """Return `binary`, or fetch that of `version`. Raise ServersError if both are None."""
    if binary is not None:
        return binary
    if version is None:
        raise ServersError("a native server needs a version or a binary")
    return fetch(version)


def resolve(
    minor: str,
    *,
    cache: ServerCache | None = None,
    report: Report = _silent,
    released: Callable[[Path, Report], list[str]] = go_build.released_versions,
) -> str:
    """Return the newest patch of `minor` (`2.11`): from Go's list, or else the newest cached or built-in one.

    Raises InvalidVersionError, or ServerNotFoundError when nothing of that line is known.
    """
    cache = cache or ServerCache()
    newest, origin = None, "go list"
    try:
        with tempfile.TemporaryDirectory(prefix="nats-bridge-list-") as folder:
            newest = newest_patch(minor, released(Path(folder), report))
    except WayFailedError as error:
        report(f"nats-server {minor}: Go cannot say which patch is the newest: {error}")
    if newest is None:
        origin = "the cache and the built-in table"
        newest = newest_patch(minor, (*cache.versions(), *TESTED_VERSIONS))
    if newest is None:
        raise ServerNotFoundError(minor, [("versions", f"no release of the line {minor} is known")])
    report(f"nats-server {minor}: the newest patch is {newest}, from {origin}")
    return newest


def available(cache: ServerCache | None = None) -> list[FoundServer]:
    """Return the servers at hand without building or downloading: on PATH, then cached, oldest first."""
    cache = cache or ServerCache()
    found: list[FoundServer] = []
    if (binary := on_path()) is not None:
        with suppress(WayFailedError):  # another program of that name, which fetch skips as well
            found.append(FoundServer(version_of(binary), binary, "path"))
    found.extend(FoundServer(version, cache.path(version), "cache") for version in cache.versions())
    return found
