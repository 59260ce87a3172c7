"""`nats-bridge explain`: explain a transform to a person, or apply it for a program line by line."""

import json
import sys
from collections.abc import Callable, Sequence
from io import BufferedReader
from json.encoder import encode_basestring_ascii
from typing import Any, BinaryIO, Final, TypeAlias, assert_never, cast

import click

from nats_bridge.cli.options import dialect_option
from nats_bridge.errors import EXIT_GOOD, EXIT_NO
from nats_transforms.destination import Kind
from nats_transforms.dialect import Dialect
from nats_transforms.errors import TransformError
from nats_transforms.explanation import Explanation, Input, TokenOrigin
from nats_transforms.subject import bytes_of, is_valid_publish, one_line, text_of
from nats_transforms.transform import Transform, compile_transform


@click.command("explain")
@click.argument("source", metavar="SRC", required=False)
@click.argument("destination", metavar="DEST", required=False)
@click.argument("subjects", metavar="[SUBJECT…]", nargs=-1)
@dialect_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
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
    """Show how a transform produces a subject, token by token.

    Exit codes: 0 all subjects match; 1 a subject does not match, or a server would reject the transform.

    With --jsonl, the answer to each line of stdin is one line on stdout: {"subject": "…"}, {"subject": null} if the
    source does not match, or {"error": "…"}. Bytes that are not UTF-8 are read and written as \\udc80 to \\udcff (byte
    + 0xdc00).

    \b
    Example:
      nats-bridge explain 'orders.*.*' 'o.{{partition(3,1,2)}}.{{wildcard(2)}}' orders.eu.42
      nats-bridge explain 'orders.*' '{{left(1,2)}}.$1' --dialect 2.10
      echo '{"src":"a.*","dest":"b.$1","subject":"a.x"}' | nats-bridge explain --jsonl
    """
    if as_lines:
        if source is not None or as_json:
            raise click.UsageError(
                "--jsonl reads src, dest and subject from stdin; remove the arguments and --json", ctx
            )
        answer_stream(cast("BufferedReader", sys.stdin.buffer), sys.stdout.buffer, version)
        return EXIT_GOOD
    if source is None or destination is None:
        raise click.UsageError("needs SRC and DEST, for example 'orders.*' 'o.$1' (or --jsonl)", ctx)
    try:
        transform = compile_transform(bytes_of(source), bytes_of(destination), version)
    except TransformError as error:
        if as_json:
            _print_json({"dialect": version.name, "error": error.reason, "code": error.code})
        else:
            # Comes with all settings, which a good transform does not need.
            from nats_bridge.settings.checks.transforming import remedy

            text = f"nats-server {version.name} rejects '{source}' → '{destination}': {error.reason}"
            click.echo(_printable(text + remedy(error.code, source, destination)), err=True)
        return EXIT_NO
    return _as_json(transform, subjects) if as_json else _for_a_person(transform, subjects)


def _as_json(transform: Transform, subjects: tuple[str, ...]) -> int:
    explanations = [transform.explain(bytes_of(subject)) for subject in subjects]
    _print_json(
        {
            "dialect": transform.dialect.name,
            "source": text_of(transform.pattern),
            "destination": text_of(transform.destination),
            "defects": list(transform.defects),
            "explanations": [explanation.as_dict() for explanation in explanations],
        }
    )
    return EXIT_NO if any(explanation.result is None for explanation in explanations) else EXIT_GOOD


def _for_a_person(transform: Transform, subjects: tuple[str, ...]) -> int:
    lines = _heading(transform)
    matched = True
    if not subjects and not transform.is_empty:
        lines += ["", click.style("good: servers of this version accept it", fg="green")]
    for subject in subjects:
        explanation = transform.explain(bytes_of(subject))
        matched = matched and explanation.result is not None
        lines += _subject_lines(explanation, transform.dialect)
    click.echo(_printable("\n".join(lines)))
    return EXIT_GOOD if matched else EXIT_NO


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, indent=2))


def _printable(text: str) -> str:
    # Arguments that are not UTF-8 come as surrogates.
    return text_of(bytes_of(text))


_DEFECTS: Final = {
    "crash-partition-zero": "partition of 0 crashes servers of this version at the first matching message",
}


def _heading(transform: Transform) -> list[str]:
    """Return the lines that show the transform and the defects that servers have with it."""
    lines = [
        f"source       {_escaped(transform.pattern)}",
        f"destination  {_escaped(transform.destination) or '(empty: no transform)'}",
        f"server       {transform.dialect.name}",
    ]
    warnings = [_DEFECTS.get(defect, defect) for defect in transform.defects]
    return lines + [click.style(f"warning      {warning}", fg="yellow") for warning in warnings]


def _subject_lines(explanation: Explanation, dialect: Dialect) -> list[str]:
    """Explain one subject: the result and the source of each of its tokens, or why there is none."""
    subject = _escaped(explanation.subject)
    if explanation.mismatch is not None:
        return ["", f"{subject} → {click.style('no match', fg='red')}: {explanation.mismatch.reason}"]
    result = explanation.result or b""
    rows = [("#", "token", "becomes", "how")]
    for at, token in enumerate(explanation.tokens, 1):
        rows.append((str(at), _escaped(token.token), _escaped(token.result), _how(token)))
    lines = ["", f"{subject} → {click.style(_escaped(result), fg='green', bold=True)}", "", *_table(rows)]
    if not is_valid_publish(result):
        fate = (
            "republish drops it, ingress transforms store it"
            if dialect.republish_suppresses_invalid_subject
            else "servers of this version use it anyway"
        )
        lines += ["", click.style(f"warning: the result is not a valid subject; {fate}", fg="yellow")]
    return lines


def _how(token: TokenOrigin) -> str:
    inputs = " and ".join(_input(item) for item in token.inputs)
    match Kind(token.function):
        case Kind.LITERAL:
            return "as it is written"
        case Kind.REST:
            copied = _tokens_range([item.position for item in token.inputs if item.position])
            return f"the rest of the subject: {copied}"
        case Kind.WILDCARD:
            return inputs
        case Kind.PARTITION:
            key = _escaped(b"".join(item.value for item in token.inputs))
            hashed = f"FNV-1a of '{key}' is {token.hash}"
            return f"{inputs}; {hashed}, modulo {token.modulus} is {_escaped(token.result)}"
        case Kind.RANDOM:
            return f"a random number below {token.arguments['n']}, another one next time"
        case Kind.SPLIT:
            return f"{inputs}, split on '{token.arguments['delimiter']}'"
        case Kind.SPLIT_FROM_LEFT:
            return f"{inputs}, cut after the first {_bytes(token)}"
        case Kind.SPLIT_FROM_RIGHT:
            return f"{inputs}, cut before the last {_bytes(token)}"
        case Kind.SLICE_FROM_LEFT:
            return f"{inputs}, cut into pieces of {_bytes(token, ' from the left')}"
        case Kind.SLICE_FROM_RIGHT:
            return f"{inputs}, cut into pieces of {_bytes(token, ' from the right')}"
        case Kind.LEFT:
            return f"{inputs}, the first {_bytes(token)}"
        case Kind.RIGHT:
            return f"{inputs}, the last {_bytes(token)}"
        case forgotten:
            assert_never(forgotten)


def _bytes(token: TokenOrigin, side: str = "") -> str:
    unchanged = b"".join(item.value for item in token.inputs) == token.result
    return f"{token.arguments['n']} bytes{side}{' (unchanged: that is all of it, or nothing)' if unchanged else ''}"


def _input(item: Input) -> str:
    if item.wildcard is None or item.position is None:
        return "the entire subject"
    return f"{_place(item.wildcard, item.position)} '{_escaped(item.value)}'"


def _place(index: int, position: int) -> str:
    # Index 0 and negative indexes mean the first token (on all servers).
    return f"wildcard {index} (token {position})" if index > 0 else f"index {index}, which means token {position}"


def _tokens_range(positions: list[int]) -> str:
    if len(positions) == 1:
        return f"token {positions[0]}"
    return f"tokens {positions[0]} to {positions[-1]}"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    lines = [
        "  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
    return [click.style(lines[0], dim=True), *lines[1:]]


def _escaped(raw: bytes) -> str:
    return one_line(text_of(raw))


_READ_SIZE: Final = 256 * 1024
_MAX_CACHED: Final = 10_000
_Apply: TypeAlias = Callable[[bytes], bytes | None]

# Subjects as JSON texts: bytes that are not UTF-8 are lone surrogates, \udc80 to \udcff, both ways.
_ENCODING: Final = ("utf-8", "surrogateescape")


def answer_stream(source: BufferedReader, sink: BinaryIO, dialect: Dialect) -> None:
    """Answer every line of `source` until its end.

    Answers to all complete lines are flushed before more input is read, so a program can exchange single lines with it.
    """
    answerer = LineAnswerer(dialect)
    pieces: list[bytes] = []  # of a line whose end has not come in yet
    while chunk := source.read1(_READ_SIZE):
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            pieces.append(chunk)
            continue
        lines = b"".join([*pieces, head]).split(b"\n")
        pieces = [tail] if tail else []
        sink.write(b"".join([answerer.answer(line) for line in lines]))
        sink.flush()
    if pieces:
        sink.write(answerer.answer(b"".join(pieces)))
        sink.flush()


class LineAnswerer:
    """Answers lines. Each pair of source and destination is compiled only once.

    Args:
        dialect: the server version to behave like.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[tuple[str, str], _Apply | str] = {}

    def answer(self, line: bytes) -> bytes:
        """Return the answer to one line, with its line end. Never raises."""
        try:
            request = json.loads(line.decode(*_ENCODING))
        except ValueError as error:
            return _error(f"not valid JSON: {error}")
        except RecursionError:
            return _error("not valid JSON: nested too deeply")
        if not isinstance(request, dict):
            return _error('must be an object: {"src", "dest", "subject"}')
        source, destination, subject = request.get("src"), request.get("dest"), request.get("subject")
        if not (isinstance(source, str) and isinstance(destination, str) and isinstance(subject, str)):
            wrong = [key for key in ("src", "dest", "subject") if not isinstance(request.get(key), str)]
            return _error(f"{', '.join(wrong)}: must be a string")
        try:
            apply = self._compiled.get((source, destination)) or self._compile(source, destination)
            if isinstance(apply, str):
                return _error(apply)
            result = apply(subject.encode(*_ENCODING))
        except UnicodeEncodeError as error:
            return _error(f"'\\u{ord(error.object[error.start]):04x}' is half a surrogate pair, not a byte")
        if result is None:
            return b'{"subject": null}\n'
        return b'{"subject": %b}\n' % encode_basestring_ascii(result.decode(*_ENCODING)).encode("ascii")

    def _compile(self, source: str, destination: str) -> _Apply | str:
        if len(self._compiled) >= _MAX_CACHED:
            self._compiled.clear()
        compiled: _Apply | str
        try:
            compiled = compile_transform(source.encode(*_ENCODING), destination.encode(*_ENCODING), self._dialect).apply
        except TransformError as error:
            compiled = error.reason
        self._compiled[(source, destination)] = compiled
        return compiled


def _error(text: str) -> bytes:
    return b'{"error": %b}\n' % encode_basestring_ascii(text).encode("ascii")
