"""`nats-bridge init`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nats_bridge.bridge.cli.asking import ask
from nats_bridge.bridge.cli.check import finding_line
from nats_bridge.bridge.cli.init import asked_for
from nats_bridge.bridge.cli.init.draft import Draft, InitFile
from nats_bridge.bridge.cli.init.landscape import Landscape, look
from nats_bridge.bridge.cli.init.native_wish import Comparison, compare
from nats_bridge.bridge.cli.init.overview import overview, verdict_lines
from nats_bridge.bridge.cli.init.proposed_rule import ProposedRule
from nats_bridge.bridge.cli.stream_config_file import read_stream_config
from nats_bridge.bridge.client.connection_pool import connected
from nats_bridge.bridge.errors import EXIT_GOOD, EXIT_NO, EXIT_USAGE, ConfigError
from nats_bridge.bridge.observability.printable import printable
from nats_bridge.bridge.settings import Settings
from nats_bridge.bridge.settings.connections import check_server_url

_DEFAULT_SERVER = "nats://127.0.0.1:4222"


@click.command("init")
@click.option("--server", metavar="URL", help=f"The servers, with commas between them.  [default: {_DEFAULT_SERVER}]")
@click.option("--context", metavar="NAME", help="A context of the `nats` command line, instead.")
@click.option("--creds", metavar="FILE", type=click.Path(path_type=Path), help="Credentials file.")
@click.option("-o", "--output", "output", metavar="FILE", default="bridge.yaml", show_default=True, help="- is stdout.")
@click.option(
    "--from",
    "wanted",
    metavar="FILE",
    multiple=True,
    help="A native stream configuration (JSON, - is stdin): rules for what the server does not do of it. Repeatable.",
)
@click.option("--republish", nargs=3, metavar="STREAM SRC DEST", multiple=True, help="A republish rule. Repeatable.")
@click.option(
    "--dead-letters",
    nargs=2,
    metavar="STREAM DEST",
    multiple=True,
    help="What consumers give up, with the message; '*' for all streams. Repeatable.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def init_command(
    server: str | None,
    context: str | None,
    creds: Path | None,
    output: str,
    wanted: tuple[str, ...],
    republish: tuple[tuple[str, str, str], ...],
    dead_letters: tuple[tuple[str, str], ...],
    force: bool,
) -> int:
    """Inspect a cluster, propose rules, write a commented configuration and check it.

    Without any rule asked for it only looks. Nothing on the cluster is changed. Exit code 0: the file can run, or the
    server needs no rule. 1: something that was asked for cannot run, or not yet. 2: usage or configuration. 3: no
    server answers.

    \b
    Example:
      nats-bridge init --server nats://127.0.0.1:4222 --republish ORDERS 'orders.>' 'monitor.orders.>' -o bridge.yaml
      nats stream info ORDERS_EU --json | nats-bridge init --from - -o eu.yaml
    """
    file = InitFile(output, force=force)
    connection = _connection(server, context, creds)
    if wanted.count("-") > 1:
        raise click.UsageError("--from - reads stdin, once")
    configurations = [(name, read_stream_config(name)) for name in wanted]

    seen = _look(connection)
    err = file.is_stdout  # what is said must not be among the configuration
    for line in overview(seen, _shown(connection)):
        click.echo(line, err=err)

    comparisons: list[Comparison] = []
    later = seen
    for name, value in configurations:
        comparison = _compared(name, value, later)
        comparisons.append(comparison)
        if comparison.change is not None:
            later = later.with_config(comparison.change.body)
        for line in verdict_lines(comparison):
            click.echo(line, err=err)
    rules = _asked_for(seen, republish, dead_letters)
    if not configurations and not rules:
        click.echo("nothing is asked for: say --from, or what a rule should do; see nats-bridge init --help", err=True)
        return EXIT_USAGE
    changes = [comparison.change for comparison in comparisons if comparison.change is not None]

    draft = Draft(later, connection, changes, file, _about(seen, connection, [name for name, _ in configurations]))
    refused = 0
    for rule in (*(rule for comparison in comparisons for rule in comparison.rules), *rules):
        refused += not _taken(draft, rule, err)
    impossible = any(verdict.answer == "impossible" for each in comparisons for verdict in each.verdicts)
    if not draft.rules:
        if refused or impossible:
            click.echo("no rule can do what was asked for; nothing was written", err=True)
            return EXIT_NO
        click.echo("nothing for a rule to do; nothing was written", err=err)
        return EXIT_GOOD
    draft.write()
    click.echo("" if file.is_stdout else f"\nwrote {file.path}", err=err)
    for line in draft.steps:
        click.echo(line, err=err)
    good = _checked(draft, err)
    return EXIT_GOOD if good and not refused and not impossible else EXIT_NO


def _connection(server: str | None, context: str | None, creds: Path | None) -> dict[str, Any]:
    """The connection as a configuration holds it."""
    if context is not None:
        if server is not None or creds is not None:
            raise click.UsageError(
                "--context says where the servers are and who we are: leave out --server and --creds"
            )
        return {"context": context}
    servers = [part.strip() for part in (server or _DEFAULT_SERVER).split(",")]
    for url in servers:
        if reason := check_server_url(url):
            raise ConfigError(f"--server: {reason}")
    return {"servers": servers, **({"creds": str(creds.resolve())} if creds is not None else {})}


def _look(connection: dict[str, Any]) -> Landscape:
    async def seen() -> Landscape:
        settings = Settings.model_validate({"connections": {"default": connection}})
        async with connected(settings, {"default"}) as connections:
            return await look(connections["default"])

    return ask(seen())


def _shown(connection: dict[str, Any]) -> str:
    return f"context {connection['context']}" if "context" in connection else ", ".join(connection["servers"])


def _about(seen: Landscape, connection: dict[str, Any], files: Sequence[str]) -> list[str]:
    given = f", from {', '.join('stdin' if name == '-' else name for name in files)}" if files else ""
    return [f"Written by nats-bridge init for nats-server {seen.server_version} at {_shown(connection)}{given}."]


def _compared(file: str, value: Any, seen: Landscape) -> Comparison:
    shown = "stdin" if file == "-" else file
    if not isinstance(value, dict):
        raise ConfigError(f"{shown}: must be a stream's configuration, a JSON object")
    try:
        return compare(value, seen)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error}") from None


def _asked_for(
    seen: Landscape, republish: Sequence[tuple[str, str, str]], dead_letters: Sequence[tuple[str, str]]
) -> list[ProposedRule]:
    rules = []
    for stream, src, dest in republish:
        asked_for.known_stream(seen, stream)
        rules.append(asked_for.republishing(seen, stream, src, dest))
    for stream, dest in dead_letters:
        if stream != "*":
            asked_for.known_stream(seen, stream)
        rules.append(asked_for.dead_letters(seen, stream, dest))
    return rules


def _taken(draft: Draft, rule: ProposedRule, err: bool) -> bool:
    reason = draft.add(rule)
    if reason is not None:
        click.echo(f"{click.style('no ', fg='red')} {rule.name}: {printable(reason)}", err=True)
    return reason is None


def _checked(draft: Draft, err: bool) -> bool:
    """Print the findings of `check` and the next command; return whether the rules can run."""
    findings = draft.findings
    for finding in findings:
        click.echo(finding_line(finding), err=err)
    good = all(finding.ok for finding in findings)
    shown = shlex.quote(str(draft.file.path))
    if not draft.file.is_stdout:
        next_one = f"nats-bridge run -c {shown}" if good else f"nats-bridge check -c {shown} --server config"
        click.echo(f"\nnext: {next_one}", err=err)
    return good
