"""What `nats-bridge check` needs connections, or the code that uses them, for: --server and --permissions."""

from __future__ import annotations

import json

from nats_bridge.bridge.app.preflight import check_server, with_server
from nats_bridge.bridge.cli.asking import ask
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.permissions import as_data, as_text, grants_of, look_up
from nats_bridge.bridge.rules.finding import Finding
from nats_bridge.bridge.settings import Settings
from nats_bridge.bridge.settings.connections import check_server_url

__all__ = ["cluster_findings", "permissions_text"]


def cluster_findings(settings: Settings, server: str) -> list[Finding]:
    """What `run` would meet on the cluster."""
    return ask(check_server(settings, _url(server)))


def permissions_text(settings: Settings, server: str | None, *, as_json: bool) -> str:
    """What the connections' users must be allowed; with a server as narrow as its streams permit."""
    known = ask(with_server(settings, _url(server), look_up)) if server else None
    grants = grants_of(settings, known)
    return json.dumps(as_data(grants), indent=2) if as_json else as_text(grants)


def _url(server: str) -> str | None:
    """The server that `--server` means; None for the configuration's own.

    Raises:
        ConfigError: it is no server's URL.
    """
    if server == "config":
        return None
    reason = check_server_url(server, secrets_allowed=True)
    if reason:
        raise ConfigError(f"--server: {reason}")
    return server
