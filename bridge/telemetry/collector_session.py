"""The HTTP session to a collector: one on this machine is never asked through a proxy of the environment."""

from __future__ import annotations

import ipaddress
import os
from typing import Any
from urllib.parse import urlsplit

import requests

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
        if _is_loopback(urlsplit(url).hostname or ""):
            settings["proxies"] = self.proxies
        return settings


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
