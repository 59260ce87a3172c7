"""`nats-bridge redrive`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from nats_bridge.cli.asking import run_job, show
from nats_bridge.cli.connection_options import connection_options, known_connections
from nats_bridge.cli.options import only_permissions, print_permissions
from nats_bridge.errors import EXIT_GOOD, EXIT_NO, ConfigError
from nats_bridge.kinds.advisories.advisory import STREAM_NAME
from nats_bridge.observability.printable import printable
from nats_transforms.subject import is_valid_filter

if TYPE_CHECKING:
    from nats_bridge.jobs.redrive.redriving import RedriveResult


_NAMED: Final = 20  # letters that a line names
_DONE: Final = ("redriven", "doubtful", "refused", "interrupted")  # members of the result if it was applied


@click.command("redrive")
@click.argument("stream")
@connection_options
@click.option("--consumer", metavar="NAME", help="Only messages that this consumer gave up on.")
@click.option("--subject", metavar="FILTER", help="Only messages with this subject, which can have wildcards.")
@click.option("--max", "most", type=click.IntRange(min=1), metavar="N", help="Maximum number of messages.")
@click.option("--rate", type=click.FloatRange(min=0.01), metavar="N", help="Maximum messages per second.")
@click.option(
    "--resend-doubtful",
    is_flag=True,
    help="Also publish messages that an interrupted run may already have stored, which can create duplicates.",
)
@click.option("--apply", is_flag=True, help="Publish the messages.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def redrive_command(stream: str, as_json: bool, **given: Any) -> int:
    """Publish the dead letters of STREAM again on their original subjects, each message once. Without --apply, only
    list them.

    The stream nats-bridge_redrive records which messages were put back, so another run does not put them back twice,
    even after a crash. On SIGINT or SIGTERM, the command finishes messages in flight.

    Exit codes: 0 all selected messages were published or, without --apply, can be; 1 some were not, or cannot be.

    \b
    Example:
      nats-bridge redrive DLQ --server nats://127.0.0.1:4222 --consumer workers
      nats-bridge redrive DLQ --server nats://127.0.0.1:4222 --consumer workers --max 1000 --rate 50 --apply
    """
    from nats_bridge.jobs.redrive.redriving import RedriveRequest, redrive, redrive_needs

    settings, connection = known_connections(**given)
    if not STREAM_NAME.fullmatch(stream):
        raise ConfigError(f"'{stream}' is not a valid stream name: it must not contain spaces, dots or wildcards")
    subject = given["subject"] or ""
    if subject and not is_valid_filter(subject.encode()):
        raise ConfigError(
            f"--subject: '{subject}' is not a valid subject; wildcards must be whole tokens, for example 'orders.*.>'"
        )
    wanted = RedriveRequest(
        *(stream, connection, given["consumer"] or "", subject, given["most"] or 0, given["rate"] or 0),
        apply=given["apply"],
        resend_doubtful=given["resend_doubtful"],
    )
    if only_permissions():
        return print_permissions(settings, (connection,), redrive_needs(wanted))
    result, code = run_job(lambda stop, report: redrive(settings, wanted, stop, report), _done)
    show(lambda: _data(stream, result), lambda: _lines(stream, result), as_json=as_json)
    return code or (EXIT_GOOD if result.good else EXIT_NO)


def _done(seconds: float, done: int, total: int) -> str:
    return f"{done:,} of {total:,} put back, {done / seconds:,.0f}/s"


def _lines(stream: str, result: RedriveResult) -> Iterator[str]:
    yield f"{stream} holds {result.held:,} dead letter{'' if result.held == 1 else 's'}"
    for group, number in sorted(result.groups.items(), key=lambda each: (not each[0].redriven, -each[1], each[0])):
        to = f"to {group.outcome}" if group.redriven else f"not, because {group.outcome}"
        yield "  " + printable(f"{number:,} of {group.stream}, {group.consumer}, {group.reason}: {to}")
    for number, what in (
        (result.done, "already put back"),
        (result.doubtful_before, "perhaps put back by an interrupted redrive, see --resend-doubtful"),
        (result.beyond, "beyond --max"),
    ):
        if number:
            yield f"{what}: {number:,}"
    if not result.applied:
        if result.unsettled:
            yield f"left unfinished by an interrupted redrive, which --apply settles first: {result.unsettled:,}"
        yield f"would put back {len(result.letters):,}; --apply does it" if result.letters else "nothing to put back"
        return
    yield f"put back {result.redriven:,}"
    for reason, number in result.refused.items():
        yield f"{printable(reason)}: {number:,}"
    if result.doubtful:
        some = ", ".join(map(str, result.doubtful[:_NAMED])) + (", …" if len(result.doubtful) > _NAMED else "")
        yield f"perhaps put back, which cannot be known, see --resend-doubtful: {len(result.doubtful):,} ({some})"
    if result.interrupted:
        yield f"interrupted {printable(result.interrupted)}; the same command resumes"


def _data(stream: str, result: RedriveResult) -> dict[str, Any]:
    return {
        "ok": result.good,
        "stream": stream,
        "held": result.held,
        "selected": [{**group._asdict(), "letters": number} for group, number in result.groups.items()],
        "to_redrive": len(result.letters),
        "redriven_before": result.done,
        "doubtful_before": result.doubtful_before,
        "beyond_max": result.beyond,
        "unsettled": result.unsettled,
        "outcome": {name: getattr(result, name) for name in _DONE} if result.applied else None,
    }
