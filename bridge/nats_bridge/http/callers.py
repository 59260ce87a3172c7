"""Decides which HTTP requests may read or change something, to protect against web pages in a user's browser.

A page of a foreign site can make a browser send requests to this listener. It cannot read the answers, because they
allow no other origins, unless its site's name suddenly resolves to this listener's address ("DNS rebinding"). The
`Host` header still carries the foreign name then, so requests with a name that an outsider could own are refused. A
browser also marks a request on behalf of another site in `Origin` and `Sec-Fetch-Site`. Such a request cannot change
anything.
"""

import ipaddress
from collections.abc import Collection, Mapping
from typing import Final

_OURS: Final = (".localhost", ".local", ".internal", ".svc", ".cluster.local", ".home.arpa")
"""Suffixes of names in private networks: no one can register these."""


def foreign_host(host: str, known: Collection[str] = ()) -> str | None:
    """Return the reason why a `Host` header is not answered, or None if it is.

    Good are addresses, names without a dot, names of private networks, and those that the configuration lists.

    Args:
        host: the header, with or without a port.
        known: further names.
    """
    name = _without_port(host).lower().rstrip(".")
    if not name:
        return "the request names no host"
    if _is_address(name.strip("[]")) or "." not in name or name.endswith(_OURS):
        return None
    if name in {each.lower() for each in known}:
        return None
    return f"'{name}' is not a name of this listener; to allow it, add it to http.hosts"


def foreign_site(headers: Mapping[str, str]) -> str | None:
    """Return the reason why a request that would change something is refused, or None.

    A browser sends it for another site's page.
    """
    origin = headers.get("Origin")
    # A proxy decides between http and https, so the scheme is ignored; "null" has no host.
    if origin is not None and origin.partition("://")[2].lower() != headers.get("Host", "").lower():
        return f"the request comes from a page of {origin[:200]!r}"
    site = headers.get("Sec-Fetch-Site", "none")
    if site not in ("none", "same-origin"):
        return f"the request comes from another site's page (Sec-Fetch-Site: {site[:40]})"
    return None


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
