"""`nats-bridge test`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from nats_bridge.cli.options import config_option
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.jobs.rule_tests import Verdict, run_tests
from nats_bridge.settings import load


@click.command("test")
@config_option
@click.option("--json", "as_json", is_flag=True, help='{"ok", "tests", "untested"} on stdout.')
def test_command(config: Path, as_json: bool) -> int:
    """Run the tests of a configuration: what its rules make of messages, without a server.

    What only servers know is not tried: whether a stream takes the result, and how. A rule with the dialect native
    behaves like the newest server.

    Exit code 0: all as expected. 1: a test failed. 2: the configuration is wrong, or has no tests.

    \b
    Example:
      nats-bridge test -c config/tested-rules.yaml
    """
    settings = load(config)
    if not settings.tests:
        raise ConfigError(
            f"{config}: no tests; add tests: [{{rule: …, given: {{subject: …}}, expect: [{{subject: …}}]}}], with"
            " expect: [] for nothing"
        )
    verdicts = list(run_tests(settings))
    tested = {verdict.test.rule for verdict in verdicts}
    untested = [rule.name for rule in settings.rules if rule.name not in tested]
    failed = sum(bool(verdict.differences) for verdict in verdicts)
    if as_json:
        click.echo(
            json.dumps(
                {"ok": not failed, "tests": [_as_data(verdict) for verdict in verdicts], "untested": untested}, indent=2
            )
        )
    else:
        for verdict in verdicts:
            _print(verdict)
        tests = "1 test" if len(verdicts) == 1 else f"{len(verdicts)} tests"
        click.echo(f"{tests}: {len(verdicts) - failed} passed, {failed} failed")
        if untested:
            click.echo(f"rules without a test: {', '.join(untested)}")
    return EXIT_NO if failed else EXIT_GOOD


def _print(verdict: Verdict) -> None:
    if not verdict.differences:
        click.echo(f"{click.style('ok  ', fg='green')} {verdict.test.title}")
        return
    click.echo(f"{click.style('FAIL', fg='red')} {verdict.test.title} (tests[{verdict.position}])")
    for difference in verdict.differences:
        click.echo(f"     {difference}")


def _as_data(verdict: Verdict) -> dict[str, object]:
    return {
        "name": verdict.test.title,
        "rule": verdict.test.rule,
        "ok": not verdict.differences,
        "made": list(verdict.made),
        "differences": list(verdict.differences),
    }
