"""The steps of a joint change: nobody begins one before all have done the one before, and what fails is taken back."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bridge.changeover import RolledBackError
from bridge.errors import BridgeError, ConnectionLostError, RuleRefusedError
from bridge.settings import Settings
from bridge.workers.channel import Json
from bridge.workers.joint_change import JointChange
from bridge.workers.slot import Slot
from bridge.workers.worker_process import WorkerProcess


def settings(*rules: str) -> Settings:
    republish = {"src": ">", "dest": "x.>"}
    listed = [{"name": name, "kind": "republish", "stream": "S", "republish": republish} for name in rules]
    return Settings.model_validate({"rules": listed})


class Played:
    """Workers that write down what they are asked, and refuse, or are gone, where they are told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []
        self.refused: dict[tuple[int, str], BridgeError] = {}

    def slot(self, number: int, *rules: str) -> Slot:
        slot = Slot(number, rules)
        if rules:
            self.launch_at(slot)
            slot.at_work = True
        return slot

    def launch_at(self, slot: Slot) -> None:
        slot.process = cast(WorkerProcess, _Process(self, slot.number))

    async def launch(self, slot: Slot, share: Settings) -> None:
        self.launch_at(slot)
        await self.ask(slot.number, "open")
        assert share.rules

    async def end(self, slot: Slot) -> bool:
        self.asked.append((slot.number, "end"))
        slot.process = None
        return True

    async def ask(self, number: int, what: str) -> Json:
        # The first one is the slowest, so that an order that nobody keeps would show.
        for _ in range(5 - number):
            await asyncio.sleep(0)
        self.asked.append((number, what))
        if (error := self.refused.get((number, what))) is not None:
            raise error
        return {}

    def steps(self) -> list[list[tuple[int, str]]]:
        """What was asked, in groups of one step each."""
        groups: list[list[tuple[int, str]]] = []
        for number, what in self.asked:
            if not groups or groups[-1][-1][1] != what:
                groups.append([])
            groups[-1].append((number, what))
        return [sorted(group) for group in groups]


class _Process:
    def __init__(self, played: Played, number: int) -> None:
        self._played = played
        self._number = number

    async def ask(self, what: str, **_: Any) -> Json:
        return await self._played.ask(self._number, what)


def change(played: Played, slots: list[Slot], shares: dict[str, int]) -> JointChange:
    return JointChange(slots, settings(*shares), shares, played.launch, played.end)


def both(what: str) -> list[tuple[int, str]]:
    return [(1, what), (2, what)]


async def test_all_do_one_step_after_the_other() -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2, "b")]
    steps = change(played, slots, {"a": 1, "b": 2})
    await steps.prepare()
    await steps.apply()
    await steps.finish()
    assert played.steps() == [both("prepare"), both("halt"), both("start"), both("finish")]


async def test_whoever_gets_rules_is_started_and_who_has_none_left_is_ended() -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2), played.slot(3)]
    steps = change(played, slots, {"b": 2})
    await steps.prepare()
    await steps.apply()
    await steps.finish()
    assert [asked for asked in played.asked if asked[0] == 1] == [
        *((1, what) for what in ("prepare", "halt", "start", "finish", "end"))
    ]
    assert [asked for asked in played.asked if asked[0] == 2] == [(2, "open"), (2, "begin")]
    assert not [asked for asked in played.asked if asked[0] == 3]
    assert [slot.rules for slot in slots] == [(), ("b",), ()]


@pytest.mark.parametrize("number", [1, 2])
async def test_what_one_refuses_changes_nothing(number: int) -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2, "b"), played.slot(3)]
    played.refused[number, "prepare"] = RuleRefusedError("no")
    with pytest.raises(RuleRefusedError, match="no"):
        await change(played, slots, {"a": 1, "b": 2, "c": 3}).prepare()
    assert {what for _, what in played.asked} == {"prepare", "open", "abandon", "end"}
    assert (3, "end") in played.asked, "who was started for it is not needed"
    assert [slot.rules for slot in slots] == [("a",), ("b",), ()]


@pytest.mark.parametrize("step", ["halt", "start"])
@pytest.mark.parametrize("number", [1, 2])
async def test_what_fails_later_is_taken_back_everywhere(number: int, step: str) -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2, "b")]
    steps = change(played, slots, {"a": 1, "b": 2})
    await steps.prepare()
    played.refused[number, step] = ConnectionLostError(f"worker {number} ended")
    with pytest.raises(RolledBackError, match=f"worker {number} ended; .* started again as they were") as refused:
        await steps.apply()
    assert refused.value.retriable
    assert played.steps()[-2:] == [both("withdraw"), both("resume")]
    assert (2, "start") not in played.asked or step == "start"
    assert [slot.rules for slot in slots] == [("a",), ("b",)]


async def test_who_is_gone_meanwhile_is_not_asked_to_take_back() -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2, "b")]
    steps = change(played, slots, {"a": 1, "b": 2})
    await steps.prepare()
    slots[1].process, slots[1].at_work = None, False
    with pytest.raises(RolledBackError, match="worker 2 is being started"):
        await steps.apply()
    assert played.asked[-2:] == [(1, "withdraw"), (1, "resume")]


async def test_who_is_gone_after_it_was_decided_starts_with_it() -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2, "b")]
    steps = change(played, slots, {"a": 1, "b": 2, "c": 2})
    await steps.prepare()
    await steps.apply()
    played.refused[2, "finish"] = ConnectionLostError("gone")
    await steps.finish()
    assert slots[1].rules == ("b", "c")


async def test_nothing_is_begun_while_a_worker_is_being_started() -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2, "b")]
    slots[1].at_work, slots[1].last_end = False, "killed by SIGKILL"
    with pytest.raises(ConnectionLostError, match="worker 2 is being started again: killed by SIGKILL") as refused:
        await change(played, slots, {"a": 1, "b": 2}).prepare()
    assert refused.value.retriable
    assert not played.asked


async def test_a_new_worker_is_gone_before_anything_of_before_is_back() -> None:
    played = Played()
    slots = [played.slot(1, "a"), played.slot(2)]
    steps = change(played, slots, {"a": 1, "b": 2})
    await steps.prepare()
    played.refused[2, "begin"] = RuleRefusedError("no")
    with pytest.raises(RolledBackError, match="no"):
        await steps.apply()
    assert played.asked.index((2, "end")) < played.asked.index((1, "resume"))
