"""`nats-bridge validate`: what a server would answer to a stream configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from bridge.cli.options import dialect_option
from bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from transforms.dialect import Dialect

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
    config = _read(file)

    from transforms.errors import StreamConfigError
    from transforms.stream_config import validate

    try:
        normal = validate(config, version)
    except StreamConfigError as error:
        answer = error.as_dict()
        if as_json:
            click.echo(json.dumps({"ok": False, **answer}, indent=2))
        else:
            codes = f"({error.http_code}, {error.err_code})"
            click.echo(f"a {version.name} server refuses it: {error.description} {codes}", err=True)
        return EXIT_NO
    warnings = _defects(normal, version)
    if as_json:
        told: dict[str, Any] = {"ok": True, "config": normal}
        if warnings:
            told["warnings"] = warnings
        click.echo(json.dumps(told, indent=2))
        return EXIT_GOOD
    click.echo(f"good: a {version.name} server takes it")
    for warning in warnings:
        click.echo(click.style(f"warning: {warning}", fg="yellow"), err=True)
    return EXIT_GOOD


def _read(file: str) -> dict[str, object]:
    shown = "stdin" if file == "-" else file
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); give a file, or - for stdin") from None
    try:
        config = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: byte {error.start}: not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{shown}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{shown}: not valid JSON: nested too deep") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{shown}:1:1: must be a JSON object, the configuration of a stream")
    inner = config.get("config")
    # `nats stream info --json` and the API's answers wrap the configuration; take it from there.
    return inner if isinstance(inner, dict) and "name" not in config else config


def _defects(config: dict[str, Any], version: Dialect) -> list[str]:
    """What servers of the version do wrong with a configuration that they take."""
    from transforms.errors import TransformError
    from transforms.transform import compile_transform

    found: list[str] = []
    places = [("republish", config.get("republish")), ("subject_transform", config.get("subject_transform"))]
    for origin in [*(config.get("sources") or ()), config.get("mirror") or {}]:
        places += [(f"'{origin.get('name')}'", each) for each in origin.get("subject_transforms") or ()]
    for place, pair in places:
        if not isinstance(pair, dict):
            continue
        try:
            transform = compile_transform(
                str(pair.get("src") or "").encode(), str(pair.get("dest") or "").encode(), version
            )
        except TransformError:
            continue
        if "crash-partition-zero" in transform.defects:
            found.append(f"{place}: partition of 0 ends the server at the first matching message; use 1 or more")
    republish = config.get("republish")
    if isinstance(republish, dict) and not republish.get("dest"):
        found.append("republish: dest is empty, nothing is republished; an update with it republishes endlessly")
    return found
