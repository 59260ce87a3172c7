"""Connections: what cannot stand together, and whether the files they name can be used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from nats_bridge.bridge.settings.connect_options import options_of
from nats_bridge.bridge.settings.connections import Connection
from nats_bridge.bridge.settings.problems import Problem
from nats_bridge.bridge.settings.secrets import FieldError

__all__ = ["connection_problems"]

_CREDENTIALS: Final = ("creds", "nkey_seed_file", "token_file", "user")
_FROM_CONTEXT: Final = ("servers", "creds", "nkey_seed_file", "token_file", "user", "password_file", "tls")


def connection_problems(connections: Iterable[tuple[str, Connection]], environ: Mapping[str, str]) -> Iterator[Problem]:
    """What is wrong with single connections, the files they name included."""
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
    given = [field for field in _FROM_CONTEXT if getattr(connection, field)]
    if connection.context:
        for field in given:
            yield (
                (field,),
                f"'{field}' cannot stand beside 'context', which says it already; remove one of them",
            )
        return
    if not connection.servers:
        yield (), 'needs servers, or a context; such as servers: ["nats://127.0.0.1:4222"]'
    credentials = [field for field in _CREDENTIALS if getattr(connection, field)]
    for field in credentials[1:]:
        yield (
            (field,),
            f"'{field}' cannot stand beside '{credentials[0]}'; a connection is one user, keep one of them",
        )
    if connection.user and not connection.password_file:
        yield ("user",), "needs 'password_file' beside it, the path of a file with the password"
    if connection.password_file and not connection.user:
        yield ("password_file",), "needs 'user' beside it"
