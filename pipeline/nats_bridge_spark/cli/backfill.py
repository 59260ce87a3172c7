"""`nats-bridge backfill`."""

from pathlib import Path
from typing import Any

import click

from nats_bridge.cli.options import config_option
from nats_bridge_spark.cli.options import show_each


@click.command("backfill")
@config_option
@click.argument("rule", metavar="RULE")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only this source of the rule. Repeatable.")
@click.option("--capture", "capture", metavar="DIR", help="Read a capture instead of the live stream.")
@click.option("--from", "first", type=click.IntRange(1), metavar="N", help="First sequence.")
@click.option(
    "--to",
    "last",
    type=click.IntRange(1),
    metavar="N",
    help="Last sequence.  [default: the last one when the job starts]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def backfill_command(config: Path, as_json: bool, **given: Any) -> None:
    """Copy a stream's history through RULE into the rule's target.

    The copies are identical to the sidecar's, byte for byte, in the same order. Stop the sidecar first and start it
    afterwards. It then resumes at the next message. If a job is killed, run it again.

    \b
    Example:
      nats-bridge backfill -c eu.yaml eu
      nats-bridge backfill -c eu.yaml eu --capture captures/ORDERS
    """
    from nats_bridge.settings import load
    from nats_bridge_spark.session import reporting, require_libraries

    require_libraries()
    from nats_bridge_spark.backfill.job import BackfillRequest, backfill

    loaded, request = load(config), BackfillRequest(**given)
    with reporting(f"backfill {request.rule}"):
        summaries = backfill(loaded, request)
    show_each("sources", summaries, as_json=as_json)
