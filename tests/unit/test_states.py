"""The tables of states: of readers, rounds and publishers of copies, runs and supervisors; every event in each."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from nats_bridge.consuming.reader_life import READER, ReaderEvent, ReaderState
from nats_bridge.errors import RuleRefusedError
from nats_bridge.kinds.copying.round import ROUND, RoundEvent, RoundLife, RoundState
from nats_bridge.kinds.copying.writing.publishing import PUBLISHING, PublishingEvent, PublishingState
from nats_bridge.rules.context import RuleContext
from nats_bridge.rules.run import RUN, RuleRun, RunEvent, RunState
from nats_bridge.rules.supervision import SUPERVISION, SupervisionEvent, SupervisionState
from nats_bridge.states import IllegalTransitionError, StateTable

TABLES = [
    pytest.param(ROUND, get_args(RoundState), get_args(RoundEvent), "opening", id="round"),
    pytest.param(PUBLISHING, get_args(PublishingState), get_args(PublishingEvent), "pipelined", id="publishing"),
    pytest.param(RUN, get_args(RunState), get_args(RunEvent), "starting", id="run"),
    pytest.param(READER, get_args(ReaderState), get_args(ReaderEvent), "new", id="reader"),
    pytest.param(SUPERVISION, get_args(SupervisionState), get_args(SupervisionEvent), "new", id="supervision"),
]


def ways(table: StateTable[Any, Any], first: str) -> dict[str, list[str]]:
    """How to get from the first state to each: the fewest events."""
    found: dict[str, list[str]] = {first: []}
    coming = [first]
    for state in coming:
        for event, following in table.rows[state].items():
            if following != "-" and following not in found:
                found[following] = [*found[state], event]
                coming.append(following)
    return found


ROUND_WAYS = ways(ROUND, "opening")
RUN_WAYS = ways(RUN, "starting")


@pytest.mark.parametrize(("table", "states", "events", "first"), TABLES)
def test_a_table_is_whole_and_every_state_is_reached(
    table: StateTable[Any, Any], states: tuple[str, ...], events: tuple[str, ...], first: str
) -> None:
    assert set(table.rows) == set(states)
    assert all(tuple(row) == events for row in table.rows.values())
    assert {following for row in table.rows.values() for following in row.values()} <= {*states, "-"}
    assert set(ways(table, first)) == set(states)


@pytest.mark.parametrize(("table", "states", "events", "first"), TABLES)
def test_what_a_table_does_not_have_is_refused(
    table: StateTable[Any, Any], states: tuple[str, ...], events: tuple[str, ...], first: str
) -> None:
    for state in states:
        for event in events:
            if table.rows[state][event] == "-":
                with pytest.raises(IllegalTransitionError, match=f"'{event}' must not happen in state '{state}'"):
                    table.after(state, event)
            else:
                assert table.after(state, event) == table.rows[state][event]


def test_nothing_sends_again_once_it_does_not() -> None:
    sends = {"opening", "copying", "draining"}
    for state, row in ROUND.rows.items():
        assert state in sends or not sends & set(row.values())
    assert set(ROUND.rows["cut"].values()) == {"cut", "closed"}  # another replica may write
    assert set(ROUND.rows["closed"].values()) == {"closed", "-"}
    assert set(RUN.rows["failed"].values()) == {"failed", "stopped"}
    assert set(RUN.rows["stopped"].values()) == {"stopped", "-"}


@pytest.mark.parametrize("state", get_args(RoundState))
async def test_a_round_in_every_state_and_every_event(state: RoundState) -> None:
    for event in get_args(RoundEvent):
        reported: list[object] = []
        life = RoundLife(reported.append, reported.append)
        over: list[bool] = []
        life.when_sending_stops(lambda over=over: over.append(True))  # type: ignore[misc]
        for each in ROUND_WAYS[state]:
            life.happened(each)  # type: ignore[arg-type]
        assert life.state == state
        if ROUND.rows[state][event] == "-":
            with pytest.raises(IllegalTransitionError):
                life.happened(event)
            assert life.state == state, event
            continue
        was_over, error = life.stopped_sending, RuleRefusedError("x")
        if event == "interrupted":
            life.interrupt("away")
            assert reported == ([] if was_over else ["away"])
        elif event == "failed":
            life.fail(error)
            assert reported == [error]
        else:
            life.happened(event)
        assert life.state == ROUND.rows[state][event], event
        assert life.stopped_sending == (life.state not in ("opening", "copying", "draining")), event
        assert over == [True] * life.stopped_sending, event  # reported once
        assert life.must_close == (life.state not in ("opening", "copying")), event
        if life.must_close:
            async with asyncio.timeout(10):
                await life.until_must_close()


class _Run(RuleRun):
    """A run that does nothing."""

    def __init__(self) -> None:
        self.failures: list[RuleRun] = []
        self.done: list[str] = []
        context = RuleContext("side", "native", self.failures.append)
        super().__init__(SimpleNamespace(name="rule"), self, context)

    def as_dict(self) -> dict[str, int]:
        return {}

    ready = has_work = False

    async def check(self) -> None:
        """Nothing is against it."""

    def status(self) -> dict[str, Any]:
        return {}

    async def _open(self) -> dict[str, Any]:
        return {}

    async def _drain(self, *, failed: bool) -> None:
        self.done.append("dropped" if failed else "drained")

    async def _close(self) -> None:
        self.done.append("closed")

    @property
    def connections(self) -> tuple[()]:
        return ()

    def _waits_for(self) -> None:
        return


@pytest.mark.parametrize("state", get_args(RunState))
async def test_a_run_in_every_state_and_every_event(state: RunState) -> None:
    for event in get_args(RunEvent):
        run = _Run()
        for each in RUN_WAYS[state]:
            run._happened(each)  # type: ignore[arg-type]
        if RUN.rows[state][event] == "-":
            with pytest.raises(IllegalTransitionError):
                run._happened(event)
            assert run.state == state, event
            continue
        run._happened(event)
        assert run.state == RUN.rows[state][event], event


async def test_a_run_that_fails_while_it_begins_is_not_ready_and_stays_failed() -> None:
    class Failing(_Run):
        async def _open(self) -> dict[str, Any]:
            self._fail(RuleRefusedError("no"))
            return {}

    run = Failing()
    await run.start()
    assert (run.state, run.failures) == ("failed", [run])
    run._fail(RuleRefusedError("again"))
    assert str(run.error) == "no"
    await run.stop()
    assert (run.state, run.done) == ("failed", ["dropped", "closed"])


@pytest.mark.parametrize("end", ["stop", "abandon", "end_at_once"])
async def test_every_end_closes_a_run(end: str) -> None:
    run = _Run()
    states = [run.state]
    await run.start()
    states.append(run.state)
    await getattr(run, end)()
    states.append(run.state)
    assert run.done[-1] == "closed"
    run._fail(RuleRefusedError("late"))
    states.append(run.state)
    assert states == ["starting", "ready", "stopped", "stopped"]
