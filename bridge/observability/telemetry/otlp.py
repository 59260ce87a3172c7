"""The shared parts of the OTLP exporters: the resource and the warning."""

from __future__ import annotations

import socket

import structlog
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from nats_bridge.bridge.observability.log_throttle import Pace

_log = structlog.get_logger("bridge.telemetry")


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


class FailedExports:
    """Logs failed exports, at most once a minute.

    Args:
        signal: `metrics` or `traces`.
        meaning: the consequence.
    """

    def __init__(self, signal: str, meaning: str) -> None:
        self._said = {"signal": signal, "meaning": meaning}
        self._pace = Pace(60.0)

    def one_more(self) -> None:
        """Note a failed export."""
        if self._pace.due():
            _log.warning("telemetry.export_failed", **self._said)
