"""`nats-bridge schema`."""

from __future__ import annotations

import json

import click

from nats_bridge.settings.schema import configuration_schema


@click.command("schema")
def schema_command() -> None:
    """Print the JSON schema of the configuration, for editors and other tools.

    \b
    Example:
      nats-bridge schema > schema.json
      # first line of a configuration, for editors: # yaml-language-server: $schema=schema.json
    """
    click.echo(json.dumps(configuration_schema(), indent=2, ensure_ascii=False))
