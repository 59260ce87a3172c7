"""The sidecar: connections and rules from start to drain."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from nats_bridge.app.readiness_watch import watch_readiness
from nats_bridge.app.reload.changeover import Changeover
from nats_bridge.app.reload.coordinator import Reloader, ReloadFacts
from nats_bridge.app.reload.plan import plan_reload
from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import (
    close_connections,
    connections_of,
    open_connections,
    reopened,
)
from nats_bridge.client.tasks import end_tasks
from nats_bridge.client.waiting import SERVER_AWAY
from nats_bridge.errors import BridgeError, ConfigError, ConnectionLostError
from nats_bridge.http.own_state import OwnState
from nats_bridge.observability.logs import configure_logs
from nats_bridge.rules.context import Assembly
from nats_bridge.rules.leadership.term import Leadership
from nats_bridge.rules.loops.account_graph import AccountGraph
from nats_bridge.rules.run import RuleRun
from nats_bridge.rules.supervisor import RuleSupervisor
from nats_bridge.settings import Rule, Settings
from nats_bridge.settings.models import LeadershipSettings
from nats_bridge.telemetry.service import TelemetryService

if TYPE_CHECKING:
    from nats_bridge.http.listener import Listener
    from nats_bridge.permissions.refusals import Refusals

_log = structlog.get_logger("bridge.sidecar")

_LONG_START = 30.0  # seconds after which a reload no longer waits for a starting rule


class Sidecar:
    """All rules of one configuration.

    Args:
        config_path: the file to read again on `reload`; None if there is none.
        config_hash: of that file's content before it was read, as `nats_bridge.app.reload.file_watch` makes it.
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
        self._refusals: Refusals | None = None
        self._waiting_for = ""
        self._changing = asyncio.Lock()  # of connections and rules
        self._reopening: set[asyncio.Task[None]] = set()
        self.began = time.time()
        self.telemetry = TelemetryService(settings, self)
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
    def error(self) -> BaseException | None:
        """The error of the first rule that has failed, or the error that ended the sidecar."""
        return next((supervisor.error for supervisor in self.supervisors if supervisor.error is not None), self._ended)

    @property
    def ended_by(self) -> BaseException | None:
        """The error that ends the sidecar. The error of a rule ends it only with `fail_fast`."""
        return self.error if self.settings.fail_fast else self._ended

    @property
    def waiting_for(self) -> str | None:
        """The things that the start is waiting for, as a sentence; None after the start."""
        away = [str(each.failure) for each in self._connections if each.failure is not None]
        return self._waiting_for or "; ".join(away) or None

    async def start(self) -> None:
        """Connect and start every rule that can run, and retry the others later.

        After an error nothing is left running.

        With `fail_fast`, every rule is checked before one is started, and one that cannot run is an error.

        A caller that cancels it must stop the sidecar: some rules may be running, with messages in flight.

        Raises:
            BridgeError: the start failed, with the reason in one or two lines.
        """
        settings = self.settings
        if not settings.rules:
            raise ConfigError("rules: none configured; add at least one")
        try:
            assembly = await self._open()
            if settings.fail_fast:
                await self._start_all(assembly)
            else:
                await self._start_each(assembly)
        except Exception:
            await self.stop()
            raise
        states = Counter(supervisor.state for supervisor in self._supervisors)
        _log.info(
            "sidecar.ready",
            name=settings.name,
            rules=states["ready"],
            waiting=states["waiting"] + states["starting"],
            **{state: states[state] for state in ("standby", "failed") if states[state]},
            http=f"{self.http[0]}:{self.http[1]}" if self.http else "off",
        )
        self.reloader.start()

    async def _start_all(self, assembly: Assembly) -> None:
        for supervisor in self._supervisors:
            await supervisor.check()
        await assembly.loops.refuse({rule.name for rule in self.settings.rules})
        for supervisor in self._supervisors:
            await supervisor.start()

    async def _start_each(self, assembly: Assembly) -> None:
        """Start the rules, and wait until it is known of each whether it runs, or a start takes long."""
        refused = await assembly.loops.refused()
        for supervisor in self._supervisors:
            away = any(not assembly.connections[name].was_up for name in supervisor.rule.connections)
            if away or supervisor.rule.name in refused:
                supervisor.look_for_loops()
            supervisor.resume()
        trying = [asyncio.create_task(supervisor.tried.wait()) for supervisor in self._supervisors]
        try:
            await asyncio.wait(trying, timeout=_LONG_START)
        finally:
            await end_tasks(*trying)

    async def _open(self) -> Assembly:
        """Connect.

        Raises:
            BridgeError: the start failed; `stop` closes the connections that are open.
        """
        settings = self.settings
        self.telemetry.start()
        if settings.http.address is not None:
            self.state.watch.start()
            # The HTTP listener takes longer to import than everything else, so import it only if needed.
            from nats_bridge.http.listener import Listener
            from nats_bridge.telemetry.exposition import Exposition

            self.state.exposition = Exposition(self.telemetry.readings)
            self._listener = Listener(self, settings.http)
            self.http = await self._listener.start()
        connections = await open_connections(settings, connections_of(settings), patiently=not settings.fail_fast)
        for connection in connections.values():
            self._opened(connection)
        await _one_of(connections.values())
        if (wanted := settings.leadership) is not None:
            await self._open_leases(wanted)
        self.started = True
        loops = AccountGraph(settings, connections)
        loops.shared.on_late = self._look_again
        assembly = self._assembly = Assembly(settings, connections, loops, self.telemetry.tracing_of)
        self._supervisors = [self._make_supervisor(rule, assembly) for rule in settings.rules]
        self._watcher = asyncio.create_task(watch_readiness(lambda: self.supervisors))
        for connection in connections.values():
            if connection.is_closed:  # since it was opened
                self._connection_ended(connection.name, str(connection.client.last_error))
        return assembly

    async def _open_leases(self, wanted: LeadershipSettings) -> None:
        from nats_bridge.rules.leadership.leases import open_leases

        failures = 0
        while True:
            try:
                leases = self._leadership = await open_leases(
                    self.settings, wanted, partial(self._effect_of, wanted.connection)
                )
            except BridgeError as error:
                if not error.passing or self.settings.fail_fast:
                    raise
                self._waiting_for = f"the leases ({error})"
                _log.warning("leadership.not_open", reason=str(error), meaning="no rule runs before; tried again")
                failures += 1
                await SERVER_AWAY.pause(failures)
            else:
                self._waiting_for = ""
                leases.on_end(self._leases_ended)
                return

    async def stop(self) -> bool:
        """Drain all rules and close everything. Return whether every rule finished the messages in flight."""
        self.draining = True
        await end_tasks(self._watcher, *self._reopening)
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
        """Request the end: the owner of the sidecar then stops it, and rules finish the messages in flight."""
        if not self.draining:
            _log.info("sidecar.draining", reason=reason)
        self.draining = True
        self.finished.set()

    async def reload(self, asked_by: str) -> ReloadFacts:
        """Read the configuration file again and apply it, all or nothing; see `docs/reload.md`.

        Args:
            asked_by: the trigger, for the log and `/status`.
        """
        return await self.reloader.reload(asked_by)

    async def _take(self, settings: Settings) -> tuple[str, ...] | None:
        """Apply another configuration; see `Reloader`.

        Raises:
            BridgeError: the configuration was refused; the previous one stays in force.
        """
        async with self._changing:
            changed = await self._take_in_turn(settings)
        for supervisor in self._supervisors:
            supervisor.hurry()
        return changed

    async def _take_in_turn(self, settings: Settings) -> tuple[str, ...] | None:
        assert self._assembly is not None
        plan = plan_reload(self.settings, settings)
        if plan.restart:
            raise ConfigError(
                f"{self.config_path}: {', '.join(plan.restart)}: read only at the start, so this cannot change "
                "while the sidecar runs: restart the sidecar, or undo the change"
            )
        changeover = self._changeover = Changeover(
            self._assembly, settings, plan, self._supervisors, self._make_supervisor, self._opened
        )
        try:
            await changeover.prepare()
            await changeover.apply()
        finally:
            # Also after a cancelled step, because `stop` must find everything that runs.
            self._changeover = None
            self._supervisors, self._assembly = changeover.supervisors, changeover.assembly
            self._connections = [connection for connection in self._connections if not connection.is_closed]
        self.settings = settings
        if plan.logging:
            configure_logs(settings.log)
        for name, source in plan.copied_again:
            _log.warning(
                "rule.copied_again",
                rule=name,
                source=source,
                meaning="the selection or the target subjects changed, so the source is copied from its start again",
            )
        return None if plan.is_empty else plan.touched

    def _make_supervisor(self, rule: Rule, assembly: Assembly) -> RuleSupervisor:
        return RuleSupervisor(rule, assembly, self._leadership, self._rule_failed)

    def _opened(self, connection: Connection) -> None:
        self._connections.append(connection)
        connection.on_end(partial(self._connection_ended, connection.name))
        connection.effect_of = partial(self._effect_of, connection.name)
        report = partial(self._report_untested, connection)
        connection.on_reconnect(report)
        report()

    def _effect_of(self, connection: str, refusal: str) -> str:
        from nats_bridge.permissions.refusals import Refusals

        if self._refusals is None or self._refusals.settings is not self.settings:
            self._refusals = Refusals(self.settings)
        return self._refusals.effect(connection, refusal)

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
        if self.draining:
            return
        if self.settings.fail_fast:
            self._end(name, reason)
            return
        task = asyncio.create_task(self._reopen(name))
        self._reopening.add(task)
        task.add_done_callback(self._reopening.discard)

    def _leases_ended(self, reason: str) -> None:
        # Without its leases no rule may write, so the sidecar ends.
        if not self.draining and self.settings.leadership is not None:
            self._end(self.settings.leadership.connection, reason)

    def _end(self, name: str, reason: str) -> None:
        self._ended = ConnectionLostError(f"connection '{name}': the server ended it ({reason}): start again")
        self.finished.set()

    async def _reopen(self, name: str) -> None:
        """Replace a connection that its server has ended permanently, and start its rules again."""
        async with self._changing:
            assembly = self._assembly
            if assembly is None or name not in assembly.connections or not assembly.connections[name].is_closed:
                return
            supervisors = [each for each in self.supervisors if name in each.rule.connections]
            await asyncio.gather(*(supervisor.halt() for supervisor in supervisors))
            self._connections = [each for each in self._connections if not each.is_closed]
            try:
                connection = await reopened(self.settings, name)
            except BridgeError as error:  # a file of the configuration is no longer readable
                self._ended = error
                self.finished.set()
                return
            assembly.connections[name] = connection
            self._opened(connection)
            for supervisor in supervisors:
                supervisor.look_for_loops()
                supervisor.resume()

    async def _look_again(self) -> None:
        assert self._assembly is not None
        refused = await self._assembly.loops.refused()
        for supervisor in self.supervisors:
            if (error := refused.get(supervisor.rule.name)) is None:
                continue
            if self.settings.fail_fast:
                self._ended = error
                self.finished.set()
                return
            supervisor.refuse(error)

    def _rule_failed(self, _: RuleSupervisor) -> None:
        if self.settings.fail_fast:
            self.finished.set()


async def _one_of(connections: Iterable[Connection]) -> None:
    """Wait until one of the connections is up."""
    waiting = [asyncio.create_task(connection.connected()) for connection in connections]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*waiting)
