"""Manifests against the schemas of the clusters that they are for, and whether the schemas would notice."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.k8s.rendering import OVERLAYS, Manifest, monitored, name_of, render
from tests.k8s.validation import CLUSTERS, problems
from tests.k8s.workloads import of_kind


def test_every_overlay_is_valid_for_its_clusters(overlay: str, manifests: tuple[Manifest, ...]) -> None:
    found = {
        (name_of(manifest), cluster): problems(manifest, cluster)
        for manifest in manifests
        for cluster in CLUSTERS[overlay]
    }
    assert {place: lines for place, lines in found.items() if lines} == {}
    assert len(found) >= 10


def test_the_schemas_know_no_native_sidecar_before_it_is_there() -> None:
    (deployment,) = of_kind(render(OVERLAYS["native-sidecar"]), "Deployment")
    assert problems(deployment, "1.25")
    assert not problems(deployment, "1.29")


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("spec", "template", "spec", "containers", 0, "readinesProbe"), {}),
        ("Deployment", ("spec", "replicas"), "two"),
        ("PodDisruptionBudget", ("spec", "maxUnavailabel"), 1),
        ("NetworkPolicy", ("spec", "ingress", 0, "form"), []),
        ("ServiceMonitor", ("spec", "endpoints", 0, "interwal"), "15s"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "soon"),
        ("ServiceMonitor", ("spec", "selecter"), {}),
    ],
)
def test_a_mistake_shows(kind: str, path: tuple[str | int, ...], value: Any) -> None:
    (manifest,) = of_kind(copy.deepcopy(monitored(OVERLAYS["standalone"])), kind)
    place: Any = manifest
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    assert problems(manifest, "1.37")
