"""What the Dockerfile needs that is not in the repository, made or downloaded once: its base image, and the wheels."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from nats_conformance.native_servers.debian import KEYRING, mirror
from nats_conformance.native_servers.processes import Report, run
from tests.container.engine import Engine

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # as OCI and Debian, and as Python's wheels call them
_SYSTEM = ("ca-certificates", "netbase", "python3-venv", "tzdata")
_LIMIT = 3600.0  # seconds; long under emulation


def machine_architecture() -> str:
    """This machine's architecture, as OCI calls it."""
    return next(name for name, machine in _MACHINES.items() if platform.machine() in (machine, name))


def base_image(engine: Engine, wanted: str, architecture: str, folder: Path, report: Report) -> str:
    """Make an image that stands for another one, from Debian's packages; the name of it.

    Args:
        engine: whose store gets it.
        wanted: the other one's name and tag, which ends with a suite of Debian, as `python:3.11-slim-bookworm`.
        architecture: another one than the machine's is emulated: the kernel must know how.
        folder: where it is prepared.
        report: gets lines about the progress.

    Raises:
        WayFailedError: debootstrap failed.
        EngineError: the engine failed.
    """
    name, suite = f"localhost/{architecture}/{wanted}", wanted.rpartition("-")[2]
    if engine.has(name):
        return name
    root = folder / f"{suite}-{architecture}"
    report(f"debootstrap {suite} for {architecture}: about a minute, kept for the next time")
    try:
        options = ["--variant=minbase", f"--arch={architecture}", f"--keyring={KEYRING}"]
        include = f"--include={','.join(_SYSTEM)}"
        run(["debootstrap", *options, include, suite, str(root), mirror(report)], limit=_LIMIT, report=report)
        engine.import_root(system := f"localhost/{architecture}/debian:{suite}", root, architecture)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    dockerfile = Path(__file__).with_name("base.Dockerfile")
    engine.build(name, dockerfile, dockerfile.parent, f"--build-arg=SYSTEM={system}", architecture=architecture)
    return name


def wheels(locks: list[Path], architecture: str, folder: Path, report: Report) -> Path:
    """Download what lock files name, for the image's Python: it is built without a network.

    Returns:
        A folder with wheels, and with sources of what has none.
    """
    digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    place = folder / f"wheels-{architecture}-{digest}"
    done = place / ".complete"
    if done.exists():
        return place
    report("downloading what the lock files name")
    machine = _MACHINES[architecture]
    # The names of bookworm's C library, and of older ones.
    tags = [f"manylinux2014_{machine}", *(f"manylinux_2_{minor}_{machine}" for minor in range(17, 37))]
    fixed = ["--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:", "--no-binary=nkeys"]
    target = ["--python-version=3.11", "--implementation=cp", "--abi=cp311", "--abi=abi3", "--abi=none"]
    command = [sys.executable, "-m", "pip", "download", *fixed, *target, *(f"--platform={tag}" for tag in tags)]
    for lock in locks:
        subprocess.run([*command, f"--dest={place}", f"--requirement={lock}"], check=True, timeout=_LIMIT)
    done.touch()
    return place
