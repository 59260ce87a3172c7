"""Every command that the documentation shows is one: its name, its options, as many arguments as it takes."""

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec

import click

from nats_bridge.cli.entry import program
from nats_conformance.command.group import ConformGroup
from nats_conformance.command.program import program as conform_program
from tests.unit.docs.pages import ROOT, Piece, blocks, codes

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
_NOT_OURS = {"pip", "pytest", "sphinx"}
_OURS = re.compile(r"(?:^|[;&|] ?|\$ |\$\()(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?P<words>nats-(?:bridge|conform) [^\n]+)")

_PROGRAMS: dict[str, click.Command] = {"nats-bridge": program, "nats-conform": conform_program}


def _shown() -> Iterator[tuple[Piece, str]]:
    """Commands of ours, in blocks and in sentences."""
    for block in blocks():
        if block.language in {"yaml", "python"}:
            continue
        lines = block.text.replace("\\\n", " ").splitlines()
        for line in lines:
            typed = block.language in {"sh", "bash", "console", ""} or line.startswith("$ ")
            for found in _OURS.finditer(line) if typed else ():
                yield block, found["words"]
    for code in codes():
        if code.text.startswith(("nats-bridge ", "nats-conform ")):
            yield code, code.text


def _words(command: str) -> list[str]:
    """The words of a command, up to what the shell does with it."""
    reading = shlex.shlex(command.partition(" #")[0], posix=True, punctuation_chars="|&;<>")
    reading.whitespace_split = True
    reading.commenters = ""
    words: list[str] = []
    for word in reading:
        if word[0] in "|&;<>":
            if word[0] == ">" and words[-1].isdecimal():  # 2> FILE
                words.pop()
            break
        words.append(word)
    return words


def _parse(command: click.Command, words: list[str], name: str) -> None:
    context = click.Context(command, info_name=name)
    if isinstance(command, ConformGroup):
        words = command.with_command(words)
    if isinstance(command, click.Group):
        context.allow_interspersed_args = False
    given, rest, _ = command.make_parser(context).parse_args(list(words))
    if {"--help", "-h", "--version"} & set(words):
        return
    if isinstance(command, click.Group) and rest:
        inner = command.get_command(context, rest[0])
        if inner is None:
            raise click.UsageError(f"{name} has no command '{rest[0]}'")
        _parse(inner, rest[1:], f"{name} {rest[0]}")
        return
    if rest:
        raise click.UsageError(f"{name} takes no {rest}")
    for parameter in command.params:
        value = given.get(parameter.name)
        if parameter.required and not (isinstance(value, (str, tuple, list)) and value):
            raise click.UsageError(f"{name} needs {parameter.name}")
        if isinstance(parameter.type, click.Choice) and isinstance(value, str):
            parameter.type.convert(value, parameter, context)


def _is_known(command: click.Command, words: list[str], name: str) -> None:
    """A command that is spoken of, without all that it needs: its name and its options."""
    options = {"--help"} | {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    if isinstance(command, ConformGroup):
        words = command.with_command(words)
    for at, word in enumerate(words):
        bare = word.strip("[]")
        if bare.startswith("-"):
            if bare not in options:
                raise click.UsageError(f"{name} has no option {bare}")
        elif isinstance(command, click.Group) and not word.isupper():
            inner = command.get_command(click.Context(command), word)
            if inner is not None:
                _is_known(inner, words[at + 1 :], f"{name} {word}")
                return
            belongs_to_an_option = at > 0 and words[at - 1].startswith("-")
            if not belongs_to_an_option:
                raise click.UsageError(f"{name} has no command '{word}'")


def test_a_command_of_ours_is_one() -> None:
    shown = list(_shown())
    assert len(shown) > 80
    wrong = []
    for piece, command in shown:
        check = _parse if "\n" in piece.text else _is_known
        try:
            name, *words = _words(command)
            check(_PROGRAMS[name], words, name)
        except click.ClickException as error:
            wrong.append(f"{piece.place}: {command}: {error.format_message()}")
    assert not wrong, "\n".join(wrong)


def _modules() -> Iterator[tuple[Piece, str]]:
    for piece in (*blocks("sh", "bash", "console", ""), *codes()):
        for found in re.finditer(r"python -m ([a-z_.]+)", piece.text):
            yield piece, found[1]


def test_a_module_that_is_run_is_there() -> None:
    ours = [(piece, module) for piece, module in _modules() if module.partition(".")[0] not in _NOT_OURS]
    assert len(ours) > 5
    missing = [f"{piece.place}: {module}: no such module" for piece, module in ours if find_spec(module) is None]
    assert not missing, "\n".join(missing)


def _targets() -> Iterator[tuple[Piece, str]]:
    for piece in blocks("sh", "bash", "console", ""):
        for found in re.finditer(r"^(?:\$ )?make ([a-z-]+)", piece.text, re.MULTILINE):
            yield piece, found[1]
    for piece in codes():
        if found := re.fullmatch(r"make ([a-z-]+)", piece.text):
            yield piece, found[1]


def test_a_target_of_make_is_there() -> None:
    named = list(_targets())
    assert len(named) > 10
    missing = [f"{piece.place}: make {target}: no such target" for piece, target in named if target not in TARGETS]
    assert not missing, "\n".join(missing)
