"""Running sidecars inside a live test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.client.connection import Connection
from nats_bridge.errors import BridgeError
from nats_bridge.settings import Settings
from tests.live.until import until


def settings_for(url: str, *rules: dict[str, Any], **more: Any) -> Settings:
    """A configuration with one connection and the given rules (written as in the configuration file)."""
    document: dict[str, Any] = {
        "connections": {"default": {"servers": [url]}},
        "http": {"listen": ""},
        "rules": [{"kind": "republish", **rule} for rule in rules],
        **more,
    }
    return Settings.model_validate(document)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Sidecar]:
    """A started sidecar, drained at the end.

    Raises:
        BridgeError: why a rule has failed, if the sidecar runs without it.
    """
    sidecar = Sidecar(settings)
    await sidecar.start()
    try:
        for supervisor in sidecar.supervisors:
            if supervisor.error is not None:
                raise supervisor.error
        yield sidecar
    finally:
        await sidecar.stop()


async def failure_of(settings: Settings) -> BaseException:
    """What ends a sidecar that fails fast, as it starts or at any time later; it is stopped then."""
    sidecar = Sidecar(settings.model_copy(update={"fail_fast": True}))
    try:
        await sidecar.start()
        await until(lambda: sidecar.error is not None)
    except BridgeError as error:
        return error
    finally:
        await sidecar.stop()
    assert sidecar.error is not None
    return sidecar.error


def listeners_of(connection: Connection) -> int:
    """The number of a connection's listeners, whatever they listen to."""
    return sum(map(len, connection._listeners.values()))


async def lead_lost(sidecar: Sidecar) -> None:
    """Let the only rule lose the lead, and return when its run has ended; the sidecar then leads again."""
    supervisor = sidecar.supervisors[0]
    run = supervisor.run
    assert run is not None
    supervisor.term.lost.set()
    await until(lambda: run.state == "stopped")
