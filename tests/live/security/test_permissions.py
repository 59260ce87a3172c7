"""The permissions that `check --permissions` prints: enough for every kind of rule, and none of them for nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import structlog.testing

from nats_bridge.app.preflight import with_server
from nats_bridge.app.sidecar import Sidecar
from nats_bridge.cli.clean import clean
from nats_bridge.client.permission_violations import refused_publication, refused_subscription
from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import BridgeError
from nats_bridge.jobs.stream_facts import look_up
from nats_bridge.permissions.granting import ConnectionGrants, Grant, as_text, grants_of
from nats_conformance.native_servers import NativeServer
from nats_transforms.subject import is_subset
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.security.permitted import FIRST, KEEPER, Scenario, Used, every_kind, used
from tests.live.shared_servers import Servers
from tests.live.tiers import EACH
from tests.live.until import until

ADMIN = "{user: admin, password: p}"


def config(*users: str) -> str:
    """A server's configuration with one account and users; it logs what they do."""
    listed = "\n".join((ADMIN, *users))
    return f"trace: true\nmax_traced_msg_len: 16\naccounts {{ A {{ jetstream: enabled, users: [\n{listed}\n] }} }}\n"


def user(name: str, permissions: str) -> str:
    return f'{{ user: "{name}", password: p\n{permissions}\n}}'


def covers(grant: Grant, way: str, subject: str) -> bool:
    """Whether a line allows something."""
    wide, _, group = grant.subject.partition(" ")
    narrow, _, queue = subject.partition(" ")
    return grant.way == way and group in ("", queue) and is_subset(narrow.encode(), wide.encode())


class Stage:
    """A server, scenarios with the permissions that they are granted, and their sidecars.

    ``lacking`` are the scenarios that lack something, with that; their work is not waited for.
    """

    def __init__(self, server: NativeServer, open_peer: OpenPeer, log: list[Any]) -> None:
        self.server = server
        self.log = log
        self.lacking: dict[str, Grant] = {}
        self._starting: list[asyncio.Task[None]] = []
        self._unfinished: list[Sidecar] = []  # whose start may be ended
        self.scenarios: list[Scenario] = []
        self.grants: dict[str, list[ConnectionGrants]] = {}
        self.sidecars: dict[str, Sidecar] = {}
        self.failed: dict[str, BaseException] = {}
        self._open_peer = open_peer
        self._password = server.directory / "password"
        self._password.write_text("p", "utf-8")

    @property
    def admin_url(self) -> str:
        return self.server.url.replace("//", "//admin:p@")

    async def peer(self) -> RawPeer:
        return await self._open_peer(self.admin_url)

    def settings(self, scenario: Scenario, rule: dict[str, Any], *, admin: bool = False) -> Any:
        settings = scenario.settings(
            rule, self.server.url, lambda c: "admin" if admin else f"{scenario.name}-{c}", self._password
        )
        return settings.model_copy(update={"fail_fast": True})  # a rule that lacks a permission does not try again

    async def prepare(self, scenarios: list[Scenario]) -> None:
        """Create the streams, and ask what each scenario's users need."""
        self.scenarios = scenarios
        for scenario in scenarios:
            await scenario.make()
            if (before := scenario.before()) is not None:
                earlier = Sidecar(self.settings(scenario, before, admin=True))
                await earlier.start()
                await earlier.stop()
            settings = self.settings(scenario, scenario.rule())
            known = await with_server(settings, self.admin_url, look_up)
            assert known or "advised" in scenario.name
            self.grants[scenario.name] = grants_of(settings, known)

    async def restart(self) -> None:
        """Restart the server with the given users; wait until every client is connected again."""
        connections = [opened for sidecar in self.sidecars.values() for opened in sidecar.connections.values()]
        before = [opened.reconnects for opened in connections]
        self.server.config = config(
            *(
                user(f"{name}-{connection.connection}", as_text([connection]))
                for name, grants in self.grants.items()
                for connection in grants
            )
        )
        await asyncio.to_thread(self.server.restart)
        peer = await self.peer()
        for scenario in self.scenarios:
            scenario.peer, scenario.seen = peer, None
        self.peer_now = peer
        # An advisory without a subscriber does not come again, so the server must have the subscriptions.
        await until(lambda: all(opened.reconnects > count for opened, count in zip(connections, before, strict=True)))
        for opened in connections:
            await until(opened.flush)

    async def start(self, *, later: bool = False) -> None:
        """Start all sidecars, at once."""

        async def start_one(scenario: Scenario) -> None:
            rule = scenario.after() if later else scenario.rule()
            sidecar = Sidecar(self.settings(scenario, rule))
            self._unfinished.append(sidecar)
            try:
                await sidecar.start()
            except BridgeError as error:
                self.failed[scenario.name] = error
            else:
                self.sidecars[scenario.name] = sidecar
            self._unfinished.remove(sidecar)

        # A user without permission to receive answers takes long to give up.
        self._starting += [
            asyncio.create_task(start_one(s), name=s.name) for s in self.scenarios if s.name in self.lacking
        ]
        await asyncio.gather(*(start_one(s) for s in self.scenarios if s.name not in self.lacking))

    async def stop(self) -> None:
        await end_tasks(*self._starting)
        await asyncio.gather(*(sidecar.stop() for sidecar in (*self.sidecars.values(), *self._unfinished)))
        self._unfinished.clear()
        for name, sidecar in self.sidecars.items():
            if sidecar.error is not None:
                self.failed[name] = sidecar.error
        self.sidecars.clear()

    async def each(self, messages: int) -> None:
        """Publish to every scenario, and wait until everything has come out of it."""
        for scenario in self.scenarios:
            if scenario.name not in self.failed:
                await scenario.has_all()  # begins to listen
                if messages != FIRST:
                    await scenario.disturb()
                await scenario.publish(messages)
        await self.settled()

    async def settled(self) -> None:
        """Wait until everything that was published has come out."""
        left = list(self.scenarios)

        async def over() -> bool:
            left[:] = [scenario for scenario in left if not await self._is_over(scenario)]
            return not left

        try:
            await until(over)
        except TimeoutError:
            raise AssertionError(f"{', '.join(one.name for one in left)}: the work is not done") from None

    async def _is_over(self, scenario: Scenario) -> bool:
        sidecar = self.sidecars.get(scenario.name)
        failed = scenario.name in self.failed or (sidecar is not None and sidecar.error is not None)
        return failed or self.missed(scenario.name) or await scenario.has_all()

    def refusals(self) -> list[str]:
        """What our own log says of refused requests, publications and subscriptions."""
        return [entry["server_says"] for entry in self.log if entry["event"] == "connection.refused"]

    def missed(self, name: str) -> bool:
        """Whether our own log says that something is refused which a scenario lacks."""
        missing = self.lacking.get(name)
        if missing is None:
            return False
        said = [("publish", refused_publication(text)) for text in self.refusals()]
        said += [("subscribe", refused_subscription(text)) for text in self.refusals()]
        return any(subject and covers(missing, way, subject.decode()) for way, subject in said)

    async def lose_consumers(self) -> None:
        """Another client deletes every consumer but the one that others have."""
        for stream in (await self.peer_now.api("STREAM.NAMES"))["streams"]:
            for consumer in (await self.peer_now.api(f"CONSUMER.NAMES.{stream}"))["consumers"] or ():
                if consumer != KEEPER:
                    await self.peer_now.api(f"CONSUMER.DELETE.{stream}.{consumer}")

    async def play(self) -> Used:
        """A whole life: start, restart, loss of consumers, stop, another start, leases removed; what was used."""
        try:
            await self._live()
        finally:
            await self.stop()
        for scenario in self.scenarios:
            if scenario.leads and scenario.name not in self.failed:
                lines = await clean(self.settings(scenario, scenario.rule()), [])
                assert "removed lease" in lines[0], lines
        await asyncio.to_thread(self.server.stop)
        return used(self.server.log_file)

    async def _live(self) -> None:
        await self.restart()
        await self.start()
        await self.each(FIRST)
        await self.restart()
        await self.each(30)
        await self.lose_consumers()
        await self.each(30)
        await self.stop()
        everything = await self.peer_now.client.subscribe(">")  # keeps consumers from being moved to another inbox
        await self.peer_now.flushed()
        await self.start()
        await until(lambda: all(task.done() or self.missed(task.get_name()) for task in self._starting))
        await self.stop()
        await everything.unsubscribe()
        for scenario in self.scenarios:
            if scenario.name not in self.failed:
                await scenario.act_while_running()
        await self.start(later=True)
        await self.settled()
        await self.each(10)


@contextlib.asynccontextmanager
async def staged(version: str, native_server: Servers, raw_peer: OpenPeer) -> AsyncIterator[Stage]:
    with native_server(version, config=config()) as server, structlog.testing.capture_logs() as log:
        yield Stage(server, raw_peer, log)


@pytest.mark.parametrize("version", EACH)
async def test_every_kind_does_its_work_with_exactly_what_is_printed(
    version: str, native_server: Servers, raw_peer: OpenPeer
) -> None:
    async with staged(version, native_server, raw_peer) as stage:
        await stage.prepare(every_kind("k", await stage.peer()))
        seen = await stage.play()
    assert stage.failed == {}
    assert (seen.refused, stage.refusals()) == ({}, [])
    for scenario in stage.scenarios:
        for connection in stage.grants[scenario.name]:
            name = f"{scenario.name}-{connection.connection}"
            assert seen.done[name], name
            needed = [grant for grant in connection.grants if not grant.optional]
            # Something was done that this line allows and no other: without it, that would have been refused.
            idle = [
                grant.subject
                for grant in needed
                if not any(
                    covers(grant, way, subject) and not any(covers(o, way, subject) for o in needed if o is not grant)
                    for way, subject in seen.done[name]
                )
            ]
            assert idle == [], name


@pytest.mark.exhaustive
async def test_every_kind_does_its_work_without_what_is_optional(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with staged("2.15.3", native_server, raw_peer) as stage:
        await stage.prepare(every_kind("b", await stage.peer()))
        optional = {
            f"{name}-{connection.connection}": [grant for grant in connection.grants if grant.optional]
            for name, grants in stage.grants.items()
            for connection in grants
        }
        for name, grants in stage.grants.items():
            stage.grants[name] = [
                replace(connection, grants=tuple(grant for grant in connection.grants if not grant.optional))
                for connection in grants
            ]
        seen = await stage.play()
    assert stage.failed == {}
    assert stage.refusals() == []
    assert [entry for entry in stage.log if entry["event"] == "connection.does_without"]
    assert seen.refused
    for name, refused in seen.refused.items():
        for way, subject in refused:
            assert any(covers(grant, way, subject) for grant in optional[name]), (name, way, subject)


@pytest.mark.exhaustive
async def test_every_line_that_is_taken_away_is_missed(native_server: Servers, raw_peer: OpenPeer) -> None:
    async with staged("2.15.3", native_server, raw_peer) as stage:
        peer = await stage.peer()

        def scenario(prefix: str, kind: str) -> Scenario:
            return next(one for one in every_kind(prefix, peer) if one.name == f"{prefix}{kind}")

        lacking: list[Scenario] = []
        for kind in ("confirmed", "sources"):
            await stage.prepare([whole := scenario("whole", kind)])
            (connection,) = stage.grants.pop(whole.name)
            needed = [number for number, grant in enumerate(connection.grants) if not grant.optional]
            for number in needed:
                await stage.prepare([one := scenario(f"less{number}x", kind)])
                lacking.append(one)
                (connection,) = stage.grants[one.name]
                missing = stage.lacking[one.name] = connection.grants[number]
                # Nor what can be done without, where that allows the same.
                rest = tuple(
                    grant
                    for grant in connection.grants
                    if grant is not missing and not covers(grant, missing.way, missing.subject)
                )
                stage.grants[one.name] = [replace(connection, grants=rest)]
        stage.scenarios = lacking
        seen = await stage.play()
    for name, missing in stage.lacking.items():
        refused = seen.refused[f"{name}-default"]
        assert any(covers(missing, way, subject) for way, subject in refused), (missing.subject, refused)
        assert stage.missed(name), missing.subject
