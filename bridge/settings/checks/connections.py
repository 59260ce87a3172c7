"""Checks connections: combinations, the files that they name, and references from rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from nats_bridge.bridge.settings.connect_options import options_of
from nats_bridge.bridge.settings.connections import CREDENTIALS, IN_A_CONTEXT, Connection, is_websocket
from nats_bridge.bridge.settings.problems import Problem, did_you_mean
from nats_bridge.bridge.settings.rules import KINDS, Rule
from nats_bridge.bridge.settings.secrets import FieldError
from nats_bridge.marked_yaml import Path


def connection_problems(connections: Iterable[tuple[str, Connection]], environ: Mapping[str, str]) -> Iterator[Problem]:
    """The problems of single connections, with the files that they name."""
    for name, connection in connections:
        found = list(_combination_problems(connection))
        if not found:
            try:
                options_of(connection, environ)
            except FieldError as error:
                found.append(((*error.field.split("."),), error.reason))
        for field, message in found:
            yield Problem(("connections", name, *field), message)


def _combination_problems(connection: Connection) -> Iterator[tuple[tuple[str, ...], str]]:
    given = [field for field in IN_A_CONTEXT if getattr(connection, field)]
    if connection.context:
        for field in given:
            yield (
                (field,),
                f"'{field}' cannot be combined with 'context', which says it already; remove one of them",
            )
        return
    if not connection.servers:
        yield (), 'needs servers, or a context; such as servers: ["nats://127.0.0.1:4222"]'
    credentials = [field for field in CREDENTIALS if getattr(connection, field)]
    for field in credentials[1:]:
        yield (
            (field,),
            f"'{field}' cannot be combined with '{credentials[0]}'; a connection is one user, keep one of them",
        )
    if connection.user and not connection.password_file:
        yield ("user",), "needs 'password_file' as well, the path of a file with the password"
    if connection.password_file and not connection.user:
        yield ("password_file",), "needs 'user' as well"


def websocket_problems(
    connections: Iterable[tuple[str, Connection]], rules: Iterable[Rule], leadership: Any
) -> Iterator[Problem]:
    """WebSockets of connections by which something connects as a client.

    Args:
        connections: those that are well formed.
        rules: the same.
        leadership: the section as it stands in the configuration.
    """
    clients = {name: f"rule '{rule.name}'" for rule in rules for name in rule.connections}
    if isinstance(leadership, dict):
        clients[str(leadership.get("connection", "default"))] = "leadership"
    for name, connection in connections:
        if name in clients and (urls := [url for url in connection.servers if is_websocket(url)]):
            yield Problem(
                ("connections", name, "servers"),
                f"'{urls[0]}': {clients[name]} connects as a client, and only a leaf connection can be a WebSocket; use"
                " a nats:// or tls:// URL",
            )


_KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        kind: tuple(field.alias or name for name, field in model.model_fields.items() if name.endswith("connection"))
        for kind, model in KINDS.items()
    }
)
"""The keys by which a rule of a kind names connections; the sources of a copying rule have `from` in addition."""


def reference_problems(rules: Any, connections: Iterable[str]) -> Iterator[Problem]:
    """Names of rules that are there twice, and names of connections that are not there.

    Args:
        rules: as they stand in the configuration, so that a rule with another mistake is checked, too.
        connections: the names there are.
    """
    names = list(connections)
    first_of: dict[str, int] = {}
    for position, rule in enumerate(rules if isinstance(rules, list | tuple) else ()):
        if not isinstance(rule, dict):
            continue
        name = rule.get("name")
        if isinstance(name, str) and first_of.setdefault(name, position) != position:
            message = f"'{name}' is the name of rules[{first_of[name]}] already; names must differ"
            yield Problem(("rules", position, "name"), message)
        if names:
            for place, key, mapping in _references(rule, ("rules", position)):
                yield from _unknown_connection(mapping, place, key, names)


def leadership_problems(section: Any, connections: Iterable[str]) -> Iterator[Problem]:
    """The name of a connection that is not there, in the section about leadership as it stands in the configuration."""
    if (names := list(connections)) and isinstance(section, dict):
        yield from _unknown_connection(section, ("leadership",), "connection", names)


def _unknown_connection(mapping: dict[str, Any], at: Path, key: str, names: list[str]) -> Iterator[Problem]:
    wanted = mapping.get(key, "default")
    if isinstance(wanted, str) and wanted not in names:
        here = f"no connection '{wanted}'" if key in mapping else f"'{key}' is left out and means 'default'"
        known = did_you_mean(wanted, names).replace("known:", "there is:")
        yield Problem((*at, key), f"{here}; {known}")


def _references(rule: dict[str, Any], at: Path) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every mapping that names a connection: where it is, under which key it does, and itself."""
    kind = rule.get("kind")
    # What an unknown kind leaves out is unknown.
    for key in _KEYS.get(str(kind), tuple(key for key in ("from", "to") if key in rule)):
        yield at, key, rule
    if kind == "mirror" and isinstance(rule.get("mirror"), dict):
        yield (*at, "mirror"), "from", rule["mirror"]
    sources = rule.get("sources")
    if kind in ("sources", "kv_sources") and isinstance(sources, list | tuple):
        for number, source in enumerate(sources):
            if isinstance(source, dict):
                yield (*at, "sources", number), "from", source
