"""`python -m chaos`: one or several randomised runs; exit code 1 if any promise was broken."""

from __future__ import annotations

import asyncio
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nats_conformance.native_servers.errors import ServersError
from tests.chaos.checker import judge_history
from tests.chaos.findings import Judgement
from tests.chaos.history import read_history
from tests.chaos.plan import chosen
from tests.chaos.run import Settings, run
from tests.chaos.story import Story
from tests.chaos.summary import summary, violated


@click.command()
@click.option(
    "--seed", default="", help="Any text; the same one gives the same faults and messages. Drawn if left out."
)
@click.option(
    "--minutes", type=float, default=10.0, show_default=True, help="How long faults continue; 0 for no limit."
)
@click.option("--faults", type=int, default=0, help="End after so many faults upon sidecars, and as many upon servers.")
@click.option("--messages", type=int, default=0, help="At most so many messages of each producer.")
@click.option(
    "--rate", type=float, default=150.0, show_default=True, help="Messages a second of each producer, at most."
)
@click.option("--topology", type=click.Choice(["single", "cluster"]), default="single", show_default=True)
@click.option("--version", default="2.15.3", show_default=True, help="Of the servers.")
@click.option("--rules", default="all", show_default=True, help="Names or kinds, with commas between them.")
@click.option("--replicas", type=int, default=1, show_default=True, help="Sidecars; several need leadership.")
@click.option(
    "--judge", "old", type=click.Path(exists=True, path_type=Path), help="Judge the history of an earlier run again."
)
@click.option("--report", "directory", type=click.Path(path_type=Path), default=Path("build/chaos"), show_default=True)
def main(old: Path | None, directory: Path, **given: Any) -> None:
    """Run the bridge among faults and judge from the history what it kept of its promises.

    \b
    Example:
      python -m chaos --seed 7 --minutes 10 --topology cluster --report build/chaos
    """
    if old is not None:
        sys.exit(_judged_again(old, directory))
    given["seed"] = given["seed"] or secrets.token_hex(4)
    shown = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in given.items()}
    repeat = shlex.join(
        ["python", "-m", "tests.chaos", *(word for name in shown for word in (f"--{name}", shown[name]))]
    )
    try:
        given["rules"] = chosen(given["rules"], given["version"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    settings = Settings(**given)
    if not settings.minutes and not settings.faults:
        raise click.UsageError("--minutes 0 needs --faults: something must end the run")
    click.echo(repeat, err=True)
    try:
        story, judgements = asyncio.run(run(settings, directory, lambda text: click.echo(text, err=True)))
    except ServersError as error:
        click.echo(f"chaos: {error}", err=True)
        sys.exit(error.exit_code)
    _report(directory, story, judgements, repeat)
    click.echo(f"history and logs: {directory}", err=True)
    sys.exit(1 if violated(judgements) else 0)


def _judged_again(history: Path, directory: Path) -> int:
    """Judge an existing history; return the exit code."""
    try:
        run = next(read_history(history))
        story, judgements = judge_history(history, chosen(",".join(run["rules"])))
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise click.UsageError(f"--judge: {history} is not the history of a run: {error}") from None
    directory.mkdir(parents=True, exist_ok=True)
    _report(directory, story, judgements, shlex.join(["python", "-m", "tests.chaos", "--judge", str(history)]))
    return 1 if violated(judgements) else 0


def _report(directory: Path, story: Story, judgements: Sequence[Judgement], repeat: str) -> None:
    """The summary on stdout and in a file."""
    text = summary(story, judgements, repeat)
    (directory / "summary.txt").write_text(text, "utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
