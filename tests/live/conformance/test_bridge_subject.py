"""The bridge as a subject of test: real servers, the bridge as a process, many cases at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_file
from nats_conformance.history import HistoryWriter, Played, Unplayed, read_history
from nats_conformance.implementations.bridge import BridgeSubject
from nats_conformance.judging import judge
from nats_conformance.native_servers import fetch
from nats_conformance.observation import Observation
from nats_conformance.outcome import Outcome, Verdict
from nats_conformance.running import play_all
from nats_conformance.subject import CannotPlay
from tests.unit.conformance.playing import opened

DATA = Path(__file__).parents[2] / "data"
CASES = DATA / "conformance_bridge.yaml"
FAILING = DATA / "conformance_bridge_failing.yaml"
SUBJECTS = [
    ("2.9.10", "2.15.3"),
    ("2.15.3", "native"),
    pytest.param("2.9.10", "native", marks=pytest.mark.exhaustive),
    pytest.param("2.10.27", "native", marks=pytest.mark.exhaustive),
]


async def verdicts(
    subject: BridgeSubject, cases: tuple[Case, ...], file: Path
) -> tuple[dict[str, Verdict], dict[str, Unplayed]]:
    """Play cases as a run does, and judge its history."""
    label = subject.identity.label
    with HistoryWriter(file, {label: subject.identity}, suite="test") as writer:
        await play_all(cases, [subject], writer)
    by_id = {case.id: case for case in cases}
    judged: dict[str, Verdict] = {}
    unplayed: dict[str, Unplayed] = {}
    for record in read_history(file).records:
        assert record.case not in judged.keys() | unplayed.keys()
        if isinstance(record, Played):
            judged[record.case] = judge(by_id[record.case], subject.identity, record.observation)
        else:
            unplayed[record.case] = record
    assert judged.keys() | unplayed.keys() == by_id.keys()
    return judged, unplayed


@pytest.mark.parametrize(("server", "dialect"), SUBJECTS)
async def test_the_bridge_does_what_servers_do(server: str, dialect: str, tmp_path: Path) -> None:
    cases = read_file(CASES)
    subject = BridgeSubject(server, fetch(server), tmp_path, dialect=dialect)
    async with opened(subject):
        judged, unplayed = await verdicts(subject, cases, tmp_path / "history.jsonl")
    failed = {name: verdict for name, verdict in judged.items() if verdict.outcome is Outcome.FAIL}
    assert not failed
    newer = {"adr36/bridge/chain/1", "adr36/bridge/ingress/1"}
    is_old = subject.identity.version < (2, 10, 0)
    assert unplayed.keys() == {"adr36/bridge/plain/1"} | (newer if is_old else set())
    assert {each.outcome for each in unplayed.values()} == {Outcome.INAPPLICABLE}
    assert judged["adr36/bridge/mirror/1"].divergences == ("kd/copy/message-id",)
    passed = {"adr28/bridge/republish/1", "adr28/bridge/purge/1"}
    assert {judged[each].outcome for each in passed} == {Outcome.DIFFERENCE if is_old else Outcome.PASS}


@pytest.mark.exhaustive
async def test_a_rule_that_ends_the_sidecar_harms_no_other_case(tmp_path: Path) -> None:
    cases = read_file(CASES) + read_file(FAILING)
    subject = BridgeSubject("2.10.27", fetch("2.10.27"), tmp_path)
    async with opened(subject):
        answers = {case.id: answer async for case, answer in subject.play_many(cases)}
    assert answers.keys() == {case.id for case in cases}
    ended = answers["adr36/bridge/failing/1"]
    assert isinstance(ended, Observation)
    assert "stream 'S' is sealed" in str(ended.facts["sidecar"])
    assert [each.message.payload for each in ended.stored["S"]] == [b"one"]
    for case in cases[:-1]:
        answer = answers[case.id]
        if case.id == "adr36/bridge/plain/1":
            assert isinstance(answer, CannotPlay)
        else:
            assert isinstance(answer, Observation), answer
            assert "sidecar" not in answer.facts
            assert judge(case, subject.identity, answer).outcome is not Outcome.FAIL
