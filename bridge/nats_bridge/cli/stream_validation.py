"""A server's answer to a stream configuration: `nats-bridge check STREAM.json`."""

import json
from dataclasses import asdict
from typing import Any

import click

from nats_bridge.cli.stream_config_file import read_stream_config
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_transforms.dialect import Dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.stream_config import examine
from nats_transforms.stream_config.reading import read_request


def validate(file: str, previous: str | None, version: Dialect, *, as_json: bool) -> int:
    """Print the answer of a server of that version to a stream configuration. Return the exit code."""
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
            click.echo(f"nats-server {version.name} rejects {what}: {error.description} {codes}", err=True)
        return EXIT_NO
    if as_json:
        reported: dict[str, Any] = {"ok": True, "config": accepted.config}
        if accepted.warnings:
            reported["warnings"] = [asdict(warning) for warning in accepted.warnings]
        click.echo(json.dumps(reported, indent=2))
        return EXIT_GOOD
    click.echo(f"good: nats-server {version.name} accepts {what}")
    for warning in accepted.warnings:
        text = f"warning: {warning.member}: {warning.sentence} ({warning.id})"
        click.echo(click.style(text, fg="yellow"), err=True)
    return EXIT_GOOD


def _present_config(previous: str, file: str, version: Dialect) -> dict[str, Any]:
    if previous == file == "-":
        raise ConfigError("stdin can contain only one configuration: give a file for STREAM.json or for --previous")
    before = read_stream_config(previous)
    shown = "stdin" if previous == "-" else previous
    if not isinstance(before, dict) or not before.get("name"):
        raise ConfigError(f"--previous: {shown}: not a stream configuration: give the response of STREAM.INFO")
    try:
        read_request(before, version, strict=False)
    except StreamConfigError as error:
        raise ConfigError(
            f"--previous: {shown}: not a valid stream on nats-server {version.name}: {error.description}"
        ) from None
    return before
