"""What a supervisor does with a run that fails while its lease may be over. Terms and runs are stand-ins; no server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from nats_bridge.errors import RuleRefusedError
from nats_bridge.rules.supervision import SupervisionAction
from nats_bridge.rules.supervisor import RuleSupervisor
from nats_bridge.settings import loads
from tests.live.until import until


class Fence:
    """A fence that the test opens and closes."""

    holds_back = False
    unsent_for = None

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    @property
    def is_open(self) -> bool:
        return self.open.is_set()

    async def opened(self) -> None:
        await self.open.wait()


class Leading:
    """The leadership of one rule: its first term begins at once, the next one never."""

    shared = True

    def __init__(self) -> None:
        self.fence = Fence()
        self.lost = asyncio.Event()
        self.surplus = asyncio.Event()
        self._begun = False

    def is_led(self, _: str) -> bool:
        return False

    async def has_position(self, _: str) -> bool:
        return False

    async def lead(self, _: Any) -> Any:
        if self._begun:
            await asyncio.Event().wait()
        self._begun = True
        return self

    async def end(self, *, finished: bool = True) -> None:
        return

    async def leave(self) -> None:
        return

    async def close(self) -> None:
        return


class Running:
    """A run that does nothing, and fails when the test says so."""

    remarks = ()
    begins_at_end = True
    has_work = False
    waiting_for = None
    ready = True

    def __init__(self, failed: Any) -> None:
        self.state = "ready"
        self.error: BaseException | None = None
        self.counters = SimpleNamespace(as_dict=dict)
        self.ended = asyncio.Event()
        self._failed = failed

    async def check(self) -> None:
        return

    async def keep_start(self) -> None:
        return

    async def start(self) -> None:
        return

    async def stop(self) -> None:
        return

    async def end_at_once(self) -> None:
        self.ended.set()

    def fail(self) -> None:
        self.error, self.state = RuleRefusedError("a consumer that another replica has recreated"), "failed"
        self._failed(self)


@pytest.fixture
async def led() -> tuple[RuleSupervisor, Leading, list[RuleSupervisor]]:
    """A supervisor whose rule works, its leadership, and the supervisors that have reported a failure."""
    settings = loads(
        "connections: {default: {servers: ['nats://127.0.0.1:4222']}}\n"
        "rules: [{name: rule, kind: republish, stream: S, republish: {src: a, dest: b}}]\n",
        Path(),
        "bridge.yaml",
        {},
    )
    assembly = SimpleNamespace(
        settings=settings, tracing_of=lambda _: None, make_run=lambda _, failed, *__: Running(failed)
    )
    leading, failed = Leading(), list[RuleSupervisor]()
    supervisor = RuleSupervisor(settings.rules[0], cast(Any, assembly), cast(Any, leading), failed.append)
    await supervisor.check()
    await supervisor.start()
    await until(lambda: supervisor.state == "ready")
    return supervisor, leading, failed


def run_of(supervisor: RuleSupervisor) -> Running:
    return cast(Running, supervisor.run)


async def test_every_action_of_a_state_is_performed(led: Any) -> None:
    supervisor, *_ = led
    assert {*supervisor._perform, "none"} == set(get_args(SupervisionAction))
    await supervisor.halt()


async def test_a_failure_under_an_open_fence_is_the_rules_own(led: Any) -> None:
    supervisor, _, failed = led
    run_of(supervisor).fail()
    await until(lambda: failed == [supervisor])
    assert supervisor.state == "failed"
    await supervisor.halt()


async def test_a_failure_whose_lease_turns_out_to_be_lost_ends_nothing(led: Any) -> None:
    """A process that was paused finds its consumer recreated before it finds its lease taken."""
    supervisor, leading, failed = led
    leading.fence.open.clear()
    run = run_of(supervisor)
    run.fail()
    leading.lost.set()
    await run.ended.wait()
    assert (failed, supervisor.error) == ([], None)
    await supervisor.halt()


async def test_a_failure_whose_lease_is_renewed_is_reported(led: Any) -> None:
    supervisor, leading, failed = led
    leading.fence.open.clear()
    run_of(supervisor).fail()
    assert not failed
    leading.fence.open.set()
    await until(lambda: bool(failed))
    assert isinstance(supervisor.error, RuleRefusedError)
    await supervisor.halt()
