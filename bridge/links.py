"""The connections of a configuration: opened all or none, and closed when nobody needs them any more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from bridge.connection import Link, open_link
from bridge.settings import Settings
from bridge.settings.connect_options import connect_options

__all__ = ["close_links", "connections_of", "open_links"]

_CLOSE = 3.0  # seconds for closing one connection


def connections_of(settings: Settings) -> set[str]:
    """The names of the connections that the rules use."""
    return {name for rule in settings.rules for name in rule.connections}


async def open_links(settings: Settings, names: Iterable[str]) -> dict[str, Link]:
    """Open the named connections; none stays open when one fails.

    Raises:
        ServerUnreachableError, CredentialsError, ConfigError: as `open_link` and `connect_options` say.
    """
    links: dict[str, Link] = {}
    try:
        for name in sorted(names):
            options = connect_options(settings.connections[name], name)
            links[name] = await open_link(name, options, client_name=settings.name)
    except BaseException:
        await close_links(links.values())
        raise
    return links


async def close_links(links: Iterable[Link]) -> None:
    """Close connections; one whose server takes nothing more is left to the end of the process."""
    for link in links:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE):
                await link.close()
