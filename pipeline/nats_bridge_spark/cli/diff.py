"""`nats-bridge diff`: compares the messages of two histories."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from nats_bridge.cli.asking import show
from nats_bridge.cli.connection_options import connection_named
from nats_bridge.cli.options import optional_config_option
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.settings import Connection, load
from nats_bridge_spark.cli.options import engine_option, spark_option

if TYPE_CHECKING:
    from nats_bridge_spark.diff.sides import DiffEngine, SideLocation
    from nats_transforms.republish import Republish
    from nats_transforms.sourcing import Sourcing


_Value = TypeVar("_Value")

_SETTINGS: Final = {
    "spark.driver.memory": "2g",
    # With payloads of megabytes, ten thousand rows fit into no task.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # Otherwise Spark would not fit the number of tasks to the size of rows that are kept, and each task costs time.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
_STREAM: Final = "stream:"
_BY: Final = ("auto", "sequence", "provenance", "provenance:right", "id", "subject")


@click.command(name="diff")
@click.argument("left", metavar="LEFT")
@click.argument("right", metavar="RIGHT")
@click.option("--by", type=click.Choice(_BY), default="auto", show_default=True, help="How messages are identified.")
@click.option(
    "--source", metavar="NAME", default="", help="Name of the left stream in the records of the right side's copies."
)
@click.option("--ignore-header", "ignored", metavar="NAME", multiple=True, help="A header to ignore. Repeatable.")
@click.option(
    "--allow",
    "allowed",
    metavar="KIND",
    multiple=True,
    help="A kind of finding that does not count as a difference. Repeatable.",
)
@click.option(
    "--transform", nargs=2, metavar="SRC DEST", help="Transform the subjects of the left side before the comparison."
)
@click.option("--rule", metavar="NAME", help="The rule in -c FILE that copies the left side.")
@click.option("--subjects", multiple=True, metavar="FILTER,…", help="Only messages with these subjects.  [twice]")
@click.option(
    "--from", "first", multiple=True, type=click.IntRange(1), metavar="N", help="From this sequence.  [twice]"
)
@click.option("--to", "last", multiple=True, type=click.IntRange(1), metavar="N", help="Up to this sequence.  [twice]")
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="URL|NAME",
    help="Server URLs, a `nats` context or, with -c FILE, a connection.  [twice]",
)
@optional_config_option
@click.option("--out", metavar="DIR", help="Write every finding to this directory, as Parquet.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@engine_option
@spark_option
def diff_command(left: str, right: str, **given: Any) -> int:
    """Compare two streams or captures, message by message.

    LEFT and RIGHT are streams (NAME or stream:NAME) or directories of captures. Two messages are the same if they have
    the same sequence, are copies of the same message of the same stream, or have the same Nats-Msg-Id. The command
    detects which of these applies, unless --by sets it. With --by subject, the newest message of each subject is
    compared.

    An option marked [twice] applies to both sides. If you give it twice, the first value is for LEFT.

    Exit codes: 0 equal; 1 different.

    \b
    Example:
      nats-bridge diff COPY COPY --server nats://old:4222 --server nats://new:4222
      nats-bridge diff captures/native captures/bridged --out findings/
      nats-bridge diff ORDERS ORDERS_EU --server nats://127.0.0.1:4222 -c bridge.yaml --rule eu
      nats-bridge diff KV_eu KV_us --server nats://eu:4222 --server nats://us:4222 --by subject
    """
    from nats_bridge_spark.session import engine_session, require_libraries

    require_libraries()
    from nats_bridge_spark.capture.place import place_of
    from nats_bridge_spark.diff.comparing import Comparison
    from nats_bridge_spark.diff.findings import KINDS
    from nats_bridge_spark.diff.local_rows import local_engine, size_of
    from nats_bridge_spark.diff.run import compared
    from nats_bridge_spark.diff.summary import as_json, summary
    from nats_bridge_spark.progress import watched

    for kind in given["allowed"]:
        if kind not in KINDS:
            raise ConfigError(f"--allow {kind}: unknown kind of finding; allowed: {', '.join(KINDS)}")
    out = place_of(given["out"]) if given["out"] else None
    if out is not None and (out.size("") is not None or out.names()):
        raise ConfigError(f"--out {out}: already exists; name an empty directory, or a new one")
    places = _place(0, left, given), _place(1, right, given)
    wanted = Comparison(
        by=given["by"],
        ignored_headers=tuple(name.encode() for name in given["ignored"]),
        source=given["source"].encode(),
        rule=_rule(given, given["source"] or (places[0].name if places[0].connection else "")),
    )
    names = [place.name.rstrip("/").rpartition("/")[2] or place.name for place in places]
    job = f"diff {names[0]} {names[1]}"
    running = engine_session("diff", given["engine"], given["settings"], lambda: size_of(places), _SETTINGS)
    with running as spark, watched(spark, job) as progress:
        engine: AbstractContextManager[DiffEngine] = local_engine()
        if spark is not None:
            from nats_bridge_spark.diff.spark_rows import spark_engine

            engine = spark_engine(spark)
        with engine as made:
            result = compared(made, *places, wanted, frozenset(given["allowed"]), progress)
            if out is not None:
                progress.enter("writing the findings")
                result.findings.write(given["out"])
    seconds = round(time.monotonic() - progress.started, 3)
    show(lambda: {**as_json(result), "seconds": seconds}, lambda: summary(result), as_json=given["as_json"])
    return EXIT_GOOD if result.is_equal else EXIT_NO


def _place(side: int, text: str, given: dict[str, Any]) -> SideLocation:
    from nats_bridge_spark.diff.sides import SideLocation

    is_path = "/" in text or "\\" in text or Path(text).exists()
    is_stream = text.startswith(_STREAM) or not is_path
    return SideLocation(
        name=text.removeprefix(_STREAM),
        connection=_connection(side, text, given) if is_stream else None,
        first=_of_side("from", side, given["first"]),
        last=_of_side("to", side, given["last"]),
        subjects=tuple((_of_side("subjects", side, given["subjects"]) or "").split(",")) if given["subjects"] else (),
    )


def _of_side(option: str, side: int, values: tuple[_Value, ...]) -> _Value | None:
    if len(values) > 2:
        raise ConfigError(f"--{option}: is given {len(values)} times; once is for both sides, twice for each of them")
    return values[min(side, len(values) - 1)] if values else None


def _connection(side: int, text: str, given: dict[str, Any]) -> Connection:
    server, config = _of_side("server", side, given["servers"]), given["config"]
    if server is None and config is None:
        raise ConfigError(
            f"{text}: is not a directory, so it is a stream, and its server is missing: use --server nats://127.0.0.1:4222,"
            " or the name of a `nats` context, or -c FILE"
        )
    is_url = server is not None and ":" in server  # -c FILE is then only for its rule
    return connection_named(server=server, config=None if is_url else config)


def _rule(given: dict[str, Any], stream: str) -> Sourcing | Republish | None:
    """Return the rule for the options `--rule NAME` (of `-c FILE`) or `--transform SRC DEST`; None without them."""
    from nats_bridge_spark.diff.rules import rule_of, transform_of

    if given["transform"] and given["rule"]:
        raise ConfigError("--transform and --rule: use only one of them")
    if given["transform"]:
        source, destination = given["transform"]
        return transform_of(source, destination, stream or "SOURCE")
    if given["rule"] and given["config"] is None:
        raise ConfigError("--rule NAME needs -c FILE")
    return rule_of(load(given["config"]), given["rule"], stream) if given["rule"] else None
