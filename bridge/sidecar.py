"""The sidecar: connections and rules from start to drain."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from functools import partial
from pathlib import Path

import structlog

from bridge.account_graph import AccountGraph
from bridge.cancelling import end_tasks
from bridge.connection import Link, open_link
from bridge.errors import BridgeError, ConfigError, ConnectionLostError, RuleRefusedError, StreamMissingError
from bridge.health import Health
from bridge.logs import configure_logs
from bridge.missing_streams import appeared
from bridge.rule_context import RuleContext
from bridge.rule_kinds import make_run
from bridge.rule_run import RuleRun
from bridge.settings import Rule, Settings
from bridge.settings.connect_options import connect_options

__all__ = ["Sidecar", "close_links", "connections_of", "open_links", "run"]

_log = structlog.get_logger("bridge.sidecar")

_DRAIN = 22.0  # seconds for the rules to finish; with the rest, within Kubernetes' default grace period of 30
_CLOSE = 3.0  # seconds for closing one thing after that


def connections_of(settings: Settings) -> set[str]:
    """The names of the connections that the rules use."""
    return {name for rule in settings.rules for name in rule.connections}


async def open_links(settings: Settings, names: set[str]) -> dict[str, Link]:
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
        await close_links(links)
        raise
    return links


async def close_links(links: dict[str, Link]) -> None:
    """Close connections; one whose server takes nothing more is left to the end of the process."""
    for link in links.values():
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE):
                await link.close()


class Sidecar:
    """All rules of one configuration.

    Args:
        settings: the configuration.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.runs: list[RuleRun] = []
        self.started = False
        self.draining = False
        self.finished = asyncio.Event()
        self.http: tuple[str, int] | None = None
        self._links: dict[str, Link] = {}
        self._health: Health | None = None
        self._ended: ConnectionLostError | None = None
        self._missing: dict[str, StreamMissingError] = {}
        self._waiting: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect, check every rule, and only then start them; on an error nothing is left running.

        Raises:
            BridgeError: what is wrong, in one or two lines.
        """
        settings = self.settings
        if not settings.rules:
            raise ConfigError("rules: there is none, so there is nothing to do; add one")
        try:
            address = settings.http.address
            if address is not None:
                self._health = Health(self, *address)
                self.http = await self._health.start()
            self._links = await open_links(settings, connections_of(settings))
            for link in self._links.values():
                link.on_end(partial(self._connection_ended, link.name))
            self.started = True
            self._accounts = AccountGraph(settings, self._links)
            self.runs = [make_run(rule, settings, self._links, self._context_of(rule)) for rule in settings.rules]
            missing = [run for run in self.runs if not await self._check(run)]
            await self._refuse_loops({rule.name for rule in settings.rules})
            for run in self.runs:
                if run not in missing:
                    await run.start()
            self._waiting = [asyncio.create_task(self._start_when_possible(run)) for run in missing]
        except BaseException:
            await self.stop()
            raise
        _log.info(
            "sidecar.ready",
            name=settings.name,
            rules=len(self.runs) - len(self._waiting),
            waiting=len(self._waiting),
            http=f"{self.http[0]}:{self.http[1]}" if self.http else "off",
        )

    async def stop(self) -> bool:
        """Drain all rules, close everything; whether every rule finished what it had in hand."""
        self.draining = True
        await end_tasks(*self._waiting)
        stops = {asyncio.create_task(run.stop()): run for run in self.runs}
        late: set[asyncio.Task[None]] = set()
        if stops:
            done, late = await asyncio.wait(stops, timeout=_DRAIN)
            for task in done:
                if error := task.exception():
                    _log.error("sidecar.drain_failed", reason=str(error) or type(error).__name__)
        if late:
            _log.error("sidecar.drain_timeout", seconds=_DRAIN, rules=sorted(stops[task].rule.name for task in late))
            await end_tasks(*late)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE):
                    await asyncio.gather(*(stops[task].abandon() for task in late))
        await close_links(self._links)
        if self._health is not None:
            await self._health.stop()
        return not late

    @property
    def error(self) -> BaseException | None:
        """The error of the first rule that failed, or of a connection that ended for good."""
        return next((run.error for run in self.runs if run.error is not None), self._ended)

    async def _check(self, run: RuleRun) -> bool:
        """Whether the rule can start; False if a stream of it does not exist."""
        try:
            await run.check()
        except StreamMissingError as error:
            run.state = "waiting"
            _log.warning("rule.waiting", rule=run.rule.name, reason=str(error), meaning="starts when it appears")
            self._missing[run.rule.name] = error
            return False
        return True

    async def _refuse_loops(self, rules: set[str]) -> None:
        """Look at the accounts and all rules together.

        Raises:
            RuleRefusedError: one of the named rules takes part in a loop.
        """
        outlook = await self._accounts.look()
        for reason in outlook.unseen:
            _log.warning("loops.not_seen", reason=reason)
        for loop in outlook.native:
            _log.warning("loops.native", reason=str(loop))
        for loop in outlook.loops:
            if loop.rule in rules:
                raise RuleRefusedError(str(loop))

    async def _start_when_possible(self, run: RuleRun) -> None:
        try:
            while True:
                missing = self._missing[run.rule.name]
                await appeared(self._links[missing.connection], missing.stream)
                if await self._check(run):
                    break
            # With the stream there may be a way round that was not there before.
            await self._refuse_loops({run.rule.name})
            run.state = "starting"
            await run.start()
        except Exception as error:
            run.error, run.state = error, "failed"
            _log.error("rule.failed", rule=run.rule.name, reason=str(error))
            self.finished.set()

    def _connection_ended(self, name: str, reason: str) -> None:
        if not self.draining:
            self._ended = ConnectionLostError(f"connection '{name}': the server ended it ({reason}): start again")
            self.finished.set()

    def _context_of(self, rule: Rule) -> RuleContext:
        return RuleContext(self.settings.name, self.settings.dialect_of(rule), self._rule_failed)

    def _rule_failed(self, _: RuleRun) -> None:
        # One rule that cannot go on ends the sidecar: whoever runs it sees an exit code instead of half a service.
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
