"""`nats-bridge run`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from bridge.cli.options import config_option

__all__ = ["run_command"]


@click.command("run")
@config_option
def run_command(config: Path) -> int:
    """Run the rules of a configuration until SIGTERM.

    Logs go to stderr, as JSON or for a person. SIGTERM and Ctrl-C finish what is in hand, then exit 0.

    \b
    Example:
      nats-bridge run -c config/republish-monitor.yaml
      BRIDGE_LOG__FORMAT=json nats-bridge run -c config/republish-monitor.yaml
    """
    from bridge.settings import load

    settings = load(config)  # before the runtime is imported: a mistake in the file shows at once

    from bridge.sidecar import run

    return asyncio.run(run(settings, config))
