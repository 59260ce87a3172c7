"""Podman, with a store of its own: builds images from Dockerfiles, and runs them as Kubernetes would."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TOOLS = ("podman", "runc", "catatonit", "debootstrap")
_LIMIT = 900.0  # seconds; a bound for hangs
_UNPRIVILEGED = (
    *("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"),
    *("--network=host", "--no-healthcheck"),  # a timer would need systemd
)
# No more than the tests have: only a process with the right to may raise its limits.
_DEFAULTS = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'


class MissingToolError(Exception):
    """The machine lacks something, and how to get it."""


class EngineError(Exception):
    """A command of the engine failed; with its output."""


class Engine:
    """An engine without a daemon.

    Args:
        store: the folder of its images and layers.

    Raises:
        MissingToolError: no podman, or not root.
    """

    def __init__(self, store: Path) -> None:
        if platform.system() != "Linux" or os.geteuid() != 0:
            raise MissingToolError("building the image needs root on Linux: run make container-test as root")
        if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
            raise MissingToolError(f"{', '.join(missing)}: not on PATH; apt-get install {' '.join(_TOOLS)}")
        # An overlay cannot lie on another one, as in a container: there a layer is a copy of all files.
        kind = subprocess.run(
            ["stat", "--file-system", "--format=%T", str(store.parent)], capture_output=True, text=True
        )
        self._driver = "vfs" if kind.stdout.strip() == "overlayfs" else "overlay"
        # The engine remembers it with the store. Short: sockets below it have paths of limited length.
        self._state = f"/run/nats-bridge-{hashlib.sha256(str(store).encode()).hexdigest()[:8]}"
        self._store = store
        defaults = store.with_name("containers.conf")
        defaults.write_text(_DEFAULTS, "utf-8")
        # The second one is --no-healthcheck of pods, whose command has no such option.
        self._variables = {"CONTAINERS_CONF": str(defaults), "DISABLE_HC_SYSTEMD": "true"}

    def command(self, *arguments: str) -> list[str]:
        """The command line of one of its commands."""
        places = (f"--storage-driver={self._driver}", "--root", str(self._store), "--runroot", self._state)
        # runc: crun 1.8, bookworm's default, refuses a machine with both kinds of cgroups.
        settings = [f"{name}={value}" for name, value in self._variables.items()]
        return ["env", *settings, "podman", *places, "--runtime=runc", "--cgroup-manager=cgroupfs", *arguments]

    def run(self, *arguments: str, given: str | None = None) -> str:
        """Run one of its commands and return what it printed; `given` is its standard input.

        Raises:
            EngineError: it failed.
        """
        command = self.command(*arguments)
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_LIMIT, check=False)
        if done.returncode != 0:
            raise EngineError(f"podman {' '.join(arguments)}\nexit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def has(self, image: str) -> bool:
        """Whether its store has an image."""
        return self.run("images", "--quiet", image).strip() != ""

    def build(self, image: str, dockerfile: Path, context: Path, *options: str, architecture: str) -> Image:
        """Build an image, without a network.

        Raises:
            EngineError: an instruction fails.
        """
        platform_option = f"--platform=linux/{architecture}"
        fixed = ("--quiet", "--network=none", "--format=docker", "--pull=never", platform_option)
        if self._driver == "vfs":
            fixed += ("--layers=false",)
        self.run("build", *fixed, *options, f"--tag={image}", f"--file={dockerfile}", str(context))
        return Image(self, image, json.loads(self.run("image", "inspect", image))[0])

    def import_root(self, image: str, root: Path, architecture: str) -> None:
        """Make an image of a root folder."""
        packed = root.with_suffix(".tar")
        try:
            subprocess.run(["tar", "--create", "--file", str(packed), "--directory", str(root), "."], check=True)
            self.run("import", "--quiet", "--os=linux", f"--arch={architecture}", str(packed), image)
        finally:
            packed.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Image:
    """A built image.

    Attributes:
        engine: whose store has it.
        name: its name there.
        facts: what the engine knows of it, as `podman image inspect` prints it.
    """

    engine: Engine
    name: str
    facts: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        """Its user, environment, entry point, labels …, as OCI and Docker call them."""
        settings: Mapping[str, Any] = self.facts["Config"]
        return settings

    def mounted(self) -> Path:
        """The folder with its files, until the tests end."""
        return Path(self.engine.run("image", "mount", self.name).strip())

    def started_by(self, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line that runs it without rights, on a read-only root, in the machine's network."""
        built_for = f"--platform=linux/{self.facts['Architecture']}"
        return self.engine.command("run", "--rm", built_for, *_UNPRIVILEGED, *options, self.name, *arguments)
