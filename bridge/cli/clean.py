"""`nats-bridge clean`."""

from __future__ import annotations

from pathlib import Path

import click

from nats_bridge.bridge.app.cleanup import clean
from nats_bridge.bridge.cli.asking import ask
from nats_bridge.bridge.cli.options import config_option
from nats_bridge.bridge.settings import load

__all__ = ["clean_command"]


@click.command("clean")
@config_option
@click.argument("rules", nargs=-1, metavar="[RULE…]")
def clean_command(config: Path, rules: tuple[str, ...]) -> None:
    """Remove what the sidecar left on servers: durable consumers and leases of the rules named, or of all rules.

    This removes their positions: such a rule begins at its `start` again.

    \b
    Example:
      nats-bridge clean -c config/republish-monitor.yaml
      nats-bridge clean -c config/republish-monitor.yaml orders-monitor
    """
    for line in ask(clean(load(config), rules)):
        click.echo(line)
