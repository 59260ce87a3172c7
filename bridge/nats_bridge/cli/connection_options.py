"""Options of commands without rules that name a connection, and that connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nats_bridge.errors import ConfigError
from nats_bridge.settings import Connection, Settings, load
from nats_bridge.settings.connections import check_server_url

_Command = TypeVar("_Command", bound=Callable[..., Any])


def connection_options(command: _Command) -> _Command:
    """`--server URL`, `--creds FILE`, `--context NAME`, or `-c FILE` with `--connection NAME`."""
    for option in reversed(
        [
            click.option("--server", "server", metavar="URL", help="The servers, with commas between them."),
            click.option("--creds", "creds", metavar="FILE", type=click.Path(path_type=Path), help="Credentials file."),
            click.option("--context", "context", metavar="NAME", help="A context of the `nats` command line."),
            click.option(
                "-c",
                "--config",
                "config",
                metavar="FILE",
                type=click.Path(path_type=Path),
                help="A configuration of the bridge to take the connection from.",
            ),
            click.option("--connection", "connection", metavar="NAME", help="Its connection.  [default: default]"),
        ]
    ):
        command = option(command)
    return command


def known_connections(
    *,
    server: str | None,
    creds: Path | None,
    context: str | None,
    config: Path | None,
    connection: str | None,
    **_: object,
) -> tuple[Settings, str]:
    """Settings with the connections of `connection_options`, and the name of the chosen one.

    Other options of a command may be given, too.

    Raises:
        ConfigError: none is named, or several ways are mixed, or the configuration lacks it.
    """
    if config is not None:
        if server or creds or context:
            raise ConfigError("-c FILE: its connection says it all; leave out --server, --creds and --context")
        settings, name = load(config), connection or "default"
        if name not in settings.connections:
            known = ", ".join(settings.connections)
            raise ConfigError(f"--connection {name}: {config} has no such connection; it has {known}")
        return settings, name
    if connection:
        raise ConfigError("--connection NAME needs -c FILE")
    if bool(server) == bool(context):
        raise ConfigError("say where the servers are: --server nats://127.0.0.1:4222, or --context NAME, or -c FILE")
    servers = [url.strip() for url in (server or "").split(",") if url.strip()]
    for url in servers:
        if reason := check_server_url(url):
            raise ConfigError(f"--server: {reason}")
    given = {"servers": servers or None, "context": context, "creds": str(creds.resolve()) if creds else None}
    one = Connection.model_validate({name: value for name, value in given.items() if value})
    return Settings(connections={"default": one}), "default"


def connection_named(**given: Any) -> Connection:
    """The connection that the options of `connection_options` name.

    Raises:
        ConfigError: as for `known_connections`.
    """
    settings, name = known_connections(**given)
    return settings.connections[name]
