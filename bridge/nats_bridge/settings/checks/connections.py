"""Checks connections: combinations, the files that they name, and references from rules."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from nats_bridge.marked_yaml import Path
from nats_bridge.settings.connect_options import options_of
from nats_bridge.settings.connections import SECRET_FILES, TLS_FILES, Connection, combination_problems
from nats_bridge.settings.models import Settings
from nats_bridge.settings.problems import Problem, did_you_mean
from nats_bridge.settings.secrets import FieldError, UnreadableFileError, check_readable


def connection_problems(settings: Settings, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of single connections, with the files that they name."""
    for name, connection in settings.connections.items():
        at = ("connections", name)
        found = [Problem((*at, *field), message) for field, message in combination_problems(connection)]
        if not found:
            try:
                options_of(connection, environ)
            except FieldError as error:
                absent = list(_unreadable(connection)) if isinstance(error, UnreadableFileError) else []
                found += [
                    Problem((*at, *each.field.split(".")), each.reason, is_unreadable=bool(absent))
                    for each in absent or [error]
                ]
        yield from found


def _unreadable(connection: Connection) -> Iterator[FieldError]:
    named = {field: getattr(connection, field) for field in SECRET_FILES}
    named |= {f"tls.{field}": getattr(connection.tls, field) for field in TLS_FILES if connection.tls}
    for field, path in named.items():
        try:
            if path:
                check_readable(field, path)
        except UnreadableFileError as error:
            yield error
        except FieldError:
            continue  # a problem of the content


def reference_problems(settings: Settings) -> Iterator[Problem]:
    """Yield problems with duplicate names of rules, and with connections that do not exist."""
    first_of: dict[str, int] = {}
    for position, rule in enumerate(settings.rules):
        if first_of.setdefault(rule.name, position) != position:
            message = f"'{rule.name}' is already the name of rules[{first_of[rule.name]}]; names must be unique"
            yield Problem(("rules", position, "name"), message)
    names = list(settings.connections)
    for at, part in _parts(settings, ()) if names else ():
        for field, info in type(part).model_fields.items():
            if not field.endswith("connection") or (wanted := getattr(part, field)) in names:
                continue
            key = info.alias or field
            is_given = field in part.model_fields_set
            here = f"no connection '{wanted}'" if is_given else f"'{key}' is not set and defaults to 'default'"
            known = did_you_mean(wanted, names, otherwise="known connections")
            yield Problem((*at, key), f"{here}; {known}")


def _parts(value: Any, at: Path) -> Iterator[tuple[Path, BaseModel]]:
    """Yield every part of the configuration with its path."""
    if isinstance(value, BaseModel):
        yield at, value
        for name, info in type(value).model_fields.items():
            yield from _parts(getattr(value, name), (*at, info.alias or name))
    elif isinstance(value, tuple):
        for position, entry in enumerate(value):
            yield from _parts(entry, (*at, position))
