"""URLs of servers: which ones the bridge takes, and why not the others. Never quotes a password."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["check_server_url"]

_SCHEMES = ("nats", "tls")
_EXAMPLE = "write it like nats://127.0.0.1:4222"


def check_server_url(url: str, *, secrets_allowed: bool = False) -> str | None:
    """Why `url` cannot be used, or None if it can.

    Args:
        url: a server's URL; the scheme and the port may be left out, as nats-py allows.
        secrets_allowed: whether a user and password in the URL are fine (native contexts hold them that way).
    """
    if not url.strip():
        return f"a server's URL is empty; {_EXAMPLE}"
    full = url if "://" in url else f"nats://{url}"
    try:
        parts = urlsplit(full)
        port = parts.port
    except ValueError:
        return f"'{_shown(url)}' has no valid port or host; {_EXAMPLE}"
    if "@" in parts.netloc and not secrets_allowed:
        return (
            f"'{_shown(url)}' holds a secret; leave it out and use creds, nkey_seed_file, token_file, or"
            " user with password_file"
        )
    if parts.scheme in {"ws", "wss"}:
        return f"'{_shown(url)}': WebSocket connections are not in this version; use a nats:// or tls:// URL"
    if parts.scheme not in _SCHEMES:
        return f"'{_shown(url)}': unknown scheme '{parts.scheme}'; use nats:// or tls://"
    if not parts.hostname or any(c.isspace() for c in full):
        return f"'{_shown(url)}' names no host; {_EXAMPLE}"
    if port == 0:
        return f"'{_shown(url)}': port 0 cannot be connected to; {_EXAMPLE}"
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        return f"'{_shown(url)}' has something after the port; {_EXAMPLE}"
    return None


def _shown(url: str) -> str:
    """The URL without user and password."""
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + ("…@" + rest.rpartition("@")[2] if "@" in rest else rest)
