"""Loads `Settings` from a YAML file, the environment and secret files, or lists all problems."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError
from pydantic_settings import InitSettingsSource

from nats_bridge.errors import ConfigError
from nats_bridge.marked_yaml import Document, DocumentError, Mark, Path, compose
from nats_bridge.settings.checks import settings_problems
from nats_bridge.settings.connections import PATH_FIELDS
from nats_bridge.settings.environment import Overlay, overlay
from nats_bridge.settings.model_errors import model_problems
from nats_bridge.settings.models import Settings
from nats_bridge.settings.problems import Problem, described, quoted
from nats_transforms.subject import one_line

SCHEMA_KEY = "$schema"
"""A top-level key that names the schema for editors that do not read it from a comment. Its value is ignored."""


def load(
    path: FilePath | str, environ: Mapping[str, str] | None = None, *, unreadable: list[str] | None = None
) -> Settings:
    """Read a configuration.

    Args:
        path: the YAML file.
        environ: variables to use instead of the process's own.
        unreadable: gets the problems with files of connections that cannot be read here. Without it, they are errors.

    Raises:
        ConfigError: one line for each problem: file:line:column (or the variable), field, value, and a correct
            alternative. Problems between parts are reported only when all parts are well-formed.
    """
    return loads(_read(FilePath(path), str(path)), FilePath(path).parent, str(path), environ, unreadable=unreadable)


def loads(
    text: str,
    folder: FilePath,
    shown: str,
    environ: Mapping[str, str] | None = None,
    *,
    unreadable: list[str] | None = None,
) -> Settings:
    """Read a configuration from its text, as `load` does.

    Args:
        text: of the YAML file.
        folder: the folder for relative paths.
        shown: the name of the file in errors.
        environ: variables to use instead of the process's own.
    """
    environ = os.environ if environ is None else environ
    document = _composed(text, shown)
    file = _File(document, folder)
    connections = file.init_kwargs.get("connections")
    over = overlay(environ, connections if isinstance(connections, dict) else ())
    try:
        settings = Settings.read(*over.sources, file)
        problems = list(settings_problems(settings, environ))
        if unreadable is not None:
            unreadable += [problem.within(()) for problem in problems if problem.is_unreadable]
            problems = [problem for problem in problems if not problem.is_unreadable]
        if not problems and not over.problems:
            return settings
    except ValidationError as error:
        problems = list(model_problems(error.errors(include_url=False)))
    problems = [replace(each, rule=_rule_of(each.path, document)) for each in _distinct(problems)]
    reported: list[tuple[Mark | None, str]] = [(None, line) for line in over.problems]
    reported += _reported(problems, document, over, shown)
    lines = [one_line(line) for _, line in reported]
    quotes = tuple(quoted(text, mark) if mark else "" for mark, _ in reported)
    raise ConfigError("\n".join(lines), problems=tuple(lines), quotes=quotes, found=tuple(problems))


def _read(path: FilePath, shown: str) -> str:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{shown}: no such file; give the configuration with -c FILE") from None
    except IsADirectoryError:
        raise ConfigError(f"{shown}: is a folder; give the configuration file in it") from None
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read ({error.strerror})") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = Mark.behind(content[: error.start].decode("utf-8", "replace"))
        raise ConfigError(f"{shown}:{place.line}:{place.column}: not UTF-8; save the file as UTF-8") from None


def _composed(text: str, shown: str) -> Document:
    try:
        document = compose(text)
    except DocumentError as error:
        mark = error.mark or Mark(1, 1)
        raise ConfigError(
            f"{shown}:{mark.line}:{mark.column}: {one_line(error.reason)}", quotes=(quoted(text, mark),)
        ) from None
    if document.value is not None and not isinstance(document.value, dict):
        raise ConfigError(
            f"{shown}:1:1: must be a mapping with rules: …, not {one_line(described(document.value))}",
            quotes=(quoted(text, Mark(1, 1)),),
        )
    return document


class _File(InitSettingsSource):
    """The values of the YAML file, with paths relative to its folder."""

    def __init__(self, document: Document, folder: FilePath) -> None:
        data = dict(document.value or {})
        if isinstance(data.get(SCHEMA_KEY), str):
            del data[SCHEMA_KEY]  # it is for editors
        if isinstance(data.get("connections"), dict):
            data["connections"] = {name: _with_paths(given, folder) for name, given in data["connections"].items()}
        super().__init__(Settings, data)


def _with_paths(given: Any, folder: FilePath) -> Any:
    """Return a connection with the paths it names, made relative to `folder`."""
    if not isinstance(given, dict):
        return given
    return {
        key: _with_paths(value, folder)
        if key == "tls"
        else str(folder / FilePath(value).expanduser())
        if key in PATH_FIELDS and isinstance(value, str) and value
        else value
        for key, value in given.items()
    }


def _distinct(problems: list[Problem]) -> list[Problem]:
    # A misspelled key is missing as well. Report only the misspelling.
    suggested = {(*problem.path[:-1], problem.suggests) for problem in problems}
    return [each for each in problems if each.missing is None or (*each.path, each.missing) not in suggested]


def _rule_of(path: Path, document: Document) -> str:
    """Return the name of the rule that a path leads into; empty if there is none."""
    match path:
        case ("rules", int() as position, *_):
            rule = document.value["rules"][position]
            return str(rule.get("name", "")) if isinstance(rule, dict) else ""
        case _:
            return ""


def _reported(problems: list[Problem], document: Document, over: Overlay, file: str) -> list[tuple[Mark | None, str]]:
    """Return the problems as lines, in the order of the file, with their places in it."""
    lines: list[tuple[Mark, str]] = []
    for problem in problems:
        what = problem.within(())
        variable = over.variable_of(problem.path)
        mark = document.key_mark(problem.path) if problem.at_key else document.value_mark(problem.path)
        if variable is not None:
            lines.append((Mark(0, 0), f"{variable}: {what}"))
        else:
            mark = mark or Mark(1, 1)
            lines.append((mark, f"{file}:{mark.line}:{mark.column}: {what}"))
    return [(mark if mark.line else None, line) for mark, line in sorted(lines, key=lambda entry: entry[0])]
