"""`nats-bridge validate`: what a server would answer to a stream configuration."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from bridge.cli.options import dialect_option
from bridge.cli.stream_config_file import read_stream_config
from bridge.errors import EXIT_GOOD, EXIT_NO
from transforms.dialect import Dialect
from transforms.errors import StreamConfigError
from transforms.stream_config import examine

__all__ = ["validate_command"]


@click.command("validate")
@click.argument("file", metavar="[FILE|-]", default="-")
@dialect_option
@click.option("--json", "as_json", is_flag=True, help='{"ok": true, "config"} or {"ok": false, "code", "err_code", …}.')
def validate_command(file: str, version: Dialect, as_json: bool) -> int:
    """Validate a native stream configuration (JSON) as a server of a version would on create.

    Looks at republish, subject_transform, sources and mirror. Exit code 0: it takes it. 1: it refuses it.
    2: no JSON.

    \b
    Example:
      nats-bridge validate stream.json --dialect 2.10
      echo '{"name":"S","subjects":["a.>"],"republish":{"dest":"a.b"}}' | nats-bridge validate - --json
    """
    config = read_stream_config(file)
    try:
        accepted = examine(config, version)
    except StreamConfigError as error:
        answer = error.as_dict()
        if as_json:
            click.echo(json.dumps({"ok": False, **answer}, indent=2))
        else:
            codes = f"({error.http_code}, {error.err_code})"
            click.echo(f"a {version.name} server refuses it: {error.description} {codes}", err=True)
        return EXIT_NO
    if as_json:
        told: dict[str, Any] = {"ok": True, "config": accepted.config}
        if accepted.warnings:
            told["warnings"] = [asdict(warning) for warning in accepted.warnings]
        click.echo(json.dumps(told, indent=2))
        return EXIT_GOOD
    click.echo(f"good: a {version.name} server takes it")
    for warning in accepted.warnings:
        text = f"warning: {warning.member}: {warning.sentence} ({warning.id})"
        click.echo(click.style(text, fg="yellow"), err=True)
    return EXIT_GOOD
