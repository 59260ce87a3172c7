"""`nats-bridge backfill`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bridge.cli.options import config_option
from pipeline.cli.options import spark_options

__all__ = ["backfill_command"]


@click.command("backfill")
@config_option
@click.argument("rule", metavar="RULE")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only this source of the rule; repeatable.")
@click.option("--capture", "capture", metavar="DIR", help="Read a capture instead of the live stream.")
@click.option("--from-sequence", "first", type=click.IntRange(1), metavar="N", help="The first message wanted.")
@click.option(
    "--to-sequence", "last", type=click.IntRange(1), metavar="N", help="The last one.  [default: the last at the start]"
)
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON on stdout.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@spark_options
def backfill_command(
    config: Path,
    rule: str,
    sources: tuple[str, ...],
    capture: str | None,
    first: int | None,
    last: int | None,
    as_json: bool,
    quiet: bool,
    master: str | None,
    settings: dict[str, str],
) -> None:
    """Copy the history of a stream through RULE of a configuration into the rule's target.

    The copies are those that the sidecar makes, byte for byte, in the same order. Stop the sidecar before, and
    start it afterwards: it goes on at the next message. A job that was killed is simply run again.

    \b
    Example:
      nats-bridge backfill -c eu.yaml eu --dry-run
      nats-bridge backfill -c eu.yaml eu
      nats-bridge backfill -c eu.yaml eu --capture captures/ORDERS
    """
    from bridge.cli.asking import quiet_logs
    from bridge.settings import load
    from pipeline.backfill.request import Request

    loaded = load(config)
    request = Request(rule=rule, sources=sources, capture=capture, first=first, last=last)

    from pipeline.backfill.job import backfill, rule_of

    rule_of(loaded, rule)

    from pipeline.session import spark_session

    with quiet_logs():
        summaries = backfill(
            loaded,
            request,
            lambda: spark_session(f"nats-bridge backfill {rule}", master=master, settings=settings),
            quiet=quiet,
        )
    if as_json:
        click.echo(json.dumps({"sources": [summary.as_dict() for summary in summaries]}, indent=2))
        return
    for summary in summaries:
        for line in summary.lines():
            click.echo(line)
