"""The sidecar: connections and rules from start to drain."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from nats_bridge.bridge.app.readiness_watch import watch_readiness
from nats_bridge.bridge.app.reload.changeover import Changeover
from nats_bridge.bridge.app.reload.coordinator import Reloader, ReloadFacts
from nats_bridge.bridge.app.reload.plan import plan_reload
from nats_bridge.bridge.client.connection import Connection
from nats_bridge.bridge.client.connection_pool import close_connections, connections_of, open_connections
from nats_bridge.bridge.client.tasks import end_tasks
from nats_bridge.bridge.errors import BridgeError, ConfigError, ConnectionLostError, RuleRefusedError
from nats_bridge.bridge.observability.http.own_state import OwnState
from nats_bridge.bridge.observability.logs import configure_logs
from nats_bridge.bridge.observability.telemetry.service import Telemetry
from nats_bridge.bridge.rules.leadership.term import Leadership
from nats_bridge.bridge.rules.loops.account_graph import AccountGraph
from nats_bridge.bridge.rules.run import RuleRun
from nats_bridge.bridge.rules.supervisor import Assembly, RuleSupervisor
from nats_bridge.bridge.settings import Rule, Settings

if TYPE_CHECKING:
    from nats_bridge.bridge.observability.http.listener import Listener


_log = structlog.get_logger("bridge.sidecar")


class Sidecar:
    """All rules of one configuration.

    Args:
        settings: the configuration.
        config_path: the file that it came from, which `reload` reads again; None if it came from none.
        config_hash: of that file's content, as `bridge.app.reload.file_watch` makes it, taken before the file was read.
    """

    def __init__(
        self,
        settings: Settings,
        config_path: Path | None = None,
        config_hash: str | None = None,
    ) -> None:
        self.settings = settings
        self.config_path = config_path
        self.started = False
        self.draining = False
        self.finished = asyncio.Event()
        self.http: tuple[str, int] | None = None
        self.reloader = Reloader(config_path, config_hash, self._take, lambda: self.settings.reload.watch)
        self._supervisors: list[RuleSupervisor] = []
        self._changeover: Changeover | None = None
        self._assembly: Assembly | None = None
        self._connections: list[Connection] = []  # all that are open
        self._watcher: asyncio.Task[None] | None = None
        self._leadership = Leadership()
        self._listener: Listener | None = None
        self._ended: BridgeError | None = None
        self._reported: set[tuple[str, str]] = set()  # remarks on servers that were logged, by connection
        self.began = time.time()
        self.telemetry = Telemetry(settings, self)
        self.state = OwnState(self, settings.http.wedged_after)

    @property
    def supervisors(self) -> list[RuleSupervisor]:
        """The rules, in the order of the configuration."""
        return self._changeover.supervisors if self._changeover is not None else self._supervisors

    @property
    def runs(self) -> list[RuleRun]:
        """The current or last run of each rule, in the order of the rules."""
        return [supervisor.run for supervisor in self.supervisors if supervisor.run is not None]

    @property
    def connections(self) -> Mapping[str, Connection]:
        """The connections in use, by name."""
        return self._assembly.connections if self._assembly is not None else {}

    @property
    def reloads(self) -> Mapping[str, int]:
        """Counts of reloads by result."""
        return self.reloader.results

    @property
    def error(self) -> BaseException | None:
        """The error of the first rule that failed, or of a connection that was closed permanently."""
        return next((supervisor.error for supervisor in self.supervisors if supervisor.error is not None), self._ended)

    async def start(self) -> None:
        """Connect, check every rule, and only then start them; on an error nothing is left running.

        A caller that cancels it must stop the sidecar: some rules may be running, with messages in flight.

        Raises:
            BridgeError: what is wrong, in one or two lines.
        """
        settings = self.settings
        if not settings.rules:
            raise ConfigError("rules: there is none, so there is nothing to do; add one")
        try:
            assembly = await self._open()
            await assembly.loops.refuse({rule.name for rule in settings.rules})
            for supervisor in self._supervisors:
                await supervisor.start()
        except Exception:
            await self.stop()
            raise
        states = Counter(supervisor.state for supervisor in self._supervisors)
        _log.info(
            "sidecar.ready",
            name=settings.name,
            rules=len(self._supervisors) - states["waiting"] - states["standby"],
            waiting=states["waiting"],
            **({"standby": states["standby"]} if self._leadership.shared else {}),
            http=f"{self.http[0]}:{self.http[1]}" if self.http else "off",
        )
        self.reloader.start()

    async def _open(self) -> Assembly:
        """Connect and check every rule.

        Raises:
            BridgeError: what is wrong; `stop` closes what is open.
        """
        settings = self.settings
        self.telemetry.start()
        if settings.http.address is not None:
            self.state.watch.start()
            # What serves HTTP takes longer to import than all the rest, and is not needed without.
            from nats_bridge.bridge.observability.http.listener import Listener
            from nats_bridge.bridge.observability.telemetry.exposition import Exposition

            self.state.exposition = Exposition(self.telemetry.readings)
            self._listener = Listener(self, settings.http)
            self.http = await self._listener.start()
        connections = await open_connections(settings, connections_of(settings))
        for connection in connections.values():
            self._opened(connection)
        if (wanted := settings.leadership) is not None:
            from nats_bridge.bridge.rules.leadership.leases import open_leases

            leases = self._leadership = await open_leases(settings, wanted)
            leases.on_end(partial(self._connection_ended, wanted.connection))
        self.started = True
        loops = AccountGraph(settings, connections)
        loops.shared.on_late = self._look_again
        assembly = self._assembly = Assembly(settings, connections, loops, self.telemetry.tracing_of)
        self._supervisors = [self._make_supervisor(rule, assembly) for rule in settings.rules]
        self._watcher = asyncio.create_task(watch_readiness(lambda: self.supervisors))
        for supervisor in self._supervisors:
            await supervisor.check()
        return assembly

    async def stop(self) -> bool:
        """Drain all rules and close everything; return whether every rule finished what it had in flight."""
        self.draining = True
        await end_tasks(self._watcher)
        await self.reloader.close()
        if self._assembly is not None:
            await self._assembly.loops.shared.close()
        await self._leadership.leave()
        finished = await asyncio.gather(*(supervisor.stop() for supervisor in self.supervisors))
        await self._leadership.close()
        await asyncio.gather(close_connections(self._connections), self.telemetry.stop(), self.state.watch.stop())
        if self._listener is not None:
            await self._listener.stop()
        return all(finished)

    def drain(self, reason: str) -> None:
        """Request the end: the caller of the sidecar stops it, and rules finish what is in flight."""
        if not self.draining:
            _log.info("sidecar.draining", reason=reason)
        self.draining = True
        self.finished.set()

    async def reload(self, asked_by: str) -> ReloadFacts:
        """Read the configuration file again and apply it, all or nothing; see `docs/reload.md`.

        Args:
            asked_by: what made it happen, for the log and `/status`.
        """
        return await self.reloader.reload(asked_by)

    async def _take(self, settings: Settings) -> tuple[str, ...] | None:
        """Apply another configuration; see `Reloader`.

        Raises:
            BridgeError: what is in the way; the previous configuration stays in force.
        """
        assert self._assembly is not None
        plan = plan_reload(self.settings, settings)
        if plan.restart:
            raise ConfigError(
                f"{self.config_path}: {', '.join(plan.restart)}: read at the start only, so this cannot change while"
                " the sidecar runs: restart it, or leave that as it was"
            )
        changeover = self._changeover = Changeover(
            self._assembly, settings, plan, self._supervisors, self._make_supervisor, self._opened
        )
        try:
            await changeover.prepare()
            await changeover.apply()
        finally:
            # Also where a step was cancelled: `stop` must find all that runs.
            self._changeover = None
            self._supervisors, self._assembly = changeover.supervisors, changeover.assembly
            self._connections = [connection for connection in self._connections if not connection.client.is_closed]
        self.settings = settings
        if plan.logging:
            configure_logs(settings.log)
        for name, source in plan.copied_again:
            _log.warning(
                "rule.copied_again",
                rule=name,
                source=source,
                meaning="what is selected or where it is stored was changed, so it is copied from its start again",
            )
        return None if plan.is_empty else plan.touched

    def _make_supervisor(self, rule: Rule, assembly: Assembly) -> RuleSupervisor:
        return RuleSupervisor(rule, assembly, self._leadership, self._rule_failed)

    def _opened(self, connection: Connection) -> None:
        self._connections.append(connection)
        connection.on_end(partial(self._connection_ended, connection.name))
        report = partial(self._report_untested, connection)
        connection.on_reconnect(report)
        report()

    def _report_untested(self, connection: Connection) -> None:
        remark = connection.untested_server
        if remark is not None and (connection.name, remark) not in self._reported:
            self._reported.add((connection.name, remark))
            _log.warning(
                "connection.untested_server",
                connection=connection.name,
                server=connection.server_version,
                meaning=remark,
            )

    def _connection_ended(self, name: str, reason: str) -> None:
        if not self.draining:
            self._ended = ConnectionLostError(f"connection '{name}': the server ended it ({reason}): start again")
            self.finished.set()

    async def _look_again(self) -> None:
        assert self._assembly is not None
        try:
            await self._assembly.loops.refuse({rule.name for rule in self.settings.rules})
        except RuleRefusedError as error:
            self._ended = error
            self.finished.set()

    def _rule_failed(self, _: RuleSupervisor) -> None:
        self.finished.set()
