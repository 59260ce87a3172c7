"""How an open run ends: drained, abandoned or cut. Runs are stand-ins; no server."""

import asyncio
from typing import Any, cast

import pytest

from nats_bridge.client.tasks import end_tasks
from nats_bridge.errors import RuleRefusedError
from nats_bridge.rules import open_run
from nats_bridge.rules.leadership.term import Term
from nats_bridge.rules.open_run import OpenRun


class Drained:
    """A run whose start and drain last until the test lets them continue."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.done: list[str] = []
        self.resumes = asyncio.Event()
        self.begun = asyncio.Event()
        self.raises: BaseException | None = None

    async def start(self) -> None:
        await self._wait("started")

    async def stop(self) -> None:
        await self._wait("stopped")

    async def abandon(self) -> None:
        self.done.append("abandoned")

    async def end_at_once(self) -> None:
        self.done.append("cut")

    async def _wait(self, done: str) -> None:
        self.begun.set()
        await self.resumes.wait()
        if self.raises is not None:
            raise self.raises
        self.done.append(done)


@pytest.fixture
def run() -> Drained:
    return Drained()


@pytest.fixture
def term() -> Term:
    return Term()


@pytest.fixture
async def opened(run: Drained, term: Term) -> OpenRun:
    return OpenRun(cast(Any, run), term, "rule")


async def test_a_run_that_drains_has_finished_all(opened: OpenRun, run: Drained) -> None:
    run.resumes.set()
    assert await opened.end()
    assert (run.done, opened.ended) == (["stopped"], True)
    assert await opened.end()  # a second call changes nothing
    assert run.done == ["stopped"]


@pytest.mark.parametrize("by", ["raising", "failing"])
async def test_what_fails_in_a_drain_is_left_in_flight(opened: OpenRun, run: Drained, by: str) -> None:
    ending = asyncio.create_task(opened.end())
    await run.begun.wait()
    if by == "raising":
        run.raises = OSError("gone")
    else:
        run.error = RuleRefusedError("gone")
    run.resumes.set()
    assert not await ending
    assert opened.ended


async def test_an_error_before_the_drain_does_not_count(opened: OpenRun, run: Drained) -> None:
    run.error = RuleRefusedError("before")
    run.resumes.set()
    assert await opened.end()


async def test_a_drain_that_takes_too_long_is_abandoned(
    opened: OpenRun, run: Drained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "_DRAIN", 0.0)
    assert not await opened.end()
    assert run.done == ["abandoned"]


async def test_a_run_without_the_lead_is_cut(opened: OpenRun, run: Drained, term: Term) -> None:
    term.lost.set()
    assert not await opened.end()
    assert run.done == ["cut"]


async def test_a_drain_is_cut_when_the_lead_is_lost(opened: OpenRun, run: Drained, term: Term) -> None:
    ending = asyncio.create_task(opened.end())
    await run.begun.wait()
    term.lost.set()
    assert not await ending
    assert run.done == ["cut"]


async def test_a_caller_that_is_cancelled_leaves_the_drain_to_the_next_one(opened: OpenRun, run: Drained) -> None:
    first = asyncio.create_task(opened.end())
    await run.begun.wait()
    await end_tasks(first)
    assert not opened.ended
    run.resumes.set()
    assert await opened.end()
    assert run.done == ["stopped"]  # once


async def test_a_start_ends_with_the_lead(opened: OpenRun, run: Drained, term: Term) -> None:
    starting = asyncio.create_task(opened.start())
    await run.begun.wait()
    term.lost.set()
    assert not await starting
    assert run.done == []


async def test_a_start_returns_when_the_run_has_started_or_raises_its_error(opened: OpenRun, run: Drained) -> None:
    run.resumes.set()
    assert await opened.start()
    run.raises = RuleRefusedError("no")
    with pytest.raises(RuleRefusedError):
        await opened.start()


async def test_the_first_failure_of_a_run_counts(opened: OpenRun) -> None:
    first, second = RuleRefusedError("first"), RuleRefusedError("second")
    opened.fail(first)
    opened.fail(second)
    assert opened.failed.result() is first
