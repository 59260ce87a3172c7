"""Every command that the documentation shows is one: its name, its options, as many arguments as it takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec

import click
import pytest

from bridge.cli.entry import program
from tests.unit.docs.pages import ROOT, Piece, blocks, codes

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
_OURS = re.compile(r"(?:^|[;&|] ?|\$ |\$\()(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?P<words>nats-bridge [^\n]+)")


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
        if code.text.startswith("nats-bridge "):
            yield code, code.text


def _words(command: str) -> list[str]:
    """The words of a command, up to what the shell does with it."""
    reading = shlex.shlex(command.partition(" #")[0], posix=True, punctuation_chars="|&;<>")
    reading.whitespace_split = True
    reading.commenters = ""
    words: list[str] = []
    for word in reading:
        if word[0] in "|&;<>":
            break
        words.append(word)
    return words[1:]


def _parse(command: click.Command, words: list[str], name: str) -> None:
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        context.allow_interspersed_args = False
    given, rest, _ = command.make_parser(context).parse_args(list(words))
    if {"--help", "-h", "--version"} & set(words):
        return
    if isinstance(command, click.Group) and rest:
        inner = command.get_command(context, rest[0])
        assert inner is not None, f"{name} has no command '{rest[0]}'"
        _parse(inner, rest[1:], f"{name} {rest[0]}")
        return
    assert not rest, f"{name} takes no {rest}"
    for parameter in command.params:
        value = given.get(parameter.name)
        if parameter.required:
            assert isinstance(value, (str, tuple, list)), f"{name} needs {parameter.name}"
            assert value, f"{name} needs {parameter.name}"
        if isinstance(parameter.type, click.Choice) and isinstance(value, str):
            parameter.type.convert(value, parameter, context)


def _is_known(command: click.Command, words: list[str], name: str) -> None:
    """A command that is spoken of, without all that it needs: its name and its options."""
    options = {"--help"} | {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for at, word in enumerate(words):
        bare = word.strip("[]")
        if bare.startswith("-"):
            assert bare in options, f"{name} has no option {bare}"
        elif isinstance(command, click.Group) and not word.isupper():
            inner = command.get_command(click.Context(command), word)
            if inner is not None:
                _is_known(inner, words[at + 1 :], f"{name} {word}")
                return
            belongs_to_an_option = at > 0 and words[at - 1].startswith("-")
            assert belongs_to_an_option, f"{name} has no command '{word}'"


COMMANDS = list(_shown())


@pytest.mark.parametrize(("piece", "command"), COMMANDS, ids=lambda value: getattr(value, "place", value))
def test_a_command_of_ours_is_one(piece: Piece, command: str) -> None:
    check = _parse if "\n" in piece.text else _is_known
    check(program, _words(command), "nats-bridge")


def _modules() -> Iterator[tuple[Piece, str]]:
    for piece in (*blocks("sh", "bash", "console", ""), *codes()):
        for found in re.finditer(r"python -m ([a-z_.]+)", piece.text):
            yield piece, found[1]


@pytest.mark.parametrize(("piece", "module"), list(_modules()), ids=lambda value: getattr(value, "place", value))
def test_a_module_that_is_run_is_there(piece: Piece, module: str) -> None:
    if module.partition(".")[0] in {"pip", "pytest", "sphinx"}:
        return
    assert find_spec(module) is not None, f"{piece.place}: {module}"


def _targets() -> Iterator[tuple[Piece, str]]:
    for piece in blocks("sh", "bash", "console", ""):
        for found in re.finditer(r"^(?:\$ )?make ([a-z-]+)", piece.text, re.MULTILINE):
            yield piece, found[1]
    for piece in codes():
        if found := re.fullmatch(r"make ([a-z-]+)", piece.text):
            yield piece, found[1]


@pytest.mark.parametrize(("piece", "target"), list(_targets()), ids=lambda value: getattr(value, "place", value))
def test_a_target_of_make_is_there(piece: Piece, target: str) -> None:
    assert target in TARGETS, f"{piece.place}: {target}"


def test_there_is_something_to_look_at() -> None:
    assert len(COMMANDS) > 80
