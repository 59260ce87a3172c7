"""The OpenTelemetry resource of the process that exports."""

from __future__ import annotations

import socket

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

__all__ = ["resource_of"]


def resource_of(sidecar: str, version: str) -> Resource:
    """The resource of a sidecar; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.

    Args:
        sidecar: its name in the configuration.
        version: of the program.
    """
    own = {
        "service.name": "nats-bridge",
        "service.version": version,
        # In Kubernetes the host name is the pod's.
        "service.instance.id": f"{sidecar}@{socket.gethostname()}",
    }
    return Resource.create(own).merge(OTELResourceDetector().detect())
