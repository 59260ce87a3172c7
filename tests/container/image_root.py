"""A folder that holds what the Dockerfile's base image holds: Debian's base system, with a Python below /usr/local.

`python:3.x-slim` is Debian's smallest system, the libraries that Python needs, and a Python that was built from source
into /usr/local, with pip. Here the system comes from Debian's packages (debootstrap), and the Python is the machine's.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from nats_bridge.native_servers.debian import KEYRING, mirror
from nats_bridge.native_servers.processes import Report, run

__all__ = ["MissingPieceError", "base_image", "suite_of"]

_LIBRARIES = (
    *("ca-certificates", "netbase", "tzdata"),
    *("libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libreadline8", "libsqlite3-0", "libssl3", "libuuid1"),
)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "site-packages", "test", "tests", "tkinter", "idlelib", "config-*")
_LIMIT = 600.0


class MissingPieceError(Exception):
    """The machine lacks something, and what to do about it."""


def suite_of(image: str) -> str:
    """The Debian suite that a tag such as `python:3.11-slim-bookworm` names."""
    return image.rpartition("-")[2]


def base_image(image: str, folder: Path, report: Report) -> Path:
    """Create the root folder, or reuse that of an earlier run.

    Args:
        image: the base image's name and tag.
        folder: where roots are kept.
        report: gets lines about the progress.

    Raises:
        MissingPieceError: no debootstrap, no right to, or a Python that cannot be copied.
        WayFailedError: debootstrap failed.
    """
    python = Path(sys.base_prefix).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    _look_for_what_is_needed(python)
    root = folder / f"{suite_of(image)}-{platform.python_version()}"
    if root.exists():
        return root
    made = folder / f"{root.name}.{os.getpid()}"
    report(f"debootstrap {suite_of(image)}: about a minute, kept for the next time in {root}")
    options = ["--variant=minbase", f"--keyring={KEYRING}", "--include=" + ",".join(_LIBRARIES)]
    address = mirror(Path("/etc/apt"))
    try:
        run(["debootstrap", *options, suite_of(image), str(made), address], limit=_LIMIT, report=report)
        _copy_python(python, version, made / "usr/local")
        for command in (["/sbin/ldconfig"], [f"/usr/local/bin/{version}", "-m", "ensurepip", "--altinstall"]):
            subprocess.run(
                ["chroot", str(made), *command],
                check=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                timeout=_LIMIT,
            )
        made.rename(root)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return root


def _copy_python(prefix: Path, version: str, target: Path) -> None:
    shutil.copytree(prefix / "lib" / version, target / "lib" / version, ignore=_LEFT_OUT, symlinks=True)
    (target / "lib" / version / "site-packages").mkdir()
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy2(library, target / "lib", follow_symlinks=False)
    shutil.copy2(prefix / "bin" / version, target / "bin" / version)
    for name in ("python3", "python"):
        (target / "bin" / name).symlink_to(version)


def _look_for_what_is_needed(python: Path) -> None:
    if platform.system() != "Linux" or os.geteuid() != 0:
        raise MissingPieceError("the container's steps need root on Linux: run make container-test as root")
    missing = [tool for tool in ("debootstrap", "unshare", "nsenter", "chroot") if shutil.which(tool) is None]
    if missing:
        raise MissingPieceError(f"{', '.join(missing)}: not on PATH; apt-get install debootstrap util-linux coreutils")
    if not KEYRING.is_file():
        raise MissingPieceError(f"{KEYRING}: not there; apt-get install debian-archive-keyring")
    probe = subprocess.run(["unshare", "--mount", "--pid", "--net", "--fork", "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        raise MissingPieceError(
            f"namespaces cannot be made here ({probe.stderr.strip()}): the container's steps need a machine, or a"
            " container with CAP_SYS_ADMIN, that may call unshare"
        )
    if python in (Path("/usr"), Path("/")):
        raise MissingPieceError(
            f"{sys.executable} is the distribution's own Python, which cannot be taken elsewhere: use one built from"
            " source, as pyenv and the image have it (make PYTHON=…)"
        )
