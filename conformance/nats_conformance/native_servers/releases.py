"""Native servers from the project's releases on GitHub, checked against their published checksums."""

from __future__ import annotations

import hashlib
import platform
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from nats_conformance.native_servers.binary import NAME
from nats_conformance.native_servers.errors import WayFailedError
from nats_conformance.native_servers.processes import Report

BASE = "https://github.com/nats-io/nats-server/releases/download"
CHECKSUMS = "SHA256SUMS"
TIMEOUT = 60.0
_LARGEST = 200_000_000  # bytes; an archive has about a tenth of that

_SYSTEMS = {"Linux": "linux", "Darwin": "darwin", "FreeBSD": "freebsd"}
_MACHINES = {
    "x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "armv7l": "arm7",
    "armv6l": "arm6", "i386": "386", "i686": "386", "s390x": "s390x", "ppc64le": "ppc64le",
}  # fmt: skip


def archive_name(version: str, system: str, machine: str) -> str:
    """Return the archive's name for `platform.system()` and `platform.machine()`. Raise WayFailedError."""
    try:
        return f"{NAME}-v{version}-{_SYSTEMS[system]}-{_MACHINES[machine]}.tar.gz"
    except KeyError as error:
        raise WayFailedError(f"there are no releases for {system} on {machine}") from error


def download(version: str, folder: Path, report: Report, *, base: str = BASE) -> Path:
    """Download `version` for this machine into `folder`, and unpack the binary. Raise WayFailedError."""
    archive = archive_name(version, platform.system(), platform.machine())
    address = f"{base}/v{version}/{archive}"
    report(f"downloading {address}")
    checksums = _read(f"{base}/v{version}/{CHECKSUMS}").decode("utf-8", "replace")
    body = _read(address)
    _check(body, archive, checksums)
    local = folder / archive
    local.write_bytes(body)
    binary = folder / NAME
    try:
        with tarfile.open(local) as opened:
            member = opened.extractfile(f"{archive.removesuffix('.tar.gz')}/{NAME}")
            if member is None:
                raise WayFailedError(f"{archive} holds no regular file {NAME}")
            with member:
                binary.write_bytes(member.read())
    except (tarfile.TarError, KeyError) as error:
        raise WayFailedError(f"{archive}: {error}") from error
    binary.chmod(0o755)
    return binary


def _check(body: bytes, archive: str, checksums: str) -> None:
    rows = [row for line in checksums.splitlines() if len(row := line.split()) == 2]
    wanted = {name.lstrip("*"): digest for digest, name in rows}
    digest = hashlib.sha256(body).hexdigest()
    if wanted.get(archive) != digest:
        raise WayFailedError(f"{archive}: {CHECKSUMS} says {wanted.get(archive, 'nothing')}, the download has {digest}")


def _read(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
            body: bytes = answer.read(_LARGEST + 1)
    except urllib.error.HTTPError as error:
        with error:  # the error is also an open answer
            raise WayFailedError(f"{address}: {error}") from error
    except OSError as error:
        raise WayFailedError(f"{address}: {error}") from error
    if len(body) > _LARGEST:
        raise WayFailedError(f"{address}: larger than {_LARGEST} bytes")
    return body
