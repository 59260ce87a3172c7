"""Manifests as the cluster would get them: overlays rendered by kustomize, without a cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

Manifest: TypeAlias = dict[str, Any]

PROJECT = Path(__file__).resolve().parents[2]
OVERLAYS = {path.name: path for path in sorted((PROJECT / "k8s/overlays").iterdir())}

_LIMIT = 120.0  # seconds; a bound for hangs


class KustomizeMissingError(Exception):
    """Nothing on this machine renders overlays."""

    def __init__(self) -> None:
        super().__init__(
            "neither kubectl nor kustomize is on PATH; install one of them:"
            " go install sigs.k8s.io/kustomize/kustomize/v5@v5.5.0"
        )


@cache
def render(folder: Path) -> tuple[Manifest, ...]:
    """The documents of a folder with a kustomization.

    Raises:
        KustomizeMissingError: there is no program for it.
        subprocess.CalledProcessError: it cannot be rendered; stderr says why.
    """
    if kubectl := shutil.which("kubectl"):
        command = [kubectl, "kustomize", str(folder)]
    elif kustomize := shutil.which("kustomize"):
        command = [kustomize, "build", str(folder)]
    else:
        raise KustomizeMissingError
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT)
    return tuple(yaml.safe_load_all(done.stdout))


@cache
def monitored(folder: Path) -> tuple[Manifest, ...]:
    """The documents of an overlay that takes its monitor, which it names in a comment."""
    with tempfile.TemporaryDirectory() as place:
        copied = Path(place) / "k8s"
        shutil.copytree(PROJECT / "k8s", copied)
        overlay = copied / folder.relative_to(PROJECT / "k8s")
        kustomization = overlay / "kustomization.yaml"
        text, taken = re.subn(r"^  # (?=- \S+-monitor\b)", "  ", kustomization.read_text("utf-8"), flags=re.MULTILINE)
        assert taken == 1, folder
        kustomization.write_text(text, "utf-8")
        return render(overlay)


def name_of(manifest: Manifest) -> str:
    """How people call it: `Deployment/orders`."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"
