"""`nats-bridge capture`: streams as Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from nats_bridge.cli.asking import ask, show
from nats_bridge.cli.connection_options import connection_named, connection_options
from nats_bridge.cli.options import only_permissions
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.observability.printable import printable
from nats_bridge_spark.cli.options import bound, engine_option, spark_option
from nats_bridge_spark.reports import as_json as plain

if TYPE_CHECKING:
    from nats_bridge_spark.session import Engine

_SETTINGS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Spark's default, INT96, has no statistics, so readers could not skip rows."""


@click.command("capture")
@click.argument("stream", metavar="[STREAM]", required=False)
@click.argument("directory", metavar="DIR", required=False)
@connection_options
@click.option(
    "--all", "everything", is_flag=True, help="All streams of the account, each in a directory with its name."
)
@click.option("--subjects", metavar="FILTER,…", default="", help="Only messages with these subjects.")
@click.option("--from", "begin", metavar="N|TIME", help="Begin at this sequence or time (2026-01-31T12:00:00Z).")
@click.option("--to", "end", metavar="N|TIME", help="End with this sequence, or before this time.")
@click.option("--allow-gaps", is_flag=True, help="Continue if messages were removed before they were captured.")
@click.option(
    "--continuous",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Continue until SIGTERM or Ctrl-C, and write a file of new messages at this interval.",
)
@engine_option
@spark_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def capture_command(
    stream: str | None,
    directory: str | None,
    everything: bool,
    engine: Engine,
    settings: dict[str, str],
    as_json: bool,
    **given: Any,
) -> int:
    """Capture STREAM, or with --all every stream, as Parquet files in DIR. Another run resumes there.

    Readers use DIR/messages, which always contains each message exactly once, however an earlier run ended. Its columns
    are stream, subject, sequence, time (microseconds), time_ns, header_block (raw) and data. DIR also contains the
    configurations of the stream and its durable consumers, for nats-bridge restore.

    Exit codes: 0 captured; 1 messages were removed, the stream was recreated, or the job failed; 2 DIR contains
    something else.

    \b
    Example:
      nats-bridge capture ORDERS orders/ --server nats://127.0.0.1:4222
      nats-bridge capture ORDERS /data/orders -c bridge.yaml --server west --continuous 30
      nats-bridge capture --all backup/ --server nats://127.0.0.1:4222
    """
    from nats_bridge_spark.session import engine_session, require_libraries

    if stream is None:
        raise click.UsageError("Missing argument 'DIR': use STREAM DIR, or --all DIR.")
    if everything:
        stream, directory = _all_of(stream, directory, given)
    elif directory is None:
        raise click.UsageError("Missing argument 'DIR'.")
    connection = connection_named(**given)
    if only_permissions():
        from nats_bridge_spark.permissions import capture_permissions

        click.echo(capture_permissions(connection, None if everything else stream))
        return EXIT_GOOD
    require_libraries()
    from nats_bridge_spark.capture.account import AccountCapture
    from nats_bridge_spark.capture.capturing import CaptureRequest, capture, facts_of
    from nats_bridge_spark.progress import watched
    from nats_bridge_spark.source.read_options import filters_of, require_name

    require_name("STREAM", stream)
    if given["continuous"] and given["end"]:
        raise ConfigError("--continuous: has no end; leave out --to")
    wanted = CaptureRequest(
        connection=connection,
        stream=stream,
        directory=directory,
        subjects=filters_of("--subjects", given["subjects"]),
        begin=bound("--from", given["begin"]),
        end=bound("--to", given["end"]),
        allow_gaps=given["allow_gaps"],
        interval=given["continuous"],
    )
    # A missing server or stream is an error before Java has started.
    account = ask(AccountCapture.of(connection, directory)) if everything else None
    if account is None:
        state = ask(facts_of(connection, stream, (), 0)).state
    size = account.size if account else (state.messages, state.size)

    job = f"capture {stream}"
    with engine_session(job, engine, settings, lambda: size, _SETTINGS) as spark:
        if account is None:
            with watched(spark, job, drains=wanted.interval is not None) as progress:
                result = capture(spark, wanted, progress)
            show(lambda: plain(result), result.lines, as_json=as_json)
            return EXIT_GOOD
        account.run(spark, wanted)
    show(account.to_json, account.lines, as_json=as_json)
    if not as_json:
        for name, said in account.failed:
            click.echo(f"{printable(name)}: not captured: {printable(said)}", err=True)
    return EXIT_NO if account.failed else EXIT_GOOD


def _all_of(first: str, second: str | None, given: dict[str, Any]) -> tuple[str, str]:
    """Return a name for all streams, and the directory, which is the only argument."""
    if second is not None:
        raise ConfigError(f"--all: captures every stream, including '{first}'; remove one of the two")
    for name, option in (("subjects", "subjects"), ("begin", "from"), ("end", "to"), ("continuous", "continuous")):
        if given[name]:
            raise ConfigError(f"--{option}: applies to one stream; remove --all")
    return "all", first
