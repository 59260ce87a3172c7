"""The options that the commands on Spark share."""

from collections.abc import Iterable
from typing import Any

import click

from nats_bridge.cli.asking import show
from nats_bridge.errors import ConfigError
from nats_bridge_spark.reports import as_json as plain


def _settings(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--spark {text}: write NAME=VALUE, for example spark.driver.memory=4g")
        found[name] = value
    return found


spark_option = click.option(
    "--spark",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_settings,
    help="A Spark setting, such as spark.driver.memory=4g or spark.master=local[4]. Repeatable.",
)
"""`--spark NAME=VALUE` (as `settings`, a mapping)."""

engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "spark", "local"]),
    default="auto",
    show_default=True,
    help="auto runs up to 10 million messages and 4 GiB in one process, and more on Spark. local never needs Java.",
)
"""`--engine` (as `engine`)."""


def show_each(name: str, results: Iterable[Any], *, as_json: bool) -> None:
    """Print results, for a person or as a list with a name for a program."""
    show(
        lambda: {name: list(map(plain, results))},
        lambda: (line for result in results for line in result.lines()),
        as_json=as_json,
    )


def bound(option: str, given: str | None) -> int | str | None:
    """Return a bound as a sequence or as a time in RFC 3339 (None without one), or raise an `OptionError`."""
    if given is None or given.isdecimal():
        return None if given is None else int(given)
    from nats_bridge_spark.source.read_options import time_of

    return time_of(option, given)
