"""From a connection of the configuration to the arguments of nats-py's `connect`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nats_bridge.bridge.errors import CredentialsError
from nats_bridge.bridge.settings.connections import Connection, Tls
from nats_bridge.bridge.settings.context import read_context
from nats_bridge.bridge.settings.secrets import CredsFile, FieldError, FromFile, SeedFile

__all__ = ["connect_options", "options_of"]


def connect_options(connection: Connection, name: str = "default") -> dict[str, Any]:
    """The arguments of nats-py's `connect` for a connection.

    Secrets are callables, so that printing the result shows none and a rotated file is used at the next reconnect.

    Args:
        connection: from the configuration.
        name: its name there, for messages.

    Raises:
        CredentialsError: a file or a context cannot be used.
    """
    try:
        return options_of(connection, os.environ)
    except FieldError as error:
        raise CredentialsError(f"connections.{name}.{error.field}: {error.reason}") from None


def options_of(connection: Connection, environ: Mapping[str, str]) -> dict[str, Any]:
    """`connect_options`, with the environment given.

    Raises:
        FieldError: a file or a context cannot be used.
    """
    options = _from_context(connection, environ) if connection.context else _written_out(connection)
    options["connect_timeout"] = connection.connect_timeout
    if "inbox_prefix" in connection.model_fields_set or "inbox_prefix" not in options:
        options["inbox_prefix"] = connection.inbox_prefix.encode()
    return options


def _written_out(connection: Connection) -> dict[str, Any]:
    options: dict[str, Any] = {"servers": list(connection.servers)}
    if connection.creds:
        options |= _creds_options("creds", connection.creds)
    if connection.nkey_seed_file:
        options["signature_cb"] = SeedFile("nkey_seed_file", connection.nkey_seed_file)
    if connection.token_file:
        options["token"] = FromFile("token_file", connection.token_file)
    if connection.user and connection.password_file:
        options["user"] = connection.user
        options["password"] = FromFile("password_file", connection.password_file)
    if connection.tls:
        options |= _tls_options(connection.tls, "tls.")
    return options


def _from_context(connection: Connection, environ: Mapping[str, str]) -> dict[str, Any]:
    context = read_context(str(connection.context), environ)
    options: dict[str, Any] = {"servers": list(context.servers)}
    try:
        if context.creds:
            options |= _creds_options("creds", context.creds)
        if context.nkey:
            options["signature_cb"] = SeedFile("nkey", context.nkey)
        if context.token:
            options["token"] = context.token
        if context.user and context.password:
            options |= {"user": context.user, "password": context.password}
        if context.ca or context.cert or context.key or context.tls_first:
            tls = Tls(ca=context.ca, cert=context.cert, key=context.key, handshake_first=context.tls_first)
            options |= _tls_options(tls, "")
    except FieldError as error:
        raise FieldError("context", f"{connection.context}: {error.field}: {error.reason}") from None
    if context.inbox_prefix:
        options["inbox_prefix"] = context.inbox_prefix.encode()
    return options


def _creds_options(field: str, path: Path) -> dict[str, Any]:
    creds = CredsFile(field, path)
    return {"user_jwt_cb": creds.jwt, "signature_cb": creds}


def _tls_options(tls: Tls, prefix: str) -> dict[str, Any]:
    from nats_bridge.bridge.settings.tls_context import RenewedContext  # with ssl; not to look at what has no TLS

    options: dict[str, Any] = {
        "tls": RenewedContext.of(tls, prefix),
        "tls_handshake_first": tls.handshake_first,
    }
    if tls.hostname:
        options["tls_hostname"] = tls.hostname
    return options
