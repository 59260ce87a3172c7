"""`nats-bridge handoff`."""

import json
from pathlib import Path

import click

from nats_bridge.cli.asking import ask
from nats_bridge.cli.options import config_option
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, BridgeError, ConfigError
from nats_bridge.jobs.rule_handoff import hand_over
from nats_bridge.observability.printable import printable
from nats_bridge.rules.handoff.answer import OTHERWISE, Handoff, Wish
from nats_bridge.settings import load


@click.command("handoff")
@config_option
@click.argument("rule", metavar="RULE")
@click.option("--back", is_flag=True, help="Print the stream without its native part, so that the bridge can resume.")
@click.option(
    "--after",
    "after",
    multiple=True,
    metavar="SOURCE=SEQUENCE",
    help="Last sequence copied from a source, if the target's records do not show it.",
)
@click.option("--apply", "apply", is_flag=True, help="Also send the update.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def handoff_command(config: Path, rule: str, back: bool, after: tuple[str, ...], apply: bool, as_json: bool) -> int:
    """Print the stream configuration that lets the server take over from RULE at exactly the next message.

    stdout gets only the body of the STREAM.UPDATE request, and stderr gets the steps and their effects. Nothing is
    changed without --apply.

    Exit codes: 0 the rule can be handed over; 1 it cannot, or not yet, and the output has a remedy for each problem.

    \b
    Example:
      nats-bridge handoff -c eu.yaml eu > update.json
      nats request '$JS.API.STREAM.UPDATE.ORDERS_EU' < update.json
    """
    try:
        settings = load(config)
        wish = Wish(back=back, after=_sequences(after), apply=apply)
        answer = ask(hand_over(settings, rule, wish))
    except BridgeError as error:
        if as_json:
            click.echo(json.dumps({"ok": False, "update": None, "steps": [], "problems": error.problems}, indent=2))
            return error.exit_code
        raise
    if as_json:
        click.echo(json.dumps(answer.as_dict(), indent=2, ensure_ascii=False))
    else:
        _print(answer, rule)
    return EXIT_GOOD if answer.ok else EXIT_NO


def _print(answer: Handoff, rule: str) -> None:
    for problem in answer.problems:
        click.echo(f"{click.style('no ', fg='red')} {rule}: {printable(problem)}", err=True)
    if not answer.ok:
        return
    number = 0
    for step in answer.steps:
        if step == OTHERWISE:
            click.echo(f"   {step}", err=True)
            number = 0
        elif step.startswith("Warning: "):
            click.echo(click.style(f"   {step}", fg="yellow"), err=True)
        elif step.startswith("source "):
            click.echo(f"   - {step}", err=True)
        else:
            number += 1
            click.echo(f"{number}. {step}", err=True)
    click.echo(json.dumps(answer.update, indent=2, ensure_ascii=False))


def _sequences(given: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for text in given:
        source, _, number = text.rpartition("=")
        if not source or not number.isdecimal():
            raise ConfigError(f"--after {text}: write SOURCE=SEQUENCE, for example ORDERS=42")
        found[source] = int(number)
    return found
