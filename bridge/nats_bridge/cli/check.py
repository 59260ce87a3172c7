"""`nats-bridge check`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nats_bridge.cli.options import config_option
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, BridgeError, ConfigError
from nats_bridge.observability.printable import printable
from nats_bridge.rules.finding import Finding
from nats_bridge.rules.reserved_destinations import reserved_findings
from nats_bridge.settings import load
from nats_bridge.settings.connections import check_server_url


@click.command("check")
@config_option
@click.option(
    "--server",
    "server",
    metavar="URL",
    help="Check the cluster as well: streams, loops, side effects. 'config' uses the file's own servers.",
)
@click.option(
    "--permissions",
    is_flag=True,
    help="Print what the connections' users must be allowed; with --server as narrow as the streams there permit.",
)
@click.option("--json", "as_json", is_flag=True, help='{"ok", "problems", "findings"} on stdout.')
def check_command(config: Path, server: str | None, permissions: bool, as_json: bool) -> int:
    """Validate a configuration; with --server also check the cluster as `run` would.

    Nothing is changed there. Exit code 0: it can run. 1: a rule cannot run on that cluster. 2: the
    configuration is wrong. 3: no server answers.

    \b
    Example:
      nats-bridge check -c config/republish-monitor.yaml
      nats-bridge check -c config/republish-monitor.yaml --server nats://127.0.0.1:4222 --json
      nats-bridge check -c config/republish-monitor.yaml --permissions
    """
    if permissions and as_json:
        raise click.UsageError("--permissions prints a server's configuration; leave out --json")
    findings: list[Finding] = []
    try:
        settings = load(config)
        if server or permissions:
            # Only then what connects is needed: importing it takes longer than all the rest.
            from nats_bridge.app.preflight import check_server, with_server
            from nats_bridge.cli.asking import ask

            url = _url(server)
            if permissions:
                from nats_bridge.jobs.stream_facts import look_up
                from nats_bridge.permissions import as_text, grants_of

                known = ask(with_server(settings, url, look_up)) if server else None
                click.echo(as_text(grants_of(settings, known)))
                return EXIT_GOOD
            findings += ask(check_server(settings, url))
        else:
            findings += reserved_findings(settings)
    except BridgeError as error:
        if as_json:
            click.echo(
                json.dumps({"ok": False, "code": error.code, "problems": error.problems, "findings": []}, indent=2)
            )
            return error.exit_code
        raise
    ok = all(finding.ok for finding in findings)
    if as_json:
        reported = [finding.as_dict() for finding in findings]
        click.echo(json.dumps({"ok": ok, "problems": [], "findings": reported}, indent=2))
    else:
        if not server:
            rules = f"{len(settings.rules)} rule{'s' if len(settings.rules) != 1 else ''}"
            click.echo(f"{config}: ok, {rules}; --server config checks the cluster as well")
        for finding in findings:
            click.echo(finding_line(finding), err=not finding.ok)
    return EXIT_GOOD if ok else EXIT_NO


def _url(server: str | None) -> str | None:
    """The server named by `--server`; None for the configuration's own.

    Raises:
        ConfigError: it is no server's URL.
    """
    if server is None or server == "config":
        return None
    if reason := check_server_url(server, secrets_allowed=True):
        raise ConfigError(f"--server: {reason}")
    return server


def finding_line(finding: Finding) -> str:
    """A finding as text."""
    named = not finding.rule or f"'{finding.rule}'" in finding.text
    return f"{_mark(finding)} {'' if named else finding.rule + ': '}{printable(finding.text)}"


def _mark(finding: Finding) -> str:
    if finding.warns:
        return click.style("but", fg="yellow")
    return click.style("ok ", fg="green") if finding.ok else click.style("no ", fg="red")
