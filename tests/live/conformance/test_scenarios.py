"""Scenarios on real servers: a quick choice of them; the whole is what `conform` is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.errors import SubjectError
from nats_conformance.identity import Identity
from nats_conformance.judging import judge
from nats_conformance.native_servers import NativeServer, fetch
from nats_conformance.outcome import Outcome
from nats_conformance.scenarios import play_scenario
from nats_conformance.scenarios.laboratory import Laboratory

_CHOSEN = (
    "republish-after-restart",
    "kill-and-restart",
    "republish-comes-before-the-acknowledgement",
    "partition-zero-in-republish",
    "null-source",
    "republish-emptied-by-update",
    "source-after-restart",
    "full-target-waits",
    "interest-without-interest",
    "atomic-batch-is-republished-at-its-commit",
    "permissions-of-the-publisher",
    "source-of-another-account",
    "republish-through-an-upgrade",
    "source-through-an-upgrade",
    "bridged-messages-are-taken-for-sourced-ones",
    "api-level",
)


def case_of(scenario: str) -> Case:
    (found,) = [case for case in read_catalogue() if case.scenario == scenario]
    return found


def left_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("name", _CHOSEN)
async def test_a_version_shows_what_the_catalogue_says(name: str, twin_version: str, tmp_path: Path) -> None:
    case, subject = case_of(name), Identity("native", twin_version)
    observation = await play_scenario(name, fetch(twin_version), tmp_path)
    if case.applies(subject.version):
        verdict = judge(case, subject, observation)
        assert verdict.outcome in (Outcome.PASS, Outcome.DIFFERENCE), verdict
    assert left_in(tmp_path) == []  # nothing is left behind


@pytest.mark.exhaustive
async def test_a_cluster_of_replicas(tmp_path: Path) -> None:
    name, subject = "memory-stream-of-three-replicas", Identity("native", "2.15.3")
    observation = await play_scenario(name, fetch("2.15.3"), tmp_path)
    assert judge(case_of(name), subject, observation).outcome is Outcome.PASS


async def test_servers_are_ended_when_a_scenario_fails(tmp_path: Path) -> None:
    started: list[NativeServer] = []

    async def failing() -> None:
        async with Laboratory(fetch("2.15.3"), tmp_path) as laboratory:
            started.append(await laboratory.server())
            await (await laboratory.connect(started[0])).publish("in.a", "x")

    with pytest.raises(SubjectError, match=r"no stream takes 'in\.a'"):
        await failing()
    assert not started[0].running
    assert left_in(tmp_path) == []


async def test_a_server_that_does_not_start_is_an_error_of_the_subject(tmp_path: Path) -> None:
    async with Laboratory(fetch("2.15.3"), tmp_path) as laboratory:
        with pytest.raises(SubjectError, match="ended on its own"):
            await laboratory.server("no such setting: true")
        assert not await laboratory.starts("no such setting: true")
