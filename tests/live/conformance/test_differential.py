"""Differential runs on real servers: the engine agrees, and engines that are wrong on purpose are found and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nats_conformance.catalogue.case import Publish
from nats_conformance.catalogue.reading import read_text
from nats_conformance.identity import Identity
from nats_conformance.implementations.native import NativeSubject
from nats_conformance.judging import judge
from nats_conformance.native_servers import fetch
from nats_conformance.outcome import Outcome
from tests.differential import ALL, DifferentialResult, Kind, compare, report
from tests.differential.wrong_engines import WRONG, OneTooMany, Wrong
from tests.unit.conformance.playing import opened

ONE = "2.10.27"


async def run(version: str, directory: Path, **options: Any) -> DifferentialResult:
    return await compare(version, fetch(version, report=print), directory, **{"seed": 1, "comparisons": 500, **options})


async def test_engine_and_server_agree(twin_version: str, tmp_path: Path) -> None:
    comparisons = 100
    reported: list[tuple[str, int, int]] = []
    result = await run(
        twin_version, tmp_path, seed=11, comparisons=comparisons, progress=lambda *each: reported.append(each)
    )
    assert result.is_good, report.text(result)
    assert result.total >= comparisons
    missing = {"2.9.10": {Kind.INGRESS, Kind.RANDOM}, "2.10.27": {Kind.RANDOM}}.get(twin_version, set())
    assert {kind for kind, count in result.comparisons.items() if count} == {kind.value for kind in ALL - missing}
    assert reported[-1] == (twin_version, result.total, comparisons)


@pytest.mark.exhaustive
async def test_the_same_seed_compares_the_same(tmp_path: Path) -> None:
    first = await run(ONE, tmp_path / "1", comparisons=150)
    second = await run(ONE, tmp_path / "2", comparisons=150)
    assert (first.comparisons, first.held_back, first.trials) == (second.comparisons, second.held_back, second.trials)
    alone = await run(ONE, tmp_path / "3", only=4)
    assert alone.trials + sum(alone.held_back.values()) == 1


# One is enough to see that what was shrunk on a server is shown by it; the rest is shrunk in tests/unit/conformance.
SHRUNK_ON_A_SERVER = [
    pytest.param(each, id=each.engine.__name__, marks=() if each.kind is Kind.INGRESS else pytest.mark.exhaustive)
    for each in WRONG
]


@pytest.mark.parametrize("wrong", SHRUNK_ON_A_SERVER)
async def test_a_wrong_engine_is_found_and_shrunk(wrong: Wrong, tmp_path: Path) -> None:
    result = await run(ONE, tmp_path, only=wrong.trial, kinds={wrong.kind}, engine=wrong.engine(ONE))
    (found,) = result.disagreements
    assert wrong.where in found.where
    (case,) = read_text(found.entry, Path("entry"))
    assert sum(isinstance(step, Publish) for step in case.steps) == wrong.messages
    assert len(found.entry.splitlines()) < 40
    # What was printed is what a server shows: it can go into the catalogue as it is.
    subject = NativeSubject(ONE, fetch(ONE), tmp_path, at_once=1)
    async with opened(subject):
        verdict = judge(case, Identity("native", ONE), await subject.play(case))
    assert verdict.outcome is Outcome.PASS, (verdict, found.entry)


async def test_random_functions_are_judged_by_range_and_distribution(tmp_path: Path) -> None:
    result = await run("2.15.3", tmp_path / "right", kinds={Kind.RANDOM}, comparisons=100)
    assert result.is_good, report.text(result)
    assert result.comparisons["random"] >= 5
    result = await run("2.15.3", tmp_path / "wrong", kinds={Kind.RANDOM}, comparisons=100, engine=OneTooMany("2.15.3"))
    assert any("not within" in each.engine and each.native == "as it must be" for each in result.disagreements)
