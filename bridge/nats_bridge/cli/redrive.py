"""`nats-bridge redrive`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from nats_bridge.cli.asking import run_job, show
from nats_bridge.cli.connection_options import connection_options, known_connections
from nats_bridge.cli.options import permissions_option, print_permissions
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.kinds.advisories.advisory import STREAM_NAME
from nats_bridge.observability.printable import printable
from nats_transforms.subject import is_valid_filter

if TYPE_CHECKING:
    from nats_bridge.jobs.redrive.job import Result


_NAMED: Final = 20  # letters that a line names


@click.command("redrive")
@click.argument("stream")
@connection_options
@click.option("--consumer", metavar="NAME", help="Only what this consumer gave up.")
@click.option("--subject", metavar="FILTER", help="Only messages with this subject; wildcards are fine.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option("--rate", type=click.FloatRange(min=0.01), metavar="N", help="At most so many a second.")
@click.option(
    "--resend-doubtful",
    is_flag=True,
    help="Also those of which an interrupted redrive left unknown whether they were stored; may duplicate them.",
)
@click.option("--apply", is_flag=True, help="Do it. Without this nothing is changed.")
@permissions_option
@click.option("--json", "as_json", is_flag=True, help="The result on stdout as JSON.")
def redrive_command(stream: str, as_json: bool, permissions: bool, **given: Any) -> int:
    """Put the dead letters of STREAM back on their original subjects, each message once; first only show which.

    What was put back is kept in the stream nats-bridge_redrive, so that another run, also after a crash, puts nothing
    back twice. SIGINT and SIGTERM finish what is in flight.

    Exit codes: 0 all that is selected was put back, or could be; 1 some was not, or cannot; 2 usage or configuration;
    3 no server; 130 and 143 stopped by a signal.

    \b
    Example:
      nats-bridge redrive DLQ --server nats://127.0.0.1:4222 --consumer workers
      nats-bridge redrive DLQ --server nats://127.0.0.1:4222 --consumer workers --max 1000 --rate 50 --apply
    """
    from nats_bridge.jobs.redrive.job import redrive, redrive_needs
    from nats_bridge.jobs.redrive.letter import Wanted

    settings, connection = known_connections(**given)
    if not STREAM_NAME.fullmatch(stream):
        raise ConfigError(f"'{stream}' is no name of a stream: it has no spaces, dots and wildcards")
    subject = given["subject"] or ""
    if subject and not is_valid_filter(subject.encode()):
        raise ConfigError(f"--subject: '{subject}' is no subject; wildcards are whole tokens, as in 'orders.*.>'")
    wanted = Wanted(
        *(stream, connection, given["consumer"] or "", subject, given["most"] or 0, given["rate"] or 0),
        apply=given["apply"],
        resend_doubtful=given["resend_doubtful"],
    )
    if permissions:
        return print_permissions(settings, (connection,), redrive_needs(wanted))
    result, code = run_job(lambda stop, report: redrive(settings, wanted, stop, report), _done)
    show(lambda: _data(stream, result), lambda: _lines(stream, result), as_json=as_json)
    return code or (EXIT_GOOD if result.good else EXIT_NO)


def _done(seconds: float, done: int, total: int) -> str:
    return f"{done:,} of {total:,} put back, {done / seconds:,.0f}/s"


def _lines(stream: str, result: Result) -> Iterator[str]:
    plan, outcome = result.plan, result.outcome
    yield f"{stream} holds {plan.held:,} dead letter{'' if plan.held == 1 else 's'}"
    table = [("letters", "stream", "consumer", "reason", "to")] if plan.groups else []
    for group, number in sorted(plan.groups.items(), key=lambda each: (not each[0].redriven, -each[1], each[0].reason)):
        outcome_of = group.outcome if group.redriven else f"not: {group.outcome}"
        cells = (f"{number:,}", group.stream, group.consumer, group.reason, outcome_of)
        number_of, stream_of, consumer, reason, to = map(printable, cells)
        table.append((number_of, stream_of, consumer, reason, to))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join((first.strip().rjust(widths[0]), *rest)).rstrip()
    for number, what in (
        (plan.done, "already put back"),
        (plan.doubtful, "perhaps put back by an interrupted redrive, see --resend-doubtful"),
        (plan.beyond, "beyond --max"),
    ):
        if number:
            yield f"{what}: {number:,}"
    if outcome is None:
        if result.unsettled:
            yield f"left unfinished by an interrupted redrive, which --apply settles first: {result.unsettled:,}"
        yield f"would put back {len(plan.letters):,}; --apply does it" if plan.letters else "nothing to put back"
        return
    yield f"put back {outcome.redriven:,}"
    for reason, number in outcome.refused.items():
        yield f"{printable(reason)}: {number:,}"
    if outcome.doubtful:
        some = ", ".join(map(str, outcome.doubtful[:_NAMED])) + (", …" if len(outcome.doubtful) > _NAMED else "")
        yield f"perhaps put back, which cannot be known, see --resend-doubtful: {len(outcome.doubtful):,} ({some})"
    if outcome.interrupted:
        yield f"interrupted {printable(outcome.interrupted)}; the same command resumes"


def _data(stream: str, result: Result) -> dict[str, Any]:
    plan, outcome = result.plan, result.outcome
    return {
        "ok": result.good,
        "stream": stream,
        "held": plan.held,
        "selected": [{**group._asdict(), "letters": number} for group, number in plan.groups.items()],
        "to_redrive": len(plan.letters),
        "redriven_before": plan.done,
        "doubtful_before": plan.doubtful,
        "beyond_max": plan.beyond,
        "unsettled": result.unsettled,
        "outcome": None if outcome is None else asdict(outcome),
    }
