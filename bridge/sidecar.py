"""The sidecar: connections and rules from start to drain."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import structlog

from bridge.account_graph import AccountGraph
from bridge.assembly import Assembly
from bridge.cancelling import end_tasks
from bridge.connection import Link
from bridge.errors import BridgeError, ConfigError, ConnectionLostError
from bridge.http import Listener
from bridge.leadership.term import ALONE, Leadership
from bridge.links import close_links, connections_of, open_links
from bridge.logs import configure_logs
from bridge.rule_run import RuleRun
from bridge.rule_seat import RuleSeat
from bridge.settings import Settings
from bridge.telemetry.service import Telemetry

__all__ = ["Sidecar", "run"]

_log = structlog.get_logger("bridge.sidecar")


class Sidecar:
    """All rules of one configuration.

    Args:
        settings: the configuration.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.seats: list[RuleSeat] = []
        self.started = False
        self.draining = False
        self.finished = asyncio.Event()
        self.http: tuple[str, int] | None = None
        self._links: dict[str, Link] = {}
        self._leadership: Leadership = ALONE
        self._listener: Listener | None = None
        self._ended: ConnectionLostError | None = None
        self.began = time.time()
        self.reloads: Counter[str] = Counter()
        self.telemetry = Telemetry(settings, self)

    @property
    def links(self) -> Mapping[str, Link]:
        """The open connections by name."""
        return self._links

    @property
    def runs(self) -> list[RuleRun]:
        """What does the rules' work, or did it last, in the order of the rules."""
        return [seat.run for seat in self.seats if seat.run is not None]

    async def start(self) -> None:
        """Connect, check every rule, and only then start them; on an error nothing is left running.

        Raises:
            BridgeError: what is wrong, in one or two lines.
        """
        settings = self.settings
        if not settings.rules:
            raise ConfigError("rules: there is none, so there is nothing to do; add one")
        try:
            self.telemetry.start()
            if settings.http.address is not None:
                self._listener = Listener(self, settings.http)
                self.http = await self._listener.start()
            self._links = await open_links(settings, connections_of(settings))
            for link in self._links.values():
                link.on_end(partial(self._connection_ended, link.name))
            self.started = True
            accounts = AccountGraph(settings, self._links)
            assembly = Assembly(settings, self._links, accounts, self.telemetry.tracing_of)
            self.seats = [RuleSeat(rule, assembly, self._leadership, self._rule_failed) for rule in settings.rules]
            for seat in self.seats:
                await seat.check()
            await assembly.refuse_loops({rule.name for rule in settings.rules})
            for seat in self.seats:
                await seat.start()
        except BaseException:
            await self.stop()
            raise
        states = Counter(seat.state for seat in self.seats)
        _log.info(
            "sidecar.ready",
            name=settings.name,
            rules=len(self.seats) - states["waiting"] - states["standby"],
            waiting=states["waiting"],
            **({"standby": states["standby"]} if self._leadership.shared else {}),
            http=f"{self.http[0]}:{self.http[1]}" if self.http else "off",
        )

    async def stop(self) -> bool:
        """Drain all rules, close everything; whether every rule finished what it had in hand."""
        self.draining = True
        finished = await asyncio.gather(*(seat.stop() for seat in self.seats))
        await self._leadership.close()
        await asyncio.gather(close_links(self._links), self.telemetry.stop())
        if self._listener is not None:
            await self._listener.stop()
        return all(finished)

    async def drain(self, reason: str) -> None:
        """Finish what is in hand and end; returns at once, `finished` tells that it has begun."""
        _log.info("sidecar.draining", reason=reason)
        self.draining = True
        self.finished.set()

    @property
    def error(self) -> BaseException | None:
        """The error of the first rule that failed, or of a connection that ended for good."""
        return next((seat.error for seat in self.seats if seat.error is not None), self._ended)

    def _connection_ended(self, name: str, reason: str) -> None:
        if not self.draining:
            self._ended = ConnectionLostError(f"connection '{name}': the server ended it ({reason}): start again")
            self.finished.set()

    def _rule_failed(self, _: RuleSeat) -> None:
        self.finished.set()


async def run(settings: Settings, config_path: Path) -> int:
    """Run until SIGTERM or SIGINT, or until a rule fails; a second signal ends at once.

    Args:
        settings: the configuration.
        config_path: where it came from, for the log.

    Returns:
        The exit code.

    Raises:
        BridgeError: the start was refused; nothing is left running.
    """
    configure_logs(settings.log)
    _log.info("sidecar.starting", name=settings.name, config=str(config_path), rules=len(settings.rules))
    # The hot paths make many short-lived tuples and no cycles: looking for those often would only cost time.
    gc.set_threshold(200_000, 50, 100)
    sidecar = Sidecar(settings)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def on_signal(name: str) -> None:
        if stopping.is_set():
            os._exit(1)  # at once: no cleaning up that could wait for something
        _log.info("sidecar.draining", signal=name)
        stopping.set()
        sidecar.finished.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number.name)
    # Without a handler, a hangup would end the process, and what was in hand would be lost.
    loop.add_signal_handler(
        signal.SIGHUP,
        lambda: _log.warning("sidecar.reload_ignored", meaning="the configuration is read at the start only: restart"),
    )
    starting = asyncio.create_task(sidecar.start())
    waiting = asyncio.create_task(sidecar.finished.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        await end_tasks(starting)
        return 0 if sidecar.error is None else _ended(sidecar.error)
    await starting
    await waiting
    finished = await sidecar.stop()
    if sidecar.error is not None:
        return _ended(sidecar.error)
    _log.info("sidecar.stopped")
    return 0 if finished else 1


def _ended(error: BaseException) -> int:
    """Say what ended the sidecar; the exit code."""
    _log.error("sidecar.ended", reason=str(error))
    return error.exit_code if isinstance(error, BridgeError) else 1
