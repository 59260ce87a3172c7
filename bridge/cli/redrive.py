"""`nats-bridge redrive`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from nats_bridge.bridge.cli.asking import run_job, show
from nats_bridge.bridge.cli.connection_options import connection_options, known_connections
from nats_bridge.bridge.cli.options import permissions_option, print_permissions
from nats_bridge.bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.bridge.kinds.advisories.advisory import STREAM_NAME
from nats_bridge.bridge.observability.printable import printable
from nats_bridge.transforms.subject import is_valid_filter
from nats_bridge.transforms.timestamp import nanoseconds_of

if TYPE_CHECKING:
    from nats_bridge.bridge.jobs.redrive.job import Result
    from nats_bridge.bridge.jobs.redrive.plan import Wanted
    from nats_bridge.bridge.permissions import Need


_NAMED: Final = 20  # letters that a line names


@click.command("redrive")
@click.argument("stream")
@connection_options
@click.option("--to", "target", metavar="NAME", help="With -c: the connection of the streams that take the messages.")
@click.option("--stream", "source", metavar="NAME", help="Only messages of this stream.")
@click.option("--consumer", metavar="NAME", help="Only what this consumer gave up.")
@click.option("--subject", metavar="FILTER", help="Only messages with this subject; wildcards are fine.")
@click.option("--reason", metavar="TEXT", help="Only where the reason has this text.")
@click.option("--from-time", metavar="TIME", help="Only dead letters stored then or later (2026-01-31T12:00:00Z).")
@click.option("--to-time", metavar="TIME", help="Only dead letters stored before.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@click.option("--rate", type=click.FloatRange(min=0.01), metavar="N", help="At most so many a second.")
@click.option(
    "--resend-doubtful",
    is_flag=True,
    help="Also those of which an interrupted redrive left unknown whether they were stored; may duplicate them.",
)
@click.option("--apply", is_flag=True, help="Do it. Without this nothing is changed.")
@permissions_option
@click.option("--quiet", "-q", "quiet", is_flag=True, help="No progress on stderr.")
@click.option("--json", "as_json", is_flag=True, help="The result on stdout as JSON.")
def redrive_command(stream: str, quiet: bool, as_json: bool, permissions: bool, **given: Any) -> int:
    """Put the dead letters of STREAM back on their original subjects, each message once; first only show which.

    What was put back is kept in the stream nats-bridge_redrive, so that another run, also after a crash, puts nothing
    back twice. SIGINT and SIGTERM finish what is in flight.

    Exit codes: 0 all that is selected was put back, or could be; 1 some cannot; 2 usage or configuration; 3 no server;
    130 and 143 stopped by a signal.

    \b
    Example:
      nats-bridge redrive DLQ --server nats://127.0.0.1:4222 --consumer workers
      nats-bridge redrive DLQ --server nats://127.0.0.1:4222 --consumer workers --max 1000 --rate 50 --apply
      nats-bridge redrive DLQ -c bridge.yaml --connection west --to east --apply
    """
    settings, letters = known_connections(**given)
    target = given["target"] or letters
    if target not in settings.connections:
        raise ConfigError(f"--to {target}: no such connection; there is {', '.join(settings.connections)}")
    for given_name in filter(None, (stream, given["source"])):
        if not STREAM_NAME.fullmatch(given_name):
            raise ConfigError(f"'{given_name}' is no name of a stream: it has no spaces, dots and wildcards")
    if permissions:
        return print_permissions(settings, (letters, target), _needs(stream, letters, target, given))
    from nats_bridge.bridge.jobs.redrive.job import redrive

    wanted = _wanted(stream, letters, target, given)
    result, code = run_job(lambda stop, report: redrive(settings, wanted, stop, report), _done, quiet=quiet)
    show(lambda: _data(stream, result), lambda: _lines(stream, result), as_json=as_json)
    return code or (EXIT_GOOD if result.good else EXIT_NO)


def _wanted(stream: str, letters: str, target: str, given: dict[str, Any]) -> Wanted:
    from nats_bridge.bridge.jobs.redrive.letter import Selection
    from nats_bridge.bridge.jobs.redrive.plan import Wanted

    subject = given["subject"] or ""
    if subject and not is_valid_filter(subject.encode()):
        raise ConfigError(f"--subject: '{subject}' is no subject; wildcards are whole tokens, as in 'orders.*.>'")
    selection = Selection(
        stream=given["source"] or "",
        consumer=given["consumer"] or "",
        subject=subject,
        reason=given["reason"] or "",
        from_ns=_time("--from-time", given["from_time"]),
        to_ns=_time("--to-time", given["to_time"]),
        most=given["most"] or 0,
    )
    return Wanted(
        stream,
        letters,
        target,
        selection,
        apply=given["apply"],
        rate=given["rate"] or 0,
        resend_doubtful=given["resend_doubtful"],
    )


def _time(option: str, text: str | None) -> int:
    try:
        return nanoseconds_of(text) if text else 0
    except ValueError:
        raise ConfigError(f"{option}: '{text}' is no time; write 2026-01-31T12:00:00Z") from None


def _needs(stream: str, letters: str, target: str, given: dict[str, Any]) -> Iterator[Need]:
    from nats_bridge.bridge.jobs.redrive.job import redrive_needs

    return redrive_needs(stream, letters, target, source=given["source"] or "", subject=given["subject"] or "")


def _done(seconds: float, done: int, total: int, waits_for: str) -> str:
    waiting = f"; waits for {printable(waits_for)}" if waits_for else ""
    return f"{done:,} of {total:,} put back, {done / seconds:,.0f}/s{waiting}"


_TITLES: Final = ("letters", "stream", "consumer", "reason", "to")


def _lines(stream: str, result: Result) -> Iterator[str]:
    plan, outcome = result.plan, result.outcome
    yield f"{stream} holds {_letters(plan.held)}" + (
        f", and {plan.others:,} other message{'' if plan.others == 1 else 's'}" if plan.others else ""
    )
    rows = [
        (
            f"{number:,}",
            group.stream,
            group.consumer,
            group.reason,
            group.outcome if group.redriven else f"not: {group.outcome}",
        )
        for group, number in sorted(
            plan.groups.items(), key=lambda item: (not item[0].redriven, -item[1], item[0].reason)
        )
    ]
    table = [_TITLES, *([printable(cell) for cell in row] for row in rows)] if rows else []
    widths = [max(len(row[at]) for row in table) for at in range(len(_TITLES))] if table else []
    for row in table:
        yield "  ".join(
            cell.rjust(width) if not at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
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
    settled = f" ({outcome.settled:,} of them begun by a redrive that was interrupted)" if outcome.settled else ""
    yield f"put back {outcome.redriven:,}{settled}"
    if outcome.gone:
        yield f"removed before they could be read: {outcome.gone:,}"
    for reason, number in outcome.refused.items():
        yield f"refused: {number:,} by {printable(reason)}"
    if outcome.doubtful:
        some = ", ".join(map(str, outcome.doubtful[:_NAMED])) + (", …" if len(outcome.doubtful) > _NAMED else "")
        yield f"perhaps put back, which cannot be known, see --resend-doubtful: {len(outcome.doubtful):,} ({some})"
    if outcome.interrupted:
        yield "interrupted: the same command resumes"


def _letters(number: int) -> str:
    return f"{number:,} dead letter{'' if number == 1 else 's'}"


def _data(stream: str, result: Result) -> dict[str, Any]:
    plan, outcome = result.plan, result.outcome
    return {
        "ok": result.good,
        "stream": stream,
        "held": plan.held,
        "others": plan.others,
        "selected": [{**asdict(group), "letters": number} for group, number in plan.groups.items()],
        "to_redrive": len(plan.letters),
        "redriven_before": plan.done,
        "doubtful_before": plan.doubtful,
        "beyond_max": plan.beyond,
        "unsettled": result.unsettled,
        "outcome": None if outcome is None else asdict(outcome),
    }
