"""`nats-bridge run`: a sidecar as a process, from its signals to its exit code."""

import asyncio
import gc
import os
import signal
from pathlib import Path

import structlog

from nats_bridge.app.malloc_tuning import keep_freed_memory
from nats_bridge.app.reload.file_watch import content_hash
from nats_bridge.app.sidecar import Sidecar
from nats_bridge.app.startup_signals import hangup_came
from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import BridgeError
from nats_bridge.observability.logs import configure_logs
from nats_bridge.settings import Settings

_log = structlog.get_logger("bridge.sidecar")


async def run(settings: Settings, config_path: Path, config_hash: str | None = None) -> int:
    """Run until SIGTERM or SIGINT; a second signal ends at once. SIGHUP reloads.

    Args:
        config_path: the path of the configuration, for the log and for reloads.
        config_hash: the hash of the file's content when it was read; None computes it now.

    Returns:
        The exit code.

    Raises:
        BridgeError: the sidecar refused to start; nothing is left running.
    """
    configure_logs(settings.log)
    _log.info(
        "sidecar.starting",
        name=settings.name,
        config=str(config_path),
        rules=len(settings.rules),
    )
    # The hot paths create many short-lived tuples, no cycles, and large reads.
    gc.set_threshold(200_000, 50, 100)
    keep_freed_memory()
    sidecar = Sidecar(settings, config_path, config_hash or content_hash(config_path))
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    reloads: set[asyncio.Task[object]] = set()

    def on_stop(name: str) -> None:
        if stopping.is_set():
            os._exit(1)  # at once: no cleaning up that could wait for something
        stopping.set()
        sidecar.drain(name)

    def on_hangup() -> None:
        reload = asyncio.create_task(sidecar.reload("SIGHUP"))
        reloads.add(reload)
        reload.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_stop, number.name)
    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    if hangup_came():
        on_hangup()
    starting = asyncio.create_task(sidecar.start())
    waiting = asyncio.create_task(sidecar.finished.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        await starting
        await waiting
    else:
        await end_tasks(starting)
    finished = await sidecar.stop()
    await end_tasks(*reloads)
    if (error := sidecar.ended_by) is not None:
        _log.error("sidecar.ended", reason=str(error))
        return error.exit_code if isinstance(error, BridgeError) else 1
    _log.info("sidecar.stopped")
    return 0 if finished else 1
