"""The environment variables and secret files that override the configuration file.

`BRIDGE_HTTP__LISTEN=:8322` sets `http.listen`; two underscores separate levels. Lists and mappings are JSON. With
`BRIDGE_SECRETS_DIR=/run/secrets`, a file `/run/secrets/BRIDGE_HTTP__LISTEN` has the same effect. The environment takes
precedence over secret files, and both over the YAML file.

pydantic-settings reads both. This module decides which names are settings, and remembers the origin of each value.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource, NestedSecretsSettingsSource, SecretsSettingsSource, SettingsError

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.model_errors import keys_of, place_of
from nats_bridge.settings.models import DELIMITER, PREFIX, Settings
from nats_bridge.settings.problems import closest, is_close

SECRETS_DIR_VARIABLE: Final = "BRIDGE_SECRETS_DIR"
"""Names the folder with secret files."""

# Kubernetes sets such variables for a service named `bridge` or `bridge-…`; they are not settings.
_SERVICE_LINK: Final = re.compile(r".*(_SERVICE_(HOST|PORT)|_PORT)(_.*)?|SERVICE_(HOST|PORT).*|PORT(_.*)?", re.I)


class _Variables(EnvSettingsSource):
    """A source with checked names. A value is a string, or JSON if it begins like a list or mapping."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) and _is_json(value) else value


class _SecretFiles(_Variables, NestedSecretsSettingsSource):
    """A source of secret files with checked names."""


@dataclass(slots=True)
class Overlay:
    """Values that win over the file's.

    Attributes:
        sources: the settings' sources, in order of precedence.
        variables: which variable or secret file gave the value at a path, keys in lower case.
        problems: lines about variables that cannot be used.
    """

    sources: list[EnvSettingsSource] = field(default_factory=list)
    variables: dict[Path, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def variable_of(self, path: Path) -> str | None:
        """Return the variable or secret file that gave the value at `path`, or a value around it."""
        lowered = tuple(part.lower() if isinstance(part, str) else part for part in path)
        around = (lowered[:length] for length in range(len(lowered), 0, -1))
        return next((self.variables[each] for each in around if each in self.variables), None)


def overlay(environ: Mapping[str, str], connections: Collection[str] = ()) -> Overlay:
    """Return the sources for variables in `environ` and for secret files.

    Args:
        environ: variables by name.
        connections: the names in the file. Variables are case-insensitive: `BRIDGE_CONNECTIONS__WEST__…` sets `West`.
    """
    result = Overlay()
    given = {name.lower(): (name, value) for name, value in environ.items() if name.upper().startswith(PREFIX)}
    _, folder = given.pop(SECRETS_DIR_VARIABLE.lower(), ("", ""))
    variables = _Variables(Settings)
    variables.env_vars = _judged(given, connections, result)
    result.sources.append(variables)
    if folder:
        try:
            files = _SecretFiles(SecretsSettingsSource(Settings, secrets_dir=folder), secrets_dir_missing="error")
        except (SettingsError, OSError, UnicodeDecodeError) as error:
            reason = f'"{folder}" is not a directory' if FilePath(folder).is_file() else str(error)
            result.problems.append(f"{SECRETS_DIR_VARIABLE}: {reason}")
        else:
            names = {path.name.lower(): str(path) for path in FilePath(folder).iterdir()}
            held = {name: (names.get(name, name), value or "") for name, value in files.env_vars.items()}
            files.env_vars = _judged(held | given, connections, result, among=held.keys() - given.keys())
            result.sources.append(files)
    return result


def _judged(
    given: Mapping[str, tuple[str, str]],
    connections: Collection[str],
    result: Overlay,
    among: Collection[str] | None = None,
) -> dict[str, str | None]:
    """Return the usable values by name. The others become problems.

    Args:
        given: the variable or file, and its value, by name in lower case.
        result: gets the problems, and which variable or file gave a value.
        among: the wanted names; all if left out.
    """
    usable: dict[str, str | None] = {}
    for name, (variable, value) in sorted(given.items()):
        if not name.startswith(PREFIX.lower()) or (among is not None and name not in among):
            continue
        keys = name.removeprefix(PREFIX.lower()).split(DELIMITER)
        problem = _problem(keys, value, given)
        if problem is None:
            result.variables[tuple(keys)] = variable
            if len(keys) > 1 and keys[0] == "connections":
                keys[1] = next((known for known in connections if known.lower() == keys[1]), keys[1])
            usable[PREFIX.lower() + DELIMITER.join(keys)] = value
        elif problem:
            result.problems.append(f"{variable}: {problem}")
    return usable


def _problem(keys: list[str], value: str, given: Mapping[str, tuple[str, str]]) -> str | None:
    """Return the reason why a variable cannot be used; empty if it is not a setting, None if it can be used."""
    known = keys_of(Settings)
    name = DELIMITER.join(keys)
    if keys[0] not in known:
        if _SERVICE_LINK.fullmatch(name) or not is_close(keys[0], known):
            return ""
        word = closest(keys[0], known)
        return f"unknown setting; did you mean '{word}'? (variable {PREFIX}{str(word).upper()})"
    if not all(keys):
        return "a name between the underscores is empty; put two underscores between levels, as in BRIDGE_HTTP__LISTEN"
    if _is_json(value) and not _takes_text(keys):
        try:
            json.loads(value)
        except ValueError as error:
            return f"not valid JSON: {error}"
    if len(keys) > 1 and Settings.model_fields[keys[0]].annotation is str:
        return f"'{keys[0]}' has no keys; use {PREFIX}{keys[0].upper()}"
    for length in range(1, len(keys)):
        _, around = given.get(PREFIX.lower() + DELIMITER.join(keys[:length]), ("", "{"))
        if not around.lstrip().startswith("{"):
            return f"'{keys[length - 1]}' is already set as a whole by another variable; remove one of them"
    return None


def _is_json(value: str) -> bool:
    return value.lstrip()[:1] in ("[", "{")


def _takes_text(keys: list[str]) -> bool:
    # Such a value is a text even if it begins as JSON does: `[::1]:8322`.
    field = place_of(tuple(keys)).field
    return field is not None and field.annotation in {str, str | None}
