"""Options that the commands on Spark share: where the servers are, where Spark runs, and what is shown meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.settings import Connection
from nats_bridge.pipeline.progress import INTERVAL

__all__ = ["connection_named", "connection_options", "progress_options", "spark_options"]

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


def connection_named(
    *, server: str | None, creds: Path | None, context: str | None, config: Path | None, connection: str | None
) -> Connection:
    """The connection that the options of `connection_options` name.

    Raises:
        ConfigError: none is named, or several ways are mixed, or the configuration lacks it.
    """
    if config is not None:
        if server or creds or context:
            raise ConfigError("-c FILE: its connection says it all; leave out --server, --creds and --context")
        from nats_bridge.bridge.settings import load

        known = load(config).connections
        name = connection or "default"
        if name not in known:
            raise ConfigError(f"--connection {name}: {config} has no such connection; it has {', '.join(known)}")
        return known[name]
    if connection:
        raise ConfigError("--connection NAME needs -c FILE")
    if bool(server) == bool(context):
        raise ConfigError("say where the servers are: --server nats://127.0.0.1:4222, or --context NAME, or -c FILE")
    from nats_bridge.pipeline.connections import connection_of

    given = {"servers": server, "context": context, "creds": str(creds.resolve()) if creds else None}
    return connection_of({name: value for name, value in given.items() if value})


def spark_options(command: _Command) -> _Command:
    """`--master URL` and `--spark NAME=VALUE` (as `settings`, a mapping)."""
    for option in reversed(
        [
            click.option(
                "--master", "master", metavar="URL", help="Where Spark runs.  [default: spark-submit's, else local[*]]"
            ),
            click.option(
                "--spark",
                "settings",
                metavar="NAME=VALUE",
                multiple=True,
                callback=_settings,
                help="A setting of Spark, such as spark.driver.memory=4g.",
            ),
        ]
    ):
        command = option(command)
    return command


def progress_options(command: _Command) -> _Command:
    """`--quiet` and `--every SECONDS`: what `pipeline.progress.Shown` takes."""
    for option in reversed(
        [
            click.option("--quiet", "-q", "quiet", is_flag=True, help="No progress on stderr."),
            click.option(
                "--every",
                "every",
                type=click.FloatRange(min=0),
                metavar="SECONDS",
                default=INTERVAL,
                show_default=True,
                help="Between two lines of progress, where stderr is no terminal.",
            ),
        ]
    ):
        command = option(command)
    return command


def _settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--spark {text}: write NAME=VALUE, such as spark.driver.memory=4g")
        found[name] = value
    return found
