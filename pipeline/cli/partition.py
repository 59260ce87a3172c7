"""`nats-bridge partition plan`: what another number of partitions moves."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bridge.cli.options import dialect_option
from bridge.errors import EXIT_GOOD
from pipeline.cli.options import progress_options, spark_options
from transforms.dialect import Dialect

__all__ = ["partition_command"]


@click.group("partition")
def partition_command() -> None:
    """Plan a change of the number of partitions.

    \b
    Example:
      nats-bridge partition plan CAPTURE --src 'orders.*' --dest '{{partition(8,1)}}.orders.$1' --to 12
    """


@partition_command.command("plan")
@click.argument("capture", metavar="CAPTURE")
@click.option("--src", "src", metavar="SRC", required=True, help="The source of the subject transform.")
@click.option("--dest", "dest", metavar="DEST", required=True, help="Its destination, with one partition function.")
@click.option("--to", "after", metavar="N", type=int, required=True, help="The other number of partitions.")
@dialect_option
@click.option("--hottest", metavar="N", type=click.IntRange(0, 10_000), default=10, show_default=True,
              help="How many of the keys with most messages to name.")  # fmt: skip
@click.option("--picture", "picture", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Bars before and after, as .png or .svg.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@spark_options
@progress_options
def plan_command(
    capture: str,
    src: str,
    dest: str,
    after: int,
    version: Dialect,
    hottest: int,
    picture: Path | None,
    as_json: bool,
    master: str | None,
    settings: dict[str, str],
    quiet: bool,
    every: float,
) -> int:
    """Show what changing partition(n,…) to another n moves, from the subjects in CAPTURE.

    CAPTURE is what `nats-bridge capture` made, or any Parquet with a column `subject`. Keys are the distinct
    values of the tokens that are hashed. Nothing is changed anywhere.

    \b
    Example:
      nats-bridge partition plan captures/orders --to 12 --picture plan.png \\
        --src 'orders.*.*' --dest '{{partition(8,1)}}.orders.{{wildcard(1)}}.{{wildcard(2)}}'
    """
    from pipeline.partition_plan import picture as pictures
    from pipeline.partition_plan.change import change_of

    # All that can be said without Spark is said before it starts.
    change = change_of(src, dest, after, version)
    if picture is not None:
        pictures.check(picture)

    from pipeline.partition_plan.plan import plan_of, subjects_in
    from pipeline.partition_plan.table import lines
    from pipeline.progress import Shown, watched
    from pipeline.session import job_session

    job = "partition plan"
    with (
        job_session(f"nats-bridge {job}", master=master, settings=settings) as spark,
        watched(spark, job, shown=Shown(quiet, every)) as progress,
    ):
        progress.enter("counting keys")
        plan = plan_of(subjects_in(spark, capture), change, hottest=hottest)
        progress.add(plan.messages + plan.unmatched)
    if picture is not None:
        pictures.draw(plan, picture)
    click.echo(json.dumps(plan.as_dict(), indent=2, ensure_ascii=False) if as_json else "\n".join(lines(plan)))
    return EXIT_GOOD
