"""Options that the commands on Spark share: where Spark runs, and what the terminal shows until it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nats_bridge.errors import ConfigError
from nats_bridge_spark.progress import INTERVAL

_Command = TypeVar("_Command", bound=Callable[..., Any])


def spark_options(command: _Command) -> _Command:
    """`--master URL` and `--spark NAME=VALUE` (as `settings`, a mapping)."""
    master = click.option("--master", metavar="URL", help="Where Spark runs.  [default: spark-submit's, else local[*]]")
    spark = click.option(
        "--spark",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_settings,
        help="A setting of Spark, such as spark.driver.memory=4g.",
    )
    return master(spark(command))


def progress_options(command: _Command) -> _Command:
    """`--quiet` and `--every SECONDS`: what `pipeline.progress.Shown` takes."""
    quiet = click.option("--quiet", "-q", is_flag=True, help="No progress on stderr.")
    every = click.option(
        "--every",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        default=INTERVAL,
        show_default=True,
        help="Between two lines of progress, where stderr is no terminal.",
    )
    return quiet(every(command))


def _settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--spark {text}: write NAME=VALUE, such as spark.driver.memory=4g")
        found[name] = value
    return found
