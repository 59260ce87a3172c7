"""Opens the connections of a configuration (all or none, or patiently), and closes them when no rule needs them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from nats_bridge.client.connection import Connection, open_connection
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import CLOSING
from nats_bridge.settings import Settings
from nats_bridge.settings.connect_options import connect_options


def connections_of(settings: Settings) -> set[str]:
    """Return the names of the connections that the rules use."""
    return {name for rule in settings.rules for name in rule.connections}


async def open_connections(
    settings: Settings, names: Iterable[str], *, patiently: bool = False
) -> dict[str, Connection]:
    """Open the named connections. If one fails, none stays open.

    Args:
        patiently: keep trying connections that no server accepts, unless servers refuse all of them, which means wrong
            credentials or TLS.

    Raises:
        ServerUnreachableError, CredentialsError, ConfigError: as `open_connection` and `connect_options` raise them.
    """
    wanted = {name: connect_options(settings.connections[name], name) for name in sorted(names)}
    opening = {
        name: asyncio.create_task(open_connection(name, options, client_name=settings.name, patiently=patiently))
        for name, options in wanted.items()
    }
    try:
        if opening:
            done, _ = await asyncio.wait(opening.values(), return_when=asyncio.FIRST_EXCEPTION)
            for task in (task for task in opening.values() if task in done):
                task.result()  # the first by name that failed
        opened = {name: task.result() for name, task in opening.items()}
        _refuse_all_refused(opened.values())
    except BaseException:
        await end_tasks(*opening.values())
        left = [task for task in opening.values() if not task.cancelled() and task.exception() is None]
        await close_connections(task.result() for task in left)
        raise
    return opened


def _refuse_all_refused(opened: Iterable[Connection]) -> None:
    failures = [connection.failure for connection in opened]
    refused = [failure for failure in failures if failure is not None and not failure.retriable]
    if refused and len(refused) == len(failures):
        raise refused[0]


async def reopened(settings: Settings, name: str) -> Connection:
    """Return a new connection for one that its server ended permanently. It keeps trying if no server accepts it.

    Raises:
        ConfigError: as `connect_options`.
    """
    options = connect_options(settings.connections[name], name)
    return await open_connection(name, options, client_name=settings.name, patiently=True)


@asynccontextmanager
async def connected(settings: Settings, names: Iterable[str]) -> AsyncIterator[dict[str, Connection]]:
    """Open the named connections, as `open_connections` does, and close them at the end."""
    connections = await open_connections(settings, names)
    try:
        yield connections
    finally:
        await close_connections(connections.values())


async def close_connections(connections: Iterable[Connection]) -> None:
    """Close connections. If a server no longer reads, its connection ends with the process."""
    for connection in connections:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSING):
                await connection.close()
