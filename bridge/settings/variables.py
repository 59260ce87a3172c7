"""Settings from `BRIDGE_` environment variables and from a folder of secret files, through pydantic-settings.

`BRIDGE_HTTP__LISTEN=:8222` sets `http.listen`; two underscores separate levels. Lists and mappings are
JSON. With `BRIDGE_SECRETS_DIR=/run/secrets`, a file `/run/secrets/BRIDGE_HTTP__LISTEN` does the same. The
environment wins over secret files, both win over the YAML file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, NestedSecretsSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from nats_bridge.bridge.settings.environment import PREFIX, SECRETS_DIR_VARIABLE, Overlay
from nats_bridge.bridge.settings.model_walk import allowed_keys
from nats_bridge.bridge.settings.models import Settings
from nats_bridge.bridge.settings.problems import did_you_mean, is_close

__all__ = ["read_into"]

DELIMITER: Final = "__"

# Kubernetes sets such variables for a service that is called `bridge` or `bridge-…`; they are no settings.
_SERVICE_LINK: Final = re.compile(r".*(_SERVICE_(HOST|PORT)|_PORT)(_.*)?|SERVICE_(HOST|PORT).*|PORT(_.*)?", re.I)


class _Shape(Settings, BaseSettings):
    """The fields of `Settings`, as pydantic-settings wants to see them; never instantiated."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter=DELIMITER, extra="ignore")


class _Variables(EnvSettingsSource):
    """Reads given variables instead of the process's own, and leaves texts that are no JSON to validation."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        super().__init__(_Shape)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._variables.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        return json.loads(value) if _looks_like_json(value) else value


def read_into(result: Overlay, environ: Mapping[str, str]) -> None:
    """Add what the variables of `environ`, and the secret files they point to, set."""
    variables: dict[str, str] = {}
    sources: dict[str, str] = {}
    for name, (origin, value) in sorted(_given(environ, result).items()):
        keys = name[len(PREFIX) :].lower().split(DELIMITER)
        problem = _unusable(name, keys, value)
        if problem is None:
            variables[name] = value
            sources[name] = origin
        elif problem:
            result.problems.append(f"{origin}: {problem}")
    result.values.update(_Variables(variables)())
    for name, origin in sources.items():
        keys = name[len(PREFIX) :].lower().split(DELIMITER)
        if _reaches(result.values, keys):
            result.origins[tuple(keys)] = origin
        else:
            result.problems.append(f"{origin}: '{keys[0]}' has no parts; known: BRIDGE_{keys[0].upper()}")


def _given(environ: Mapping[str, str], result: Overlay) -> dict[str, tuple[str, str]]:
    """All variables and secret files, by upper-case name: where it comes from, and its value."""
    given: dict[str, tuple[str, str]] = {}
    folder = environ.get(SECRETS_DIR_VARIABLE)
    if folder:
        try:
            # Takes care of what secret volumes look like: links, hidden folders, sizes.
            source = NestedSecretsSettingsSource(
                _Shape,  # type: ignore[arg-type]  # documented to take the class as well
                secrets_dir=folder,
                secrets_dir_missing="error",
                secrets_case_sensitive=True,
            )
            for name, value in source.env_vars.items():
                if name.upper().startswith(PREFIX):
                    given[name.upper()] = (str(FilePath(folder) / name), value or "")
        except (SettingsError, OSError, UnicodeDecodeError) as error:
            result.problems.append(f"{SECRETS_DIR_VARIABLE}: {error}")
    for name, value in environ.items():
        if name.upper().startswith(PREFIX) and name.upper() != SECRETS_DIR_VARIABLE:
            given[name.upper()] = (name, value)
    return given


def _unusable(name: str, keys: list[str], value: str) -> str | None:
    """Why a variable cannot be used; an empty text if it is none of ours, None if it is fine."""
    known = allowed_keys(())
    if keys[0] not in known:
        rest = name[len(PREFIX) :]
        if _SERVICE_LINK.fullmatch(rest) or not is_close(keys[0], known):
            return ""
        return f"unknown setting; {did_you_mean(keys[0], known)} (variable BRIDGE_{_best(keys[0], known)})"
    if not all(keys):
        return "an empty part between underscores; levels are separated by two, as in BRIDGE_HTTP__LISTEN"
    if _looks_like_json(value):
        try:
            json.loads(value)
        except ValueError as error:
            return f"not valid JSON: {error}"
    return None


def _best(word: str, known: tuple[str, ...]) -> str:
    return did_you_mean(word, known).partition("'")[2].partition("'")[0].upper()


def _looks_like_json(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}


def _reaches(values: Any, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(values, dict) or key not in values:
            return False
        values = values[key]
    return True
