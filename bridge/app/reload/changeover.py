"""From one configuration to another while the rules run: checked first, then applied, or rolled back.

Theory of operation. `prepare` opens what the new configuration needs and has every new or changed rule checked, as a
start would, loops included; whatever is in the way, nothing has changed by then but connections that are closed again.
`apply` stops what is removed, then starts what is new, since a rule may take over from a removed one. Rules that did
not change are not touched, except that they learn which configuration they belong to. When a start fails all the same,
what is new is stopped and what was there is started again: positions are on the servers, so it resumes where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from nats_bridge.bridge.app.reload.plan import ReloadPlan
from nats_bridge.bridge.client.connection import Link
from nats_bridge.bridge.client.connection_pool import close_links, connections_of, open_links
from nats_bridge.bridge.errors import EXIT_USAGE, BridgeError, ConnectionLostError, RuleRefusedError, StreamMissingError
from nats_bridge.bridge.rules.context import RuleContext
from nats_bridge.bridge.rules.runtime_config import Assembly
from nats_bridge.bridge.rules.supervisor import RuleSeat
from nats_bridge.bridge.settings import Rule, Settings

__all__ = ["Changeover", "RolledBackError"]


class RolledBackError(BridgeError):
    """A checked configuration could not be started; the previous one is running again."""

    code = "rolled_back"
    exit_code = EXIT_USAGE


class Changeover:
    """One change of the configuration.

    Args:
        old: what the rules run on.
        settings: the new configuration.
        plan: the difference.
        seats: the seats in the order of the old rules.
        make_seat: makes a seat for a rule that is new.
        opened: called with every connection as soon as it is open.

    Attributes:
        seats: all seats whose rule is running, at every moment.
        assembly: what the rules run on; the new one when all is done.
    """

    def __init__(
        self,
        old: Assembly,
        settings: Settings,
        plan: ReloadPlan,
        seats: list[RuleSeat],
        make_seat: Callable[[Rule, Assembly], RuleSeat],
        opened: Callable[[Link], None],
    ) -> None:
        self.seats = seats
        self.assembly = old
        self._old = old
        self._old_seats = seats
        self._settings = settings
        self._plan = plan
        self._make_seat = make_seat
        self._opened = opened
        self._new_links: dict[str, Link] = {}

    async def prepare(self) -> None:
        """Check whether the new configuration can run; change nothing yet.

        Raises:
            BridgeError: it cannot run.
        """
        plan, settings = self._plan, self._settings
        self._new_links = await open_links(settings, plan.opened)
        for link in self._new_links.values():
            self._opened(link)
        try:
            kept = {name: self._old.links[name] for name in self._needed() if name not in self._new_links}
            links = kept | self._new_links
            loops = self._old.loops.following(settings, links)
            self._new = replace(self._old, settings=settings, links=links, loops=loops)
            for rule in settings.rules:
                if rule.name in self.concerned:
                    self._refuse_broken(rule)
                    await self._check(rule)
            if plan.touched:
                await loops.refuse(self.concerned)
        except BaseException:
            await close_links(self._new_links.values())
            raise

    @property
    def concerned(self) -> set[str]:
        """The names of the rules that are to be started."""
        return {*self._plan.changed, *self._plan.added}

    async def apply(self) -> None:
        """Change over. After `prepare`.

        Raises:
            BridgeError: a start failed; the previous rules are running again.
        """
        await self._halt()
        try:
            await self._begin()
        except Exception as error:
            await self._undo()
            if not isinstance(error, BridgeError):
                raise
            raise RolledBackError(
                f"{error}; it was found at the start only, so rules were stopped and started again as they were",
                retriable=error.retriable,
            ) from None
        await self._finish()

    async def _halt(self) -> None:
        """Stop rules that are removed or changed."""
        plan = self._plan
        before = {seat.rule.name: seat for seat in self._old_seats}
        await asyncio.gather(
            *(before[name].halt() for name in plan.changed), *(before[name].stop() for name in plan.removed)
        )
        kept = {name: seat for name, seat in before.items() if name not in plan.removed}
        self.seats = [
            kept[rule.name] if rule.name in kept else self._make_seat(rule, self._new) for rule in self._settings.rules
        ]
        for seat, rule in zip(self.seats, self._settings.rules, strict=True):
            seat.take(rule, self._new)

    async def _begin(self) -> None:
        """Start what is new.

        Raises:
            BridgeError: a start failed.
        """
        for seat in self.seats:
            if seat.rule.name in self.concerned:
                await seat.check()
                await seat.start()

    async def _finish(self) -> None:
        """Commit the new configuration: close what no rule needs any more."""
        self.assembly = self._new
        await close_links(link for name, link in self._old.links.items() if self._new.links.get(name) is not link)

    async def _undo(self) -> None:
        """Roll back: stop new rules that were started, and restart the old ones; a rule that does not start fails."""
        plan = self._plan
        await asyncio.gather(
            *(
                seat.halt() if seat.rule.name in plan.changed else seat.stop()
                for seat in self.seats
                if seat.rule.name in self.concerned
            )
        )
        self.seats = self._old_seats
        rules = {rule.name: rule for rule in self._old.settings.rules}
        for seat in self.seats:
            seat.take(rules[seat.rule.name], self._old)
        for seat in self.seats:
            if seat.rule.name in (*plan.changed, *plan.removed):
                seat.resume()
        await close_links(self._new_links.values())

    async def _check(self, rule: Rule) -> None:
        """What a start would refuse; a changed rule must not lose its stream either, a new one may wait for it.

        Raises:
            BridgeError: what is against the rule.
        """
        context = RuleContext(self._settings.name, self._settings.dialect_of(rule), lambda _: None)
        run = self._new.make_run(rule, context)
        try:
            await run.check()
        except StreamMissingError as error:
            seat = next((seat for seat in self._old_seats if seat.rule.name == rule.name), None)
            if rule.name in self._plan.changed and seat is not None and seat.state != "waiting":
                raise RuleRefusedError(f"{error}; the rule is running, so this is treated as a mistake") from None

    def _refuse_broken(self, rule: Rule) -> None:
        """Do not stop a rule that cannot be checked because its server is down.

        Raises:
            ConnectionLostError: a connection of the rule is down.
        """
        for name in rule.connections:
            if not self._new.links[name].client.is_connected:
                raise ConnectionLostError(
                    f"rule '{rule.name}': connection '{name}' has no server at the moment, so it cannot be checked"
                )

    def _needed(self) -> set[str]:
        return connections_of(self._settings)
