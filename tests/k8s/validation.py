"""Whether manifests are what an API server takes, strictly by the schemas of Kubernetes and the Prometheus operator.

`python -m tests.k8s.validation` says it for all overlays; the exit code is 1 when something is wrong.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import click
import jsonschema
import kubernetes_validate

from tests.k8s.rendering import OVERLAYS, KustomizeMissingError, Manifest, monitored, name_of

CLUSTERS = {"classic-sidecar": ("1.26", "1.37"), "native-sidecar": ("1.29", "1.37"), "standalone": ("1.26", "1.37")}
"""The cluster versions that an overlay is for: the oldest, and a recent one."""

_OPERATOR = "monitoring.coreos.com/v1"


def problems(manifest: Manifest, cluster: str) -> list[str]:
    """What a cluster of this version would refuse, one line each."""
    try:
        if manifest["apiVersion"] == _OPERATOR:
            jsonschema.validate(manifest, _operator_schema(manifest["kind"]))
        else:
            kubernetes_validate.validate(manifest, cluster, strict=True)
    except jsonschema.ValidationError as error:
        place = ".".join(str(part) for part in error.path) or "the manifest"
        return [f"{place}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError as error:
        return [error.message]
    return []


@cache
def _operator_schema(kind: str) -> dict[str, Any]:
    file = Path(__file__).parent / "schemas" / f"{kind.lower()}-v1.json"
    schema: dict[str, Any] = _closed(json.loads(file.read_text("utf-8")))
    # What every resource has is left open by the operator's schemas.
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    return schema


def _closed(schema: Any) -> Any:
    """The schema without room for keys that it does not name, so that a misspelt one shows."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def _main() -> int:
    wrong = 0
    for name, folder in OVERLAYS.items():
        for manifest in monitored(folder):
            is_operators = manifest["apiVersion"] == _OPERATOR
            for cluster in CLUSTERS[name][:1] if is_operators else CLUSTERS[name]:
                found = problems(manifest, cluster)
                wrong += len(found)
                reported = "; ".join(found) if found else "valid"
                by = "Prometheus operator 0.85" if is_operators else f"Kubernetes {cluster}"
                click.echo(f"{folder.parent.name}/{name}: {name_of(manifest)} {reported} ({by})")
    click.echo(f"{wrong} wrong" if wrong else "all valid")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(_main())
    except KustomizeMissingError as error:
        sys.exit(str(error))
