"""Contexts of the `nats` command line: one JSON file per context, with where to connect and as whom.

What the bridge cannot honour is refused by name rather than left out: a context that goes through a proxy
must not silently connect without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from nats_bridge.bridge.settings.connections import check_server_url
from nats_bridge.bridge.settings.problems import did_you_mean
from nats_bridge.bridge.settings.secrets import FieldError, Held, Secret

__all__ = ["NativeContext", "read_context"]

_USED: Final = frozenset(
    {"url", "user", "password", "token", "creds", "nkey", "cert", "key", "ca", "inbox_prefix", "tls_first"}
)
_WITHOUT_EFFECT: Final = frozenset({"description", "color_scheme", "name"})
_REFERENCES: Final = ("op://", "nsc://")
_DEFAULT_URL: Final = "nats://127.0.0.1:4222"


@dataclass(frozen=True, slots=True)
class NativeContext:
    """What a context says. Secrets show nothing of themselves when printed."""

    servers: tuple[str, ...]
    user: str | None = None
    password: Secret | None = None
    token: Secret | None = None
    creds: Path | None = None
    nkey: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    inbox_prefix: str | None = None
    tls_first: bool = False


def contexts_folder(environ: Mapping[str, str]) -> Path:
    """Where the `nats` command line keeps contexts."""
    home = environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(home) / "nats" / "context"


def read_context(name: str, environ: Mapping[str, str]) -> NativeContext:
    """Read the context `name`.

    Raises:
        FieldError: it does not exist, cannot be read, or asks for something the bridge cannot do.
    """
    folder = contexts_folder(environ)
    path = folder / f"{name}.json"
    if "/" in name or not path.is_file():
        known = sorted(entry.stem for entry in folder.glob("*.json")) if folder.is_dir() else []
        hint = did_you_mean(name, known) if known else "there is none; make one with: nats context save NAME"
        raise FieldError("context", f"no context '{name}' in {folder}; {hint}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FieldError("context", f"{path}: cannot be read as JSON ({_plain(error)})") from None
    if not isinstance(content, dict):
        raise FieldError("context", f"{path}: must hold a JSON object")
    _refuse_unsupported(path, content)
    servers, user, password = _without_secrets(path, str(content.get("url") or _DEFAULT_URL))
    user = str(content["user"]) if content.get("user") else user
    password = str(content["password"]) if content.get("password") else password
    token = str(content["token"]) if content.get("token") else None
    if user and password is None:  # a URL with one name only holds a token
        user, token = None, token or user
    return NativeContext(
        servers=servers,
        user=user,
        password=Held(password) if user and password is not None else None,
        token=Held(token) if token else None,
        creds=_path(content.get("creds")),
        nkey=_path(content.get("nkey")),
        ca=_path(content.get("ca")),
        cert=_path(content.get("cert")),
        key=_path(content.get("key")),
        inbox_prefix=str(content["inbox_prefix"]) if content.get("inbox_prefix") else None,
        tls_first=bool(content.get("tls_first")),
    )


def _refuse_unsupported(path: Path, content: Mapping[str, Any]) -> None:
    for field, value in content.items():
        if not value or field in _WITHOUT_EFFECT:
            continue
        if field not in _USED:
            raise FieldError("context", f"{path}: '{field}' is not supported by the bridge; write the connection out")
        if isinstance(value, str) and value.startswith(_REFERENCES):
            scheme = value.partition(":")[0]
            raise FieldError(
                "context",
                f"{path}: '{field}' refers to {scheme}://, which the bridge cannot look up; give a file",
            )


def _without_secrets(path: Path, urls: str) -> tuple[tuple[str, ...], str | None, str | None]:
    """The servers of a context's `url`, and the user and password its URLs hold."""
    servers: list[str] = []
    users: set[tuple[str | None, str | None]] = set()
    for url in (part.strip() for part in urls.split(",")):
        reason = check_server_url(url, secrets_allowed=True)
        if reason:
            raise FieldError("context", f"{path}: url: {reason}")
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        users.add((_decoded(parts.username), _decoded(parts.password)))
        servers.append(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
    if len(users) > 1:
        raise FieldError("context", f"{path}: url: all servers must have the same user and password")
    user, password = users.pop()
    return tuple(servers), user, password


def _decoded(text: str | None) -> str | None:
    return None if text is None else unquote(text)


def _path(value: Any) -> Path | None:
    return Path(str(value)).expanduser() if value else None


def _plain(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
