"""`nats-bridge check`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nats_bridge.cli.options import DEFAULT, optional_config_option, to_dialect
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, BridgeError, ConfigError
from nats_bridge.observability.printable import printable
from nats_bridge.rules.finding import CheckFinding
from nats_bridge.rules.reserved_destinations import reserved_findings
from nats_bridge.settings import Settings, load
from nats_bridge.settings.connections import check_server_url

if TYPE_CHECKING:
    from nats_bridge.jobs.rule_tests import RuleTestVerdict


@click.command("check")
@click.argument("stream", metavar="[STREAM.json]", required=False)
@optional_config_option
@click.option(
    "--server",
    metavar="URL",
    help="Also check the cluster. A URL replaces the servers of every connection, and 'config' keeps them.",
)
@click.option(
    "--permissions",
    is_flag=True,
    help="Print the permissions that the connections' users need. With --server, they are narrower.",
)
@click.option("--nsc", is_flag=True, help="With --permissions: print nsc commands, for users with a JWT.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of configurations, for editors.")
@click.option(
    "--previous",
    metavar="FILE",
    help="The stream's current configuration, or its `nats stream info --json`. STREAM.json is then an update.",
)
@click.option("--dialect", metavar="V", help=f"Server version for STREAM.json, such as 2.10.27.  [default: {DEFAULT}]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check_command(
    stream: str | None,
    config: Path | None,
    server: str | None,
    permissions: bool,
    nsc: bool,
    schema: bool,
    previous: str | None,
    dialect: str | None,
    as_json: bool,
) -> int:
    """Check a configuration and run its tests. With --server, also check the cluster as `run` would. Nothing is
    changed.

    With STREAM.json (or - for stdin), check a native stream configuration as a server does when the stream is created
    or, with --previous, updated. Messages and error codes are the server's own. Limits of the server and the account,
    other streams, and the stream's consumers are not considered.

    Exit codes: 0 valid; 1 a rule cannot run on that cluster, a test failed, or a server would reject the stream
    configuration; 2 the bridge's configuration is invalid.

    \b
    Example:
      nats-bridge check -c config/tested-rules.yaml
      nats-bridge check -c config/republish-monitor.yaml --server nats://127.0.0.1:4222 --json
      nats-bridge check -c config/republish-monitor.yaml --permissions --nsc
      nats-bridge check new.json --previous old.json --dialect 2.12
      nats-bridge check --schema > schema.json
    """
    if stream and stream.endswith((".yaml", ".yml")):
        raise click.UsageError(f"write -c before the bridge's configuration: -c {stream}")
    if (config is not None) + (stream is not None) + schema != 1:
        raise click.UsageError(
            "give either the bridge's configuration (-c FILE) or a stream configuration (STREAM.json, or - for stdin)"
        )
    if config is None and (server or permissions):
        raise click.UsageError("--server and --permissions need -c FILE")
    if stream is None and (previous or dialect):
        raise click.UsageError("--previous and --dialect need STREAM.json")
    if (permissions or schema) and as_json:
        raise click.UsageError("--permissions and --schema cannot be combined with --json; remove it")
    if nsc and not permissions:
        raise click.UsageError("--nsc needs --permissions")
    if schema:
        from nats_bridge.settings.schema import configuration_schema

        click.echo(json.dumps(configuration_schema(), indent=2, ensure_ascii=False))
        return EXIT_GOOD
    if stream is not None:
        from nats_bridge.cli.stream_validation import validate

        return validate(stream, previous, to_dialect(None, None, dialect or DEFAULT), as_json=as_json)
    assert config is not None
    return _check(config, server, permissions=permissions, nsc=nsc, as_json=as_json)


def _check(config: Path, server: str | None, *, permissions: bool, nsc: bool, as_json: bool) -> int:
    findings: list[CheckFinding] = []
    unreadable: list[str] = []
    reported: dict[str, Any]
    verdicts: list[RuleTestVerdict] = []
    try:
        # A URL with a user in it replaces the credentials.
        settings = load(config, unreadable=unreadable if server is None or "@" in server else None)
        if server or permissions:
            # Import the modules that connect only now, because that takes longer than everything else.
            from nats_bridge.app.preflight import check_server, with_server
            from nats_bridge.cli.asking import ask

            url = _url(server)
            if permissions:
                from nats_bridge.jobs.stream_facts import look_up
                from nats_bridge.permissions.granting import as_nsc, as_text, grants_of

                known = ask(with_server(settings, url, look_up)) if server else None
                click.echo((as_nsc if nsc else as_text)(grants_of(settings, known)))
                return EXIT_GOOD
            findings += ask(check_server(settings, url))
        else:
            findings += reserved_findings(settings)
            findings += [
                CheckFinding("", True, "unreadable", f"{each}; it must exist where the sidecar runs")
                for each in unreadable
            ]
        if settings.tests:
            from nats_bridge.jobs.rule_tests import run_tests

            verdicts += run_tests(settings)
    except BridgeError as error:
        if as_json:
            findings = [
                CheckFinding(each.rule, False, error.code, each.within(()), each.err_code)
                for each in (error.found if isinstance(error, ConfigError) else ())
            ]
            reported = {"ok": False, "code": error.code, "problems": error.problems}
            click.echo(json.dumps({**reported, "findings": [each.as_dict() for each in findings]}, indent=2))
            return error.exit_code
        raise
    ok = all(finding.ok for finding in findings) and not any(verdict.differences for verdict in verdicts)
    if as_json:
        reported = {"ok": ok, "problems": [], "findings": [finding.as_dict() for finding in findings]}
        if verdicts:
            reported |= {"tests": [verdict.as_dict() for verdict in verdicts], "untested": _untested(settings)}
        click.echo(json.dumps(reported, indent=2))
        return EXIT_GOOD if ok else EXIT_NO
    if ok and not server:
        rules = f"{len(settings.rules)} rule{'s' if len(settings.rules) != 1 else ''}"
        click.echo(f"{config}: ok, {rules}; --server config checks the cluster as well")
    for finding in findings:
        click.echo(finding_line(finding), err=not finding.ok)
    if verdicts:
        _show_tests(settings, verdicts)
    return EXIT_GOOD if ok else EXIT_NO


def _untested(settings: Settings) -> list[str]:
    tested = {test.rule for test in settings.tests}
    return [rule.name for rule in settings.rules if rule.name not in tested]


def _show_tests(settings: Settings, verdicts: Sequence[RuleTestVerdict]) -> None:
    for verdict in verdicts:
        if not verdict.differences:
            click.echo(f"{click.style('ok  ', fg='green')} {verdict.test.title}")
            continue
        click.echo(f"{click.style('FAIL', fg='red')} {verdict.test.title} (tests[{verdict.position}])")
        for difference in verdict.differences:
            click.echo(f"     {difference}")
    failed = sum(bool(verdict.differences) for verdict in verdicts)
    tests = "1 test" if len(verdicts) == 1 else f"{len(verdicts)} tests"
    click.echo(f"{tests}: {len(verdicts) - failed} passed, {failed} failed")
    if untested := _untested(settings):
        click.echo(f"rules without a test: {', '.join(untested)}")


def _url(server: str | None) -> str | None:
    """Return the server named by `--server`; None for the configuration's own.

    Raises:
        ConfigError: it is not the URL of a server.
    """
    if server is None or server == "config":
        return None
    if reason := check_server_url(server, secrets_allowed=True):
        raise ConfigError(f"--server: {reason}")
    return server


def finding_line(finding: CheckFinding) -> str:
    """Return a finding as text."""
    named = not finding.rule or f"'{finding.rule}'" in finding.text
    return f"{_mark(finding)} {'' if named else finding.rule + ': '}{printable(finding.text)}"


def _mark(finding: CheckFinding) -> str:
    if finding.warns:
        return click.style("but", fg="yellow")
    return click.style("ok ", fg="green") if finding.ok else click.style("no ", fg="red")
