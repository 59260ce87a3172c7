"""The HTTP session to a collector: one on this machine is never asked through a proxy of the environment."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

import requests

from nats_bridge.bridge.observability.http.callers import is_loopback

__all__ = ["collector_session"]


def collector_session() -> requests.Session | None:
    """A session for an exporter; None where the environment names a credential provider, which makes its own."""
    for name in os.environ:
        if name.startswith("OTEL_PYTHON_EXPORTER_OTLP_HTTP_") and name.endswith("CREDENTIAL_PROVIDER"):
            return None
    return _PastProxies()


class _PastProxies(requests.Session):
    # The default endpoint is on this machine, and a proxy reaches its own machine there, not ours.
    def merge_environment_settings(self, url: str, *more: Any, **named: Any) -> Any:
        settings = super().merge_environment_settings(url, *more, **named)
        host = (urlsplit(url).hostname or "").rstrip(".")
        if host == "localhost" or is_loopback(host):
            settings["proxies"] = self.proxies
        return settings
