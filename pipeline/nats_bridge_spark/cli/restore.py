"""`nats-bridge restore`: captured streams, created again."""

from typing import Any

import click

from nats_bridge.cli.connection_options import connection_named, connection_options
from nats_bridge.cli.options import only_permissions
from nats_bridge.errors import EXIT_GOOD, ConfigError
from nats_bridge_spark.cli.options import bound, show_each


@click.command("restore")
@click.argument("directory", metavar="DIR")
@connection_options
@click.option("--stream", "streams", metavar="NAME", multiple=True, help="Only this captured stream. Repeatable.")
@click.option("--as", "name", metavar="NAME", help="Name of the restored stream.")
@click.option("--to", metavar="N|TIME", help="End with this sequence, or before this time (2026-01-31T12:00:00Z).")
@click.option(
    "--transform", nargs=2, metavar="SRC DEST", help="Transform subjects, and leave out messages that do not match."
)
@click.option(
    "--consumers",
    type=click.Choice(["resume", "as-saved", "none"]),
    default="resume",
    show_default=True,
    help="Durable consumers resume after their acknowledged messages, begin as configured, or are left out.",
)
@click.option(
    "--without",
    metavar="MEMBER",
    multiple=True,
    help="Leave this member out of the stream configuration. Repeatable.",
)
@click.option(
    "--hold", is_flag=True, help="Keep the streams closed, so that a later run can continue with a newer capture."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def restore_command(directory: str, as_json: bool, **given: Any) -> int:
    """Create the streams that were captured in DIR, with their messages and durable consumers.

    Each message keeps its subject, headers, payload and sequence, and gets a new time stamp. The stream accepts no
    other messages until it is restored. If the command is killed, run it again. No message is lost or stored twice.

    Of a directory with several captures, existing streams are left as they are, unless --stream names them.

    Exit codes: 0 restored; 1 the server rejected something, or the job failed; 2 all streams already exist, or the
    server is too old for one.

    \b
    Example:
      nats-bridge restore backup/ --server nats://127.0.0.1:4222
      nats-bridge restore backup/ --stream ORDERS --as ORDERS_OLD --transform 'orders.>' 'old.orders.>' --server west
      nats-bridge restore orders/ --server nats://127.0.0.1:4222 --to 2026-01-31T12:00:00Z
    """
    from nats_bridge_spark.session import reporting, require_libraries

    connection = connection_named(**given)
    if only_permissions():
        from nats_bridge_spark.permissions import restore_permissions

        click.echo(restore_permissions(connection, (given["name"],) if given["name"] else given["streams"]))
        return EXIT_GOOD
    require_libraries()
    from nats_bridge_spark.diff.rules import transform_of
    from nats_bridge_spark.restore.job import RestoreRequest, restore

    if given["hold"] and given["consumers"] == "as-saved":
        raise ConfigError("--hold: makes no consumers; leave out --consumers")
    if given["transform"]:
        source, destination = given["transform"]
        transform_of(source, destination, "SOURCE")  # an invalid one is an error before servers are asked
    wanted = {name: given[name] for name in ("streams", "name", "transform", "without", "consumers", "hold")}
    request = RestoreRequest(connection, directory, end=bound("--to", given["to"]), **wanted)
    with reporting("restore"):
        summaries = restore(request)
    show_each("streams", summaries, as_json=as_json)
    return EXIT_GOOD
