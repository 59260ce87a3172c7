"""`python -m tests.stress TESTS…`: chosen tests again and again on a machine that is busy, until one fails.

Next to them run one busy loop for each processor, and a process that stops the servers and sidecars of the tests
for moments, at random: a test that passes only because one process was quicker than another fails here. Nothing that
failed is run again.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import click

from tests.stress.busy import busy_loops
from tests.stress.rounds import play

REPORT = Path("build/stress")


def _interrupted(*_: object) -> NoReturn:
    sys.exit(130)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("tests", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--times", type=click.IntRange(1), default=30, show_default=True, help="Rounds.")
@click.option("--stops/--no-stops", default=True, show_default=True, help="Whether processes of the tests are stopped.")
@click.option("--busy", type=click.IntRange(0), default=os.cpu_count() or 1, show_default=True, help="Busy loops.")
@click.option(
    "--seed", type=int, help="Of the first round's stops; each later round has the next one. Drawn if left out."
)
@click.option(
    "--report", type=click.Path(path_type=Path), default=REPORT, show_default=True, help="Where output of a round is."
)
def main(tests: tuple[str, ...], times: int, stops: bool, busy: int, seed: int | None, report: Path) -> None:
    """Repeat TESTS (modules, node ids and options of pytest, as -k) until one fails."""
    for ending in (signal.SIGINT, signal.SIGTERM):  # also where it is ignored, which pytest would inherit
        signal.signal(ending, _interrupted)
    first = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    report.mkdir(parents=True, exist_ok=True)
    with busy_loops(busy):
        for number in range(1, times + 1):
            began = time.monotonic()
            outcome = play(tests, seed=first + number - 1, stops=stops, report=report)
            print(
                f"round {number} of {times}: {'passed' if outcome.passed else 'FAILED'}, seed {outcome.seed}, "
                f"{outcome.stops} stops, {time.monotonic() - began:.1f} s: {outcome.summary}",
                flush=True,
            )
            if not outcome.passed:
                print(f"{outcome.output}: the whole output; its end:\n\n{outcome.tail()}")
                print(f"\nThe same stops: {_again(tests, outcome.seed, stops)}")
                sys.exit(1)


def _again(tests: tuple[str, ...], seed: int, stops: bool) -> str:
    return shlex.join(["python", "-m", "tests.stress", *tests, f"--seed={seed}", *([] if stops else ["--no-stops"])])


if __name__ == "__main__":
    main()
