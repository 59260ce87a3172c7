"""Options of commands without rules that name a connection, and that connection."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nats_bridge.cli.options import optional_config_option
from nats_bridge.errors import ConfigError
from nats_bridge.settings import Connection, Settings, load
from nats_bridge.settings.connections import check_server_url

_Command = TypeVar("_Command", bound=Callable[..., Any])


def connection_options(command: _Command) -> _Command:
    """`--server URL|NAME`, whose members of a connection are `members_of`, and `-c FILE`."""
    text = "Server URLs, a `nats` context or, with -c FILE, a connection."
    return click.option("--server", metavar="URL|NAME", help=text)(optional_config_option(command))


def members_of(server: str) -> dict[str, Any]:
    """Return the connection that `--server` names without a configuration, in a configuration's form.

    A value with a colon is one or more URLs, separated by commas; the environment variable `NATS_CREDS` may name a
    credentials file for them, as for `nats`. Any other value is the name of a `nats` context.

    Raises:
        ConfigError: it is not a URL.
    """
    if ":" not in server:
        return {"context": server}
    servers = [url.strip() for url in server.split(",") if url.strip()]
    for url in servers:
        if reason := check_server_url(url):
            raise ConfigError(f"--server: {reason}")
    creds = os.environ.get("NATS_CREDS")
    return {"servers": servers, **({"creds": str(Path(creds).resolve())} if creds else {})}


def known_connections(*, server: str | None, config: Path | None, **_: object) -> tuple[Settings, str]:
    """Settings with the connections of `connection_options`, and the name of the chosen one.

    The command may have other options as well.

    Raises:
        ConfigError: none is named, or the configuration lacks it.
    """
    if config is None:
        if not server:
            raise ConfigError(
                "no server given: use --server nats://127.0.0.1:4222, or the name of a `nats` context, or -c FILE"
            )
        return Settings(connections={"default": Connection.model_validate(members_of(server))}), "default"
    settings, name = load(config), server or "default"
    if name not in settings.connections:
        known = ", ".join(settings.connections)
        raise ConfigError(f"--server {name}: no such connection in {config}; known connections: {known}")
    return settings, name


def connection_named(**given: Any) -> Connection:
    """Return the connection that the options of `connection_options` name.

    Raises:
        ConfigError: as for `known_connections`.
    """
    settings, name = known_connections(**given)
    return settings.connections[name]
