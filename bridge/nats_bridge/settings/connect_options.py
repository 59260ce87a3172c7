"""Turns a connection, or a context of `nats`, into the options of `nats_bridge.client.connection.open_connection`.

A context is a JSON file with servers and credentials. Members that the bridge cannot honour are refused by name instead
of ignored: a context that goes through a proxy must not silently connect without it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from nats_bridge.errors import CredentialsError
from nats_bridge.settings.connections import (
    Connection,
    Tls,
    check_server_url,
    domain_api,
    domain_problem,
    prefix_problem,
)
from nats_bridge.settings.problems import did_you_mean
from nats_bridge.settings.secrets import CredsFile, FieldError, FromFile, Held, SeedFile
from nats_bridge.settings.tls_context import RenewedContext


def connect_options(connection: Connection, name: str = "default") -> dict[str, Any]:
    """Return the options of a connection: arguments of nats-py's `connect`, `reconnect_max_wait` and `api_prefix`.

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
    options = _of_context(connection.context, environ) if connection.context else _written_out(connection)
    options["connect_timeout"] = connection.connect_timeout
    options["reconnect_max_wait"] = connection.reconnect_max_wait
    if prefix := connection.api_prefix or (connection.domain and domain_api(connection.domain)):
        options["api_prefix"] = prefix
    if "inbox_prefix" in connection.model_fields_set or "inbox_prefix" not in options:
        options["inbox_prefix"] = connection.inbox_prefix.encode()
    return options


def _written_out(connection: Connection) -> dict[str, Any]:
    options: dict[str, Any] = {"servers": list(connection.servers)}
    if connection.creds:
        options |= _creds_options(connection.creds)
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


def _creds_options(path: Path) -> dict[str, Any]:
    creds = CredsFile(path)
    return {"user_jwt_cb": creds.jwt, "signature_cb": creds}


def _tls_options(tls: Tls, prefix: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "tls": RenewedContext.of(tls, prefix),
        "tls_handshake_first": tls.handshake_first,
    }
    if tls.hostname:
        options["tls_hostname"] = tls.hostname
    return options


_USED: Final = frozenset(
    {"url", "user", "password", "token", "creds", "nkey", "cert", "key", "ca", "inbox_prefix", "tls_first"}
    | {"jetstream_domain", "jetstream_api_prefix"}
)
_WITHOUT_EFFECT: Final = frozenset({"description", "color_scheme", "name"})
_REFERENCES: Final = ("op://", "nsc://")
_DEFAULT_URL: Final = "nats://127.0.0.1:4222"


def _contexts_folder(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(home) / "nats" / "context"


def _of_context(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the context `name` as arguments for nats-py's `connect`. Secrets are hidden when printed.

    Raises:
        FieldError: it does not exist, cannot be read, or asks for something the bridge cannot do.
    """
    folder = _contexts_folder(environ)
    path = folder / f"{name}.json"
    if "/" in name or not path.is_file():
        known = sorted(entry.stem for entry in folder.glob("*.json")) if folder.is_dir() else []
        hint = did_you_mean(name, known) if known else "no contexts exist; create one with: nats context save NAME"
        raise FieldError("context", f"no context '{name}' in {folder}; {hint}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FieldError("context", f"{path}: cannot be read as JSON ({_plain(error)})") from None
    if not isinstance(content, dict):
        raise FieldError("context", f"{path}: must contain a JSON object")
    _refuse_unsupported(path, content)
    servers, user, password = _without_secrets(path, str(content.get("url") or _DEFAULT_URL))
    user = str(content["user"]) if content.get("user") else user
    password = str(content["password"]) if content.get("password") else password
    token = str(content["token"]) if content.get("token") else None
    if user and password is None:  # a URL with only one name contains a token
        user, token = None, token or user
    options: dict[str, Any] = {"servers": list(servers)}
    try:
        if creds := _path(content.get("creds")):
            options |= _creds_options(creds)
        if nkey := _path(content.get("nkey")):
            options["signature_cb"] = SeedFile("nkey", nkey)
        ca, cert, key = (_path(content.get(field)) for field in ("ca", "cert", "key"))
        tls = Tls(ca=ca, cert=cert, key=key, handshake_first=bool(content.get("tls_first")))
        if tls != Tls():
            options |= _tls_options(tls, "")
    except FieldError as error:
        raise FieldError("context", f"{name}: {error.field}: {error.reason}") from None
    if token:
        options["token"] = Held(token)
    if user and password is not None:
        options |= {"user": user, "password": Held(password)}
    if content.get("inbox_prefix"):
        options["inbox_prefix"] = str(content["inbox_prefix"]).encode()
    options |= _api_options(path, content)
    return options


def _api_options(path: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """Return `api_prefix` if a context selects a JetStream API."""
    domain, prefix = (str(content.get(field) or "") for field in ("jetstream_domain", "jetstream_api_prefix"))
    if domain and prefix:
        raise FieldError(
            "context", f"{path}: 'jetstream_domain' and 'jetstream_api_prefix' cannot be combined; remove one of them"
        )
    if reason := (domain and domain_problem(domain)) or (prefix and prefix_problem(prefix)):
        raise FieldError("context", f"{path}: {reason}")
    if domain:
        prefix = domain_api(domain)
    return {"api_prefix": prefix} if prefix else {}


def _refuse_unsupported(path: Path, content: Mapping[str, Any]) -> None:
    for field, value in content.items():
        if not value or field in _WITHOUT_EFFECT:
            continue
        if field not in _USED:
            raise FieldError(
                "context",
                f"{path}: '{field}' is not supported by the bridge; set servers and credentials instead of context",
            )
        if isinstance(value, str) and value.startswith(_REFERENCES):
            scheme = value.partition(":")[0]
            raise FieldError(
                "context",
                f"{path}: '{field}' refers to {scheme}://, which the bridge cannot read; use a file",
            )


def _without_secrets(path: Path, urls: str) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the servers of a context's `url`, and the user and password in its URLs."""
    servers: list[str] = []
    users: set[tuple[str | None, str | None]] = set()
    for url in (part.strip() for part in urls.split(",")):
        reason = check_server_url(url, secrets_allowed=True)
        if reason:
            raise FieldError("context", f"{path}: url: {reason}")
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        users.add((parts.username and unquote(parts.username), parts.password and unquote(parts.password)))
        servers.append(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
    if len(users) > 1:
        raise FieldError("context", f"{path}: url: all servers must have the same user and password")
    user, password = users.pop()
    return tuple(servers), user, password


def _path(value: Any) -> Path | None:
    return Path(str(value)).expanduser() if value else None


def _plain(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
