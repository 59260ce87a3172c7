"""The Helm chart, rendered without a cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.k8s.rendering import PROJECT, Manifest

__all__ = ["CHART", "helm", "rendered"]

CHART = PROJECT / "charts/nats-bridge"
_LIMIT = 120.0  # seconds; a bound for hangs


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm: that on PATH, or what `make manifests` builds."""
    program = shutil.which("helm") or Path(sys.executable).with_name("helm")
    if not Path(program).is_file():
        pytest.skip("there is no helm; make manifests builds one where Go can fetch it")
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, check=False)


def rendered(chart: Path, *options: str | Path, release: str = "nats-bridge") -> list[Manifest]:
    """The documents of a chart, as a cluster of Kubernetes 1.29 would get them."""
    done = helm("template", release, chart, "--kube-version", "1.29", *options)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]
