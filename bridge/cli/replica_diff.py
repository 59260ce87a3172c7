"""`nats-bridge replica-diff`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from nats_bridge.bridge.cli.asking import run_job, show
from nats_bridge.bridge.cli.connection_options import connection_options, known_connections
from nats_bridge.bridge.cli.options import permissions_option, print_permissions
from nats_bridge.bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.bridge.observability.printable import printable

if TYPE_CHECKING:
    from nats_bridge.bridge.jobs.replica_diff.comparing import Difference
    from nats_bridge.bridge.jobs.replica_diff.job import Result

_NAMED: Final = 5  # sequences that a line names


@click.command("replica-diff")
@click.argument("stream")
@connection_options
@click.option("--from-sequence", "first", type=click.IntRange(1), default=1, metavar="N", help="From this sequence.")
@click.option("--to-sequence", "last", type=click.IntRange(1), metavar="N", help="Up to this sequence.")
@click.option(
    "--settle",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="What differs is compared again after so long; only what differs both times counts.",
)
@permissions_option
@click.option("--quiet", "-q", "quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="The result on stdout as JSON.")
def replica_diff_command(stream: str, quiet: bool, as_json: bool, permissions: bool, **given: Any) -> int:
    """Compare what the servers of a cluster hold of STREAM, message by message.

    Each replica is read from its own server: subject, headers, payload, time and sequence of every message. Nothing is
    changed. Only of streams with retention limits, of which a consumer can be created on each server.

    Exit codes: 0 all replicas hold the same; 1 they differ, or one could not be read; 2 usage or configuration; 3 no
    server; 130 and 143 stopped by a signal.

    \b
    Example:
      nats-bridge replica-diff ORDERS --server nats://127.0.0.1:4222
      nats-bridge replica-diff ORDERS --context prod --from-sequence 1000000 --json
    """
    settings, name = known_connections(**given)
    if given["last"] is not None and given["last"] < given["first"]:
        raise ConfigError(f"--to-sequence {given['last']}: is before --from-sequence {given['first']}")
    if permissions:
        from nats_bridge.bridge.jobs.replica_diff.replica_reader import replica_diff_needs

        return print_permissions(settings, (name,), replica_diff_needs(stream, name))
    from nats_bridge.bridge.jobs.replica_diff.job import Wanted, compare_replicas

    wanted = Wanted(stream, name, given["first"], given["last"], given["settle"])
    result, code = run_job(lambda stop, report: compare_replicas(settings, wanted, stop, report), _done, quiet=quiet)
    show(lambda: _data(result), lambda: _lines(result), as_json=as_json)
    return code or (EXIT_GOOD if result.is_equal else EXIT_NO)


def _done(_: float, doing: str, at: int, last: int) -> str:
    return f"{doing}: sequence {at:,} of {last:,}"


def _lines(result: Result) -> Iterator[str]:
    yield f"{result.stream}: {len(result.replicas)} replicas, sequences {result.first:,} to {result.last:,}"
    width = max(len(replica.server) for replica in result.replicas)
    for replica in result.replicas:
        holds = f"{replica.messages:,} messages" + (
            f", {replica.first:,} to {replica.last:,}" if replica.messages else ""
        )
        facts = ", leads" * replica.leads + f", {replica.lag:,} behind" * bool(replica.lag)
        yield f"  {printable(replica.server).ljust(width)}  {holds}{facts}"
        if replica.unread:
            since = " from there on" * bool(replica.messages)
            yield f"  {' ' * width}  not compared{since}: {printable(replica.unread)}"
    for difference, sequences in sorted(_grouped(result).items(), key=lambda item: item[1]):
        named = ", ".join(map(str, sequences[:_NAMED])) + ", …" * (len(sequences) > _NAMED)
        yield f"{_text(difference)}: {len(sequences):,} ({named})"
    if result.cut:
        yield "stopped there: too much differs"
    if result.stopped:
        yield "interrupted"
    if result.differences:
        yield f"DIFFERENT in {len(result.differences):,} sequence{'s' * (len(result.differences) != 1)}"
    else:
        yield "EQUAL" if result.is_equal else "INCOMPLETE: what was compared is equal"


def _grouped(result: Result) -> dict[Difference, list[int]]:
    groups: defaultdict[Difference, list[int]] = defaultdict(list)
    for sequence, differences in result.differences.items():
        for difference in differences:
            groups[difference].append(sequence)
    return groups


def _text(difference: Difference) -> str:
    where = ", ".join(map(printable, difference.servers))
    match difference.kind:
        case "missing":
            return f"missing on {where}"
        case "extra":
            return f"only on {where}"
        case "different":
            return f"another {', '.join(difference.parts)} on {where}"


def _data(result: Result) -> dict[str, Any]:
    return {
        "ok": result.is_equal,
        "stream": result.stream,
        "first": result.first,
        "last": result.last,
        "replicas": [asdict(replica) for replica in result.replicas],
        "differences": [
            {"sequence": sequence, **asdict(difference)}
            for sequence, differences in result.differences.items()
            for difference in differences
        ],
        "cut": result.cut,
        "stopped": result.stopped,
    }
