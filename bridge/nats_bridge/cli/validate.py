"""`nats-bridge validate`: a server's answer to a stream configuration."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from nats_bridge.cli.options import dialect_option
from nats_bridge.cli.stream_config_file import read_stream_config
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_transforms.dialect import Dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.stream_config import examine
from nats_transforms.stream_config.reading import read_request


@click.command("validate")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option(
    "--previous",
    metavar="FILE",
    help="The stream's present configuration, or its `nats stream info --json`: FILE is an update of it then.",
)
@dialect_option
@click.option("--json", "as_json", is_flag=True, help='{"ok": true, "config"} or {"ok": false, "code", "err_code", …}.')
def validate_command(file: str, previous: str | None, version: Dialect, as_json: bool) -> int:
    """Validate a native stream configuration (JSON) as a server of a version would on create or, with --previous, on
    update.

    Checks every setting, with the server's own words and codes, but not what only a running server knows: its
    limits and those of the account, how many servers there are, other streams, the stream's consumers. Exit code 0: it
    takes it. 1: it refuses it. 2: no JSON.

    \b
    Example:
      nats-bridge validate stream.json --dialect 2.10
      nats-bridge validate new.json --previous old.json --dialect 2.12
      echo '{"name":"S","subjects":["a.>"],"republish":{"dest":"a.b"}}' | nats-bridge validate - --json
    """
    config = read_stream_config(file)
    before = None if previous is None else _present_config(previous, file, version)
    what = "it" if before is None else "the update"
    try:
        accepted = examine(config, version, previous=before)
    except StreamConfigError as error:
        answer = error.as_dict()
        if as_json:
            click.echo(json.dumps({"ok": False, **answer}, indent=2))
        else:
            codes = f"({error.http_code}, {error.err_code})"
            click.echo(f"a {version.name} server refuses {what}: {error.description} {codes}", err=True)
        return EXIT_NO
    if as_json:
        reported: dict[str, Any] = {"ok": True, "config": accepted.config}
        if accepted.warnings:
            reported["warnings"] = [asdict(warning) for warning in accepted.warnings]
        click.echo(json.dumps(reported, indent=2))
        return EXIT_GOOD
    click.echo(f"good: a {version.name} server takes {what}")
    for warning in accepted.warnings:
        text = f"warning: {warning.member}: {warning.sentence} ({warning.id})"
        click.echo(click.style(text, fg="yellow"), err=True)
    return EXIT_GOOD


def _present_config(previous: str, file: str, version: Dialect) -> dict[str, Any]:
    if previous == file == "-":
        raise ConfigError("stdin holds one configuration: give a file for FILE or for --previous")
    before = read_stream_config(previous)
    shown = "stdin" if previous == "-" else previous
    if not isinstance(before, dict) or not before.get("name"):
        raise ConfigError(f"--previous: {shown}: no configuration of a stream: give what STREAM.INFO answers")
    try:
        read_request(before, version, strict=False)
    except StreamConfigError as error:
        raise ConfigError(f"--previous: {shown}: no stream of a {version.name} server: {error.description}") from None
    return before
