"""The data cases of the catalogue on native servers: as the catalogue says, and as the engine shows it, whole.

`make test` plays the first case of each family; the engine alone passes the whole catalogue, in all dialects, in
tests/unit/conformance/test_engine_subject.py. The matrix, with scenarios, the bridge and more versions, is
`make conform`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue
from nats_conformance.history import HistoryWriter, Played, read_history
from nats_conformance.implementations.engine import EngineSubject
from nats_conformance.implementations.native import NativeSubject
from nats_conformance.native_servers import fetch
from nats_conformance.observation import Observation
from nats_conformance.reports import judged
from nats_conformance.reports.terminal import summary
from nats_conformance.running import play_all
from nats_conformance.subject import CannotPlay
from tests.differential.whole_observation import is_determined, whole
from tests.unit.conformance.playing import opened


def chosen_cases(subject: NativeSubject, chosen: str) -> tuple[Case, ...]:
    """The first case of each family that is about the version, or all others; a family differs only in numbers."""
    cases = [case for case in read_catalogue() if case.scenario is None]
    first: dict[str, Case] = {}
    for case in cases:
        if case.applies(subject.identity.version):
            first.setdefault(case.id.rpartition("/")[0], case)
    is_first = {case.id for case in first.values()}
    return tuple(case for case in cases if (case.id in is_first) is (chosen == "first of each family"))


@pytest.mark.parametrize("chosen", ["first of each family", pytest.param("the others", marks=pytest.mark.exhaustive)])
async def test_servers_do_what_the_catalogue_and_the_engine_say(chosen: str, twin_version: str, tmp_path: Path) -> None:
    subject = NativeSubject(twin_version, fetch(twin_version), tmp_path)
    cases = chosen_cases(subject, chosen)
    async with opened(subject):
        with HistoryWriter(tmp_path / "history.jsonl", {subject.identity.label: subject.identity}) as writer:
            await play_all(cases, [subject], writer)
    history = read_history(tmp_path / "history.jsonl")
    result = judged(history, cases)
    assert result.passed, summary(result, 120, False)
    seen = {record.case: record.observation for record in history.records if isinstance(record, Played)}
    assert seen.keys() == {case.id for case in cases if case.applies(subject.identity.version)}
    assert await differences(twin_version, cases, seen) == []


async def differences(version: str, cases: Sequence[Case], seen: dict[str, Observation]) -> list[str]:
    """Where the engine shows something else than a server, also what no case expects."""
    engine = EngineSubject(version)
    found = []
    for case in cases:
        if case.id not in seen or not is_determined(case):
            continue
        try:
            modelled = await engine.play(case)
        except CannotPlay:
            continue
        streams = frozenset(seen[case.id].stored)  # a server is asked for what the case is about alone
        streams -= case.expected(engine.identity.version).any_order
        left, right = whole(seen[case.id], streams), whole(modelled, streams)
        found += [f"{case.id}: {key}: {left[key]} != {right[key]}" for key in left if left[key] != right[key]]
    return found
