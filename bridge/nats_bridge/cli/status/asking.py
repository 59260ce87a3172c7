"""Requests a sidecar's state over HTTP."""

import http.client
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import urlsplit

from nats_bridge.errors import ConfigError, ServerUnreachableError

DEFAULT_URL: Final = "http://127.0.0.1:8322"

_PATIENCE = 5.0  # seconds for an answer
_LARGEST = 64 << 20  # bytes; a larger document is not a state


def status_url(url: str) -> str:
    """Return the URL of the state for the address of a listener.

    Raises:
        ConfigError: it is not an address for HTTP.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"--url: '{url}' is not a sidecar's address; use for example {DEFAULT_URL}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("--url: use host, port and optionally a path; a user, ? and # are not allowed")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/status')}/status"


def url_of_listener(address: tuple[str, int] | None) -> str:
    """Return the URL that reaches a configuration's listener from the same machine.

    Raises:
        ConfigError: it is turned off.
    """
    if address is None:
        raise ConfigError("http.listen is empty, so this sidecar serves no status: set an address")
    host, port = address
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def ask_for_status(url: str, *, history: bool) -> dict[str, Any]:
    """Return the state that `GET /status` returns.

    Args:
        url: from `status_url`.
        history: whether the rules' recent history belongs to it.

    Raises:
        ServerUnreachableError: no answer, or not the answer of a sidecar.
    """
    try:
        _, content = _get(url if history else f"{url}?history=no", good=(200,))
        document = json.loads(content)
    except ValueError as error:
        raise ServerUnreachableError(f"{url}: no sidecar answers ({str(error).lower()}): {_hint}") from None
    if not isinstance(document, dict) or not isinstance(document.get("rules"), list) or "ready" not in document:
        raise ServerUnreachableError(f"{url}: the response is not a sidecar's state: {_hint}")
    return document


def ask_whether_alive(url: str) -> tuple[bool, str]:
    """Return whether the process is alive according to `GET /livez`, and the lines of its answer.

    Servers do not affect it.

    Args:
        url: from `status_url`.

    Raises:
        ServerUnreachableError: no answer, or not the answer of a sidecar.
    """
    status, content = _get(f"{url.removesuffix('/status')}/livez?verbose", good=(200, 503))
    return status == 200, content.decode(errors="replace")


def _get(url: str, good: tuple[int, ...]) -> tuple[int, bytes]:
    # Proxies in the environment are for external addresses, not for a listener on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    shown = url.partition("?")[0]
    try:
        with opener.open(url, timeout=_PATIENCE) as answer:
            return answer.status, answer.read(_LARGEST)
    except urllib.error.HTTPError as error:
        with error:
            if error.code in good:
                return error.code, error.read(_LARGEST)
        raise ServerUnreachableError(
            f"{shown}: answers {error.code}, which is not a sidecar's response: {_hint}"
        ) from None
    except http.client.HTTPException:
        raise ServerUnreachableError(f"{shown}: the response is not HTTP: {_hint}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise ServerUnreachableError(f"{shown}: no sidecar answers ({said.lower()}): {_hint}") from None


_hint = "is nats-bridge running, and does its http.listen name this address?"
