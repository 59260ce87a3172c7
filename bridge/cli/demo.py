"""`nats-bridge demo`."""

from __future__ import annotations

import click

from nats_bridge.bridge.app.demo import command

__all__ = ["demo_command"]


@click.command("demo")
@click.option("--server-version", "version", metavar="V", help="Version of the native server to start.")
def demo_command(version: str | None) -> int:
    """Start a native server, republish a stream natively and with the bridge, and compare what comes out.

    Exit code 0: both sides agree, byte for byte. It removes everything afterwards.

    \b
    Example:
      nats-bridge demo
      nats-bridge demo --server-version 2.10.27
    """
    return command(version) if version else command()
