"""The Helm chart, rendered without a cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.k8s.rendering import PROJECT, Manifest

CHART = PROJECT / "k8s/chart"
_LIMIT = 120.0  # seconds; a bound for hangs


class HelmMissingError(Exception):
    """Nothing on this machine renders charts."""

    def __init__(self) -> None:
        super().__init__("helm is not on PATH, nor next to this Python, where requirements/tests.lock puts it on Linux")


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm: that next to this Python, which is locked, or that on PATH.

    Raises:
        HelmMissingError: there is none.
    """
    locked = Path(sys.executable).with_name("helm")
    program = str(locked) if locked.is_file() else shutil.which("helm")
    if program is None:
        raise HelmMissingError
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)


def rendered(
    chart: str | Path, *options: str | Path, release: str = "nats-bridge", cluster: str = "1.29"
) -> list[Manifest]:
    """The documents of a chart, as a cluster of this version of Kubernetes would get them."""
    done = helm("template", release, chart, "--kube-version", cluster, *options)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]
