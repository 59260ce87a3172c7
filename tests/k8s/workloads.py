"""What is in rendered manifests: pods, the bridge's container in them, and who selects whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.k8s.rendering import PROJECT, Manifest

_BRIDGE = "nats-bridge"


@dataclass(frozen=True, slots=True)
class Pod:
    """The pods that a workload makes.

    Attributes:
        workload: the manifest that makes them.
        labels: theirs.
        spec: theirs.
    """

    workload: Manifest
    labels: Mapping[str, str]
    spec: Mapping[str, Any]

    @property
    def containers(self) -> list[dict[str, Any]]:
        """All containers, also those that start first."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def bridge(self) -> dict[str, Any]:
        """The bridge's container."""
        (found,) = (container for container in self.containers if container["name"] == _BRIDGE)
        return found


def of_image(instruction: str) -> str:
    """What the Dockerfile sets for the image by one of its instructions, such as USER."""
    return re.findall(rf"^{instruction} (.*)$", (PROJECT / "Dockerfile").read_text("utf-8"), re.M)[-1]


def of_kind(manifests: Iterable[Manifest], kind: str) -> list[Manifest]:
    """The manifests of one kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def pods(manifests: Iterable[Manifest]) -> list[Pod]:
    """The pods of all workloads."""
    templates = [(manifest, manifest["spec"]["template"]) for manifest in of_kind(manifests, "Deployment")]
    return [Pod(manifest, template["metadata"]["labels"], template["spec"]) for manifest, template in templates]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector chooses something with these labels."""
    assert list(selector) == ["matchLabels"], "only labels are known here"
    wanted: Mapping[str, str] = selector["matchLabels"]
    assert wanted, "an empty selector chooses everything"
    return wanted.items() <= labels.items()


def chosen_by(manifest: Manifest) -> list[Mapping[str, Any]]:
    """The label selectors of a manifest for pods, or for what stands for them."""
    spec = manifest["spec"] if manifest["kind"] != "ConfigMap" else {}
    template = spec.get("template", {"spec": {}})["spec"]
    spread = [constraint["labelSelector"] for constraint in template.get("topologySpreadConstraints", [])]
    if manifest["kind"] == "Service":
        return [{"matchLabels": spec["selector"]}]
    return [*(spec[key] for key in ("selector", "podSelector") if key in spec), *spread]
