"""`nats-bridge run`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from nats_bridge.bridge.app.reload.file_watch import content_hash
from nats_bridge.bridge.cli.options import config_option
from nats_bridge.bridge.cli.refusing import log_of, refuse
from nats_bridge.bridge.errors import BridgeError
from nats_bridge.bridge.settings import load

__all__ = ["run_command"]


@click.command("run")
@config_option
def run_command(config: Path) -> int:
    """Run the rules of a configuration until SIGTERM.

    Logs go to stderr, as JSON or for a person. SIGTERM and Ctrl-C finish what is in flight, then exit 0. SIGHUP reloads
    the configuration, as a change of the file does.

    \b
    Example:
      nats-bridge run -c config/republish-monitor.yaml
      BRIDGE_LOG__FORMAT=json nats-bridge run -c config/republish-monitor.yaml
    """
    seen = content_hash(config)  # before it is read: what is written meanwhile is a change
    try:
        settings = load(config)  # before the runtime is imported: a mistake in the file shows at once
    except BridgeError as error:
        return refuse(error, log_of(config))

    from nats_bridge.bridge.app.process import run

    try:
        return asyncio.run(run(settings, config, seen))
    except BridgeError as error:
        return refuse(error, settings.log)
