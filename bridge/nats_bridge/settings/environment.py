"""Reads environment variables and secret files, whose values override the configuration file's.

`BRIDGE_HTTP__LISTEN=:8322` sets `http.listen`; two underscores separate levels. Lists and mappings are
JSON. With `BRIDGE_SECRETS_DIR=/run/secrets`, a file `/run/secrets/BRIDGE_HTTP__LISTEN` does the same. The
environment wins over secret files, both win over the YAML file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, Final

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.model_errors import allowed_keys
from nats_bridge.settings.models import Settings
from nats_bridge.settings.problems import did_you_mean, is_close

PREFIX: Final = "BRIDGE_"
SECRETS_DIR_VARIABLE: Final = "BRIDGE_SECRETS_DIR"
"""Names the folder with secret files."""

_DELIMITER: Final = "__"

# Kubernetes sets such variables for a service that is called `bridge` or `bridge-…`; they are no settings.
_SERVICE_LINK: Final = re.compile(r".*(_SERVICE_(HOST|PORT)|_PORT)(_.*)?|SERVICE_(HOST|PORT).*|PORT(_.*)?", re.I)


@dataclass(frozen=True, slots=True)
class Overlay:
    """Values that win over the file's.

    Attributes:
        values: nested as in the file, keys in lower case.
        variables: which variable or secret file gave the value at a path.
        problems: lines about variables that cannot be used.
    """

    values: dict[str, Any] = field(default_factory=dict)
    variables: dict[Path, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def overlay(environ: Mapping[str, str]) -> Overlay:
    """Read the values that variables of `environ`, and the secret files they point to, set."""
    result = Overlay()
    given = {name.upper(): (name, value) for name, value in environ.items() if name.upper().startswith(PREFIX)}
    _, folder = given.pop(SECRETS_DIR_VARIABLE, ("", ""))
    if folder:
        try:
            given = {**dict(_secret_files(FilePath(folder))), **given}
        except FileNotFoundError:
            result.problems.append(f'{SECRETS_DIR_VARIABLE}: directory "{folder}" does not exist')
        except NotADirectoryError:
            result.problems.append(f'{SECRETS_DIR_VARIABLE}: "{folder}" is not a directory')
        except (OSError, UnicodeDecodeError) as error:
            result.problems.append(f"{SECRETS_DIR_VARIABLE}: {error}")
    for name, (variable, value) in sorted(given.items()):  # what is around a value comes before it
        if problem := _take(result, name.removeprefix(PREFIX), variable, value):
            result.problems.append(f"{variable}: {problem}")
    return result


def _secret_files(folder: FilePath) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each file of a folder, or link to one, by upper-case name: its path, and what it holds."""
    for path in sorted(folder.iterdir()):
        if path.name.upper().startswith(PREFIX) and path.is_file():
            yield path.name.upper(), (str(path), path.read_text("utf-8").strip())


def _take(result: Overlay, name: str, variable: str, value: str) -> str:
    """Add what one variable sets; why it cannot be used, or an empty text."""
    keys, known = name.lower().split(_DELIMITER), allowed_keys(())
    if keys[0] not in known:
        if _SERVICE_LINK.fullmatch(name) or not is_close(keys[0], known):
            return ""  # not one of ours
        hint = did_you_mean(keys[0], known)
        return f"unknown setting; {hint} (variable {PREFIX}{_quoted(hint).upper()})"
    if not all(keys):
        return "an empty part between underscores; levels are separated by two, as in BRIDGE_HTTP__LISTEN"
    read: Any = value
    if value.lstrip()[:1] in ("[", "{"):
        try:
            read = json.loads(value)
        except ValueError as error:
            return f"not valid JSON: {error}"
    if len(keys) > 1 and Settings.model_fields[keys[0]].annotation is str:
        return f"'{keys[0]}' has no parts; known: {PREFIX}{keys[0].upper()}"
    around = result.values
    for key in keys[:-1]:
        around = around.setdefault(key, {})
        if not isinstance(around, dict):
            return f"'{key}' has no parts where another variable sets it as a whole"
    before = around.get(keys[-1])
    around[keys[-1]] = before | read if isinstance(before, dict) and isinstance(read, dict) else read
    result.variables[tuple(keys)] = variable
    return ""


def _quoted(hint: str) -> str:
    return hint.partition("'")[2].partition("'")[0]
