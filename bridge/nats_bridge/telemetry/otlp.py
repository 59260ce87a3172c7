"""The shared parts of the OTLP exporters: the resource, the HTTP session, the warning."""

import os
import socket
from typing import Any
from urllib.parse import urlsplit

import requests
import structlog
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from nats_bridge.loopback import is_loopback
from nats_bridge.observability.log_throttle import Pace

_log = structlog.get_logger("bridge.telemetry")


def resource_of(sidecar: str, version: str) -> Resource:
    """Return the resource of a sidecar. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.

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


def collector_session() -> requests.Session | None:
    """Return a session for an exporter; None if the environment names a credential provider, which makes its own.

    A collector on this machine is never reached through a proxy of the environment.
    """
    for name in os.environ:
        if name.startswith("OTEL_PYTHON_EXPORTER_OTLP_HTTP_") and name.endswith("CREDENTIAL_PROVIDER"):
            return None
    return _PastProxies()


class _PastProxies(requests.Session):
    # The default endpoint is on this machine, and a proxy would connect to itself instead.
    def merge_environment_settings(self, url: str, *more: Any, **named: Any) -> Any:
        settings = super().merge_environment_settings(url, *more, **named)
        host = (urlsplit(url).hostname or "").rstrip(".")
        if host == "localhost" or is_loopback(host):
            settings["proxies"] = self.proxies
        return settings


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
