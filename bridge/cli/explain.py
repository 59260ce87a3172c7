"""`nats-bridge explain`: a transform told to a person, or done for a program line by line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from nats_bridge.bridge.cli.explain_lines import answer_stream
from nats_bridge.bridge.cli.explain_table import heading, subject_lines, transform_lines
from nats_bridge.bridge.cli.options import dialect_option
from nats_bridge.bridge.errors import EXIT_GOOD, EXIT_NO
from nats_bridge.transforms.dialect import Dialect
from nats_bridge.transforms.errors import TransformError
from nats_bridge.transforms.transform import Transform, compile_transform

if TYPE_CHECKING:
    from io import BufferedReader

__all__ = ["explain_command"]


@click.command("explain")
@click.argument("source", metavar="SRC", required=False)
@click.argument("destination", metavar="DEST", required=False)
@click.argument("subjects", metavar="[SUBJECT…]", nargs=-1)
@dialect_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--jsonl", "as_lines", is_flag=True, help='Read {"src", "dest", "subject"} per line from stdin.')
@click.pass_context
def explain_command(
    ctx: click.Context,
    source: str | None,
    destination: str | None,
    subjects: tuple[str, ...],
    version: Dialect,
    as_json: bool,
    as_lines: bool,
) -> int:
    """Show how a transform makes a subject, token by token.

    Exit code 0: all subjects match. 1: one does not, or a server would refuse the transform.

    With --jsonl, every line of stdin is answered by one line on stdout, in order: {"subject": "…"},
    {"subject": null} when the source does not match, or {"error": "…"}. Bytes of a subject that are not
    UTF-8 are written, and understood, as \\udc80 to \\udcff (byte + 0xdc00).

    \b
    Example:
      nats-bridge explain 'orders.*.*' 'o.{{partition(3,1,2)}}.{{wildcard(2)}}' orders.eu.42
      nats-bridge explain 'orders.*' '{{left(1,2)}}.$1' --dialect 2.10
      echo '{"src":"a.*","dest":"b.$1","subject":"a.x"}' | nats-bridge explain --jsonl
    """
    if as_lines:
        if source is not None or as_json:
            raise click.UsageError("--jsonl reads src, dest and subject from stdin; give no arguments, no --json", ctx)
        answer_stream(cast("BufferedReader", sys.stdin.buffer), sys.stdout.buffer, version)
        return EXIT_GOOD
    if source is None or destination is None:
        raise click.UsageError("needs SRC and DEST, such as 'orders.*' 'o.$1' (or --jsonl)", ctx)
    try:
        transform = compile_transform(_bytes(source), _bytes(destination), version)
    except TransformError as error:
        if as_json:
            _print_json({"dialect": version.name, "error": error.reason, "code": error.code})
        else:
            # Comes with all settings, which a good transform does not need.
            from nats_bridge.bridge.settings.checks.transforming import remedy

            text = f"a {version.name} server refuses '{source}' → '{destination}': {error.reason}"
            click.echo(_printable(text + remedy(error.code, source, destination)), err=True)
        return EXIT_NO
    return _as_json(transform, subjects) if as_json else _for_a_person(transform, subjects)


def _as_json(transform: Transform, subjects: tuple[str, ...]) -> int:
    explanations = [transform.explain(_bytes(subject)) for subject in subjects]
    _print_json(
        {
            "dialect": transform.dialect.name,
            "source": _text(transform.pattern),
            "destination": _text(transform.destination),
            "defects": list(transform.defects),
            "explanations": [explanation.as_dict() for explanation in explanations],
        }
    )
    return EXIT_NO if any(explanation.result is None for explanation in explanations) else EXIT_GOOD


def _for_a_person(transform: Transform, subjects: tuple[str, ...]) -> int:
    lines = heading(transform)
    matched = True
    if not subjects:
        lines += transform_lines(transform)
    for subject in subjects:
        explanation = transform.explain(_bytes(subject))
        matched = matched and explanation.result is not None
        lines += subject_lines(explanation, transform.dialect)
    click.echo(_printable("\n".join(lines)))
    return EXIT_GOOD if matched else EXIT_NO


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, indent=2))


def _bytes(text: str) -> bytes:
    # Arguments that are not UTF-8 come as surrogates; this gives their bytes back.
    return text.encode("utf-8", "surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _printable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
