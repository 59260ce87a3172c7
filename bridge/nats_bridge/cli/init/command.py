"""`nats-bridge init`."""

import re
from typing import Any

import click

from nats_bridge.cli.asking import ask
from nats_bridge.cli.connection_options import members_of
from nats_bridge.cli.init.native_rules import NativeFeature, NativeRule, Surroundings, native_rules
from nats_bridge.cli.init.rule_text import configuration_text
from nats_bridge.cli.options import to_dialect
from nats_bridge.cli.stream_config_file import read_stream_config
from nats_bridge.client.connection_pool import connected
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.observability.printable import printable
from nats_bridge.settings import Settings
from nats_bridge.settings.problems import did_you_mean
from nats_transforms.dialect import Dialect

_FILE = re.compile(r"-|.*[./\\].*", re.DOTALL)
"""Matches the values of `--from` that are files. Names of streams contain neither dots nor slashes."""
_MARKS = {"native": ("ok  ", "green"), "rule": ("rule", "cyan"), "neither": ("no  ", "red")}


@click.command("init")
@click.option(
    "--from",
    "wanted",
    metavar="STREAM|FILE",
    multiple=True,
    required=True,
    help="A stream on the server, or a JSON file with a native stream configuration. A value with a dot or slash is a"
    " file, and - is stdin. Repeatable.",
)
@click.option(
    "--server",
    metavar="URL|NAME",
    default="nats://127.0.0.1:4222",
    show_default=True,
    help="Server URLs, or a `nats` context.",
)
@click.option(
    "--dialect",
    "version",
    metavar="V",
    callback=lambda context, option, value: to_dialect(context, option, value) if value else None,
    help="Server version to write rules for, such as 2.9.10.  [default: the server's version]",
)
def init_command(wanted: tuple[str, ...], server: str, version: Dialect | None) -> int:
    """Print rules for the parts of a native stream configuration that the server ignores or rejects.

    Supported parts are republish, subject_transform, sources and mirror. stdout gets only a configuration with the
    rules, and comments on their needs. For each feature, stderr shows whether the server, a rule or neither provides
    it. Nothing is changed.

    Exit codes: 0 the server or a rule provides every feature; 1 neither provides one of the features.

    \b
    Example:
      nats-bridge init --from orders_eu.json > bridge.yaml
      nats-bridge init --from ORDERS_EU --server nats://newer:4222 --dialect 2.9.10 > bridge.yaml
    """
    if wanted.count("-") > 1:
        raise click.UsageError("--from - reads stdin, once")
    connection = members_of(server)
    offline = version is not None and all(map(_FILE.fullmatch, wanted))
    here = Surroundings(version.name) if offline and version else ask(_look(connection))
    judge = here if version is None else Surroundings(version.name)

    found: list[tuple[str, NativeFeature]] = []
    rules: list[NativeRule] = []
    for name in wanted:
        stream, features, more = _compared(name, here, judge)
        found += [(stream, feature) for feature in features]
        rules += more
    for stream, feature in found:
        mark, colour = _MARKS[feature.answer]
        reason = "; ".join(filter(None, (feature.undone, feature.obstacle))) or f"server {judge.version} does it"
        said = printable(f"{stream}: {feature.place}: {reason}")
        click.echo(f"{click.style(mark, fg=colour)}  {said}", err=True)
    if rules:
        names = ", ".join("stdin" if name == "-" else name for name in wanted)
        about = f"Written by nats-bridge init from {names}, for use next to nats-server {judge.version}."
        check = "Check it with: nats-bridge check -c FILE --server config"
        click.echo(configuration_text(connection, rules, (about, check)), nl=False)
    else:
        click.echo("no rule needed", err=True)
    return EXIT_NO if any(feature.answer == "neither" for _, feature in found) else EXIT_GOOD


async def _look(connection: dict[str, Any]) -> Surroundings:
    """Return the server of a connection, and its streams."""
    settings = Settings.model_validate({"connections": {"default": connection}})
    async with connected(settings, {"default"}) as connections:
        here = connections["default"]
        listed, _ = await here.api.streams()
        return Surroundings(here.server_version, {str(info["config"]["name"]): info["config"] for info in listed})


def _compared(name: str, here: Surroundings, judge: Surroundings) -> tuple[str, list[NativeFeature], list[NativeRule]]:
    if not _FILE.fullmatch(name):
        streams = here.streams or {}
        if name not in streams:
            hint = did_you_mean(name, list(streams)) if streams else "this account has no streams"
            raise ConfigError(f"--from {name}: no such stream; {hint}; a file name needs a dot or a slash")
        return native_rules(streams[name], judge)
    try:
        return native_rules(read_stream_config(name), judge)
    except ConfigError as error:
        shown = "stdin" if name == "-" else name
        raise ConfigError(str(error) if str(error).startswith(shown) else f"{shown}: {error}") from None
