"""Changes the configuration while the rules run: check first, then apply, or roll back.

Theory of operation. `prepare` opens the connections that the new configuration needs. Then it checks every new or
changed rule, including its loops, as a start would. If a check fails, only these new connections have to be closed.
`apply` first stops removed rules and then starts new ones, because a new rule may take over from a removed one.
Unchanged rules keep running and only receive the new configuration. If a start fails after all, the new rules are
stopped and the old ones restarted. They resume where they were, because their positions are stored on the servers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from nats_bridge.app.reload.plan import ReloadPlan
from nats_bridge.client.connection import Connection
from nats_bridge.client.connection_pool import close_connections, connections_of, open_connections
from nats_bridge.errors import EXIT_USAGE, BridgeError, ConnectionLostError, RuleRefusedError, StreamMissingError
from nats_bridge.rules.context import Assembly
from nats_bridge.rules.loops.account_graph import AccountGraph
from nats_bridge.rules.supervisor import RuleSupervisor
from nats_bridge.settings import Rule, Settings


class RolledBackError(BridgeError):
    """A checked configuration could not be started; the previous one is running again."""

    code = "rolled_back"
    exit_code = EXIT_USAGE


class Changeover:
    """One change of the configuration.

    Args:
        old: the assembly that the rules run on.
        settings: the new configuration.
        supervisors: the supervisors in the order of the old rules.
        make_supervisor: returns a supervisor for a new rule.
        opened: called with every connection as soon as it is open.

    Attributes:
        supervisors: all supervisors whose rule is running, at every moment.
        assembly: the assembly that the rules run on; the new one after `apply`.
    """

    def __init__(
        self,
        old: Assembly,
        settings: Settings,
        plan: ReloadPlan,
        supervisors: list[RuleSupervisor],
        make_supervisor: Callable[[Rule, Assembly], RuleSupervisor],
        opened: Callable[[Connection], None],
    ) -> None:
        self.supervisors = supervisors
        self.assembly = old
        self._old = old
        self._old_supervisors = supervisors
        self._settings = settings
        self._plan = plan
        self._concerned = {*plan.changed, *plan.added}  # the rules to start
        self._make_supervisor = make_supervisor
        self._opened = opened
        self._new_connections: dict[str, Connection] = {}

    async def prepare(self) -> None:
        """Check whether the new configuration can run, without changing anything.

        Raises:
            BridgeError: it cannot run.
        """
        plan, settings = self._plan, self._settings
        self._new_connections = await open_connections(settings, plan.opened)
        for connection in self._new_connections.values():
            self._opened(connection)
        try:
            needed = connections_of(settings)
            kept = {name: self._old.connections[name] for name in needed if name not in self._new_connections}
            connections = kept | self._new_connections
            loops = AccountGraph(settings, connections, self._old.loops)
            self._new = replace(self._old, settings=settings, connections=connections, loops=loops)
            for rule in settings.rules:
                if rule.name in self._concerned:
                    await self._check(rule)
            if plan.touched:
                await loops.refuse(self._concerned)
        except BaseException:
            await close_connections(self._new_connections.values())
            raise

    async def apply(self) -> None:
        """Change over. After `prepare`.

        Raises:
            BridgeError: a start failed; the previous rules are running again.
        """
        await self._halt()
        try:
            for supervisor in self.supervisors:
                if supervisor.rule.name in self._concerned:
                    await supervisor.check()
                    await supervisor.start()
        except Exception as error:
            await self._undo()
            if not isinstance(error, BridgeError):
                raise
            raise RolledBackError(
                f"{error}; it was found at the start only, so rules were stopped and started again as they were",
                retriable=error.retriable,
            ) from None
        self.assembly = self._new
        await close_connections(
            connection
            for name, connection in self._old.connections.items()
            if self._new.connections.get(name) is not connection
        )

    async def _halt(self) -> None:
        """Stop rules that are removed or changed."""
        plan = self._plan
        before = {supervisor.rule.name: supervisor for supervisor in self._old_supervisors}
        await asyncio.gather(
            *(before[name].halt() for name in plan.changed), *(before[name].stop() for name in plan.removed)
        )
        kept = {name: supervisor for name, supervisor in before.items() if name not in plan.removed}
        self.supervisors = [
            kept[rule.name] if rule.name in kept else self._make_supervisor(rule, self._new)
            for rule in self._settings.rules
        ]
        for supervisor, rule in zip(self.supervisors, self._settings.rules, strict=True):
            supervisor.take(rule, self._new)

    async def _undo(self) -> None:
        """Stop the new rules that were started, and restart the old ones. An old rule that does not start fails."""
        plan = self._plan
        await asyncio.gather(
            *(
                supervisor.halt() if supervisor.rule.name in plan.changed else supervisor.stop()
                for supervisor in self.supervisors
                if supervisor.rule.name in self._concerned
            )
        )
        self.supervisors = self._old_supervisors
        rules = {rule.name: rule for rule in self._old.settings.rules}
        for supervisor in self.supervisors:
            supervisor.take(rules[supervisor.rule.name], self._old)
        for supervisor in self.supervisors:
            if supervisor.rule.name in (*plan.changed, *plan.removed):
                supervisor.resume()
        await close_connections(self._new_connections.values())

    async def _check(self, rule: Rule) -> None:
        """Raise the error that a start would raise. A changed rule must keep its stream; a new one may wait for it.

        Raises:
            ConnectionLostError: a server of the rule is down, so it cannot be checked, and is not stopped.
            BridgeError: the rule cannot run.
        """
        for name in rule.connections:
            if not self._new.connections[name].client.is_connected:
                raise ConnectionLostError(
                    f"rule '{rule.name}': connection '{name}' has no server at the moment, so it cannot be checked"
                )
        try:
            await self._new.make_run(rule).check()
        except StreamMissingError as error:
            supervisor = next(
                (supervisor for supervisor in self._old_supervisors if supervisor.rule.name == rule.name), None
            )
            if (
                rule.name in self._plan.changed
                and supervisor is not None
                and supervisor.state not in ("waiting", "failed")
            ):
                raise RuleRefusedError(f"{error}; the rule is running, so this is treated as a mistake") from None
