"""The page on the commands: what `--help` says of each."""

from __future__ import annotations

from collections.abc import Iterator

import click

from docs.reference.markdown import code, fenced, table
from nats_bridge.cli.entry import program

# nats-conform's own commands and those on servers, which docs/conformance.md explains.
_SUITE = ("nats-bridge conform ", "nats-bridge servers ")
# Commands with a guide, which has their examples and details.
_GUIDES = {
    "init": "init",
    "handoff": "handoff",
    "failover": "failover",
    "watch": "watch",
    "redrive": "redrive",
    "capture": "spark-backfill",
    "backfill": "spark-backfill",
    "restore": "spark-restore",
    "diff": "spark-diff",
}
_HEAD = """\
# Commands

Every command with its options, from what `--help` says. This page is generated: `python -m docs.reference --write`.

Exit codes, unless a command lists others: 0 success, 1 check failed, 2 usage or configuration error, 3 server
unreachable. An error is one or two lines on standard error, and `nats-bridge --debug COMMAND` adds a traceback. Answers
go to standard output, logs and progress to standard error. `capture`, `backfill` and `diff` need the extra `spark`
([Spark](../spark.md)). `nats-conform COMMAND --help` has the options of the [suite](../conformance.md).
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command of `nats-bridge` by its full name, those of groups included."""
    context = click.Context(program, info_name="nats-bridge")
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        assert command is not None
        yield from _with_parts(f"nats-bridge {name}", command)


def _with_parts(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from _with_parts(f"{name} {part}", inner)


def page() -> str:
    """The page's text."""
    return "\n".join(
        [_HEAD, *(_reported(name, command) for name, command in commands() if not name.startswith(_SUITE))]
    )


def _reported(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name)
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    parts = [f"## {name}\n"]
    if arguments and not isinstance(command, click.Group):
        parts.append(fenced("text", " ".join((name, *arguments))))
    paragraphs = (command.help or "").strip().split("\n\n")
    if guide := _GUIDES.get(name.rpartition(" ")[2]):
        paragraphs = [paragraphs[0], *(text for text in paragraphs[1:] if "Exit codes:" in text)]
        paragraphs.append(f"Guide: [{guide}](../{guide}.md).")
    for paragraph in paragraphs:
        text = paragraph.strip("\n\b ")
        if text.startswith("Example:"):
            lines = [line.strip() for line in text.splitlines()[1:]]
            parts.append(fenced("sh", "\n".join(lines)))
        elif paragraph.lstrip().startswith("\b"):
            parts.append(fenced("text", "\n".join(line.strip() for line in text.splitlines())))
        else:
            parts.append(" ".join(text.split()) + "\n")
    options = [row for row in map(_option, command.get_params(context)) if row]
    if options:
        parts.append(table(("option", "meaning"), options))
    return "\n".join(parts)


def _option(parameter: click.Parameter) -> tuple[str, str] | None:
    if not isinstance(parameter, click.Option) or parameter.hidden or "--help" in parameter.opts:
        return None
    record = parameter.get_help_record(click.Context(click.Command("any")))
    assert record is not None
    return code(record[0]), record[1] or ""
