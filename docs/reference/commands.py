"""The page on the commands: what `--help` says of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import click

from docs.reference.markdown import code, fenced, items
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
    "conform": "conformance",
}
_HEAD = """\
# Commands

For details and examples, run `nats-bridge COMMAND --help`. Results go to standard output, and logs and errors go to
standard error. All commands use the same [exit codes](errors.md#exit-codes). If a command uses them more specifically,
its section says so.
"""
_SHARED: Final = "Shared options"
_LONG: Final = re.compile("--[a-z]+")
# The smallest value of a number, as click shows it.
_RANGE: Final = re.compile(r"; x>=[\d.]+|  \[x>=[\d.]+\]")


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
    ours = [(name, command) for name, command in commands() if not name.startswith(_SUITE)]
    counted = Counter(row for _, command in ours for row in _options(command))
    shared = [row for row, times in counted.items() if times > 1]
    parts = [_HEAD, f"## {_SHARED}\n", items(shared)]
    return "\n".join((*parts, *(_reported(name, command, shared) for name, command in ours)))


def _reported(name: str, command: click.Command, shared: Iterable[tuple[str, str]]) -> str:
    context = click.Context(command, info_name=name)
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    parts = [f"## {name}\n"]
    if arguments and not isinstance(command, click.Group):
        parts.append(fenced("text", " ".join((name, *arguments))))
    paragraphs = (command.help or "").strip().split("\n\n")
    if guide := _GUIDES.get(name.rpartition(" ")[2]):
        paragraphs = [paragraphs[0], *(text for text in paragraphs[1:] if "Exit codes:" in text or "[twice]" in text)]
        paragraphs[0] += f" [Guide](../{guide}.md)."
    for paragraph in paragraphs:
        text = paragraph.strip("\n\b ")
        if text.startswith("Example:"):
            lines = [line.strip() for line in text.splitlines()[1:]]
            parts.append(fenced("sh", "\n".join(lines)))
        elif paragraph.lstrip().startswith("\b"):
            parts.append(fenced("text", "\n".join(line.strip() for line in text.splitlines())))
        else:
            parts.append(" ".join(text.split()) + "\n")
    options = _options(command)
    own = [
        (name, text + " [required]" * given) for (name, text), given in options.items() if (name, text) not in shared
    ]
    common = [
        f"`{_LONG.findall(row[0])[0]}`" + " (required)" * given for row, given in options.items() if row in shared
    ]
    parts += [items(own)] if own else []
    parts += [f"[Shared](#shared-options): {', '.join(common)}.\n"] if common else []
    return "\n".join(parts)


def _options(command: click.Command) -> dict[tuple[str, str], bool]:
    """The options of a command with their meanings, and whether each has to be given."""
    context = click.Context(command)
    found = {}
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and not parameter.hidden and "--help" not in parameter.opts:
            option, meaning = parameter.get_help_record(context) or ("", "")
            found[code(option), _RANGE.sub("", meaning).replace("  [required]", "")] = parameter.required
    return found
