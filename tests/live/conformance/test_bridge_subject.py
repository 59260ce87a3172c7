"""The bridge as a subject of test: real servers, the bridge as a process, many cases beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.catalogue import read_text
from conformance.catalogue.case import Case
from conformance.history import HistoryWriter, Played, Unplayed, read_history
from conformance.judging import judge
from conformance.observation import Observation
from conformance.outcome import Outcome, Verdict
from conformance.running import play_all
from conformance.servers import fetch
from conformance.subjects.bridge import BridgeSubject
from conformance.subjects.subject import CannotPlay

CASES = """
clause: ADR-28 and ADR-36
cases:
  - id: adr28/bridge/republish/1
    title: Messages are republished with the lines of the server
    level: must
    streams: [{name: S, subjects: [in.>], republish: {src: in.*, dest: out.$1}}]
    publish:
      - {subject: in.a, headers: ["A: 1", "a:2"], payload: one}
      - {subject: in.a.b, payload: not meant}
      - {subject: in.a, payload: two}
    expect:
      acks: [{stream: S, seq: 1}, {seq: 2}, {seq: 3}]
      received:
        - subject: out.a
          headers: ["A: 1", "a:2", "Nats-Stream: S", "Nats-Subject: in.a", "Nats-Sequence: 1", "Nats-Time-Stamp: <time>", "Nats-Last-Sequence: 0"]
          payload: one
        - subject: out.a
          headers: ["Nats-Stream: S", "Nats-Subject: in.a", "Nats-Sequence: 3", "Nats-Time-Stamp: <time>", "Nats-Last-Sequence: 1"]
          payload: two
    differences:
      - {until: "2.10", reason: Nats-Time-Stamp came with 2.10, without: Nats-Time-Stamp}
  - id: adr28/bridge/purge/1
    title: After a purge there is no last sequence
    level: must
    streams: [{name: S, subjects: [in.>], republish: {src: in.>, dest: out.>}}]
    steps:
      - {publish: [{subject: in.a, payload: one}]}
      - {purge: {stream: S}}
      - {publish: [{subject: in.a, payload: two}]}
    expect:
      received:
        - subject: out.a
          headers: ["Nats-Stream: S", "Nats-Subject: in.a", "Nats-Sequence: 1", "Nats-Time-Stamp: <time>", "Nats-Last-Sequence: 0"]
        - subject: out.a
          headers: ["Nats-Stream: S", "Nats-Subject: in.a", "Nats-Sequence: 2", "Nats-Time-Stamp: <time>", "Nats-Last-Sequence: 0"]
    differences:
      - {until: "2.10", reason: Nats-Time-Stamp came with 2.10, without: Nats-Time-Stamp}
  - id: adr36/bridge/chain/1
    title: A stream sources what another one has sourced, and republishes it
    level: must
    since: "2.10"
    streams: [{name: O, subjects: [in.>]}]
    steps:
      - {publish: [{subject: in.a, payload: one}]}
      - {create: {name: M, sources: [{name: O, subject_transforms: [{src: in.*, dest: m.$1}]}]}}
      - {create: {name: S, sources: [{name: M}], republish: {src: ">", dest: out.>}}}
      - {settle: {stream: S, messages: 1}}
      - {publish: [{subject: in.b, payload: two}]}
    expect:
      stored:
        M: [{subject: m.a, payload: one}, {subject: m.b, payload: two}]
        S: [{subject: m.a, payload: one}, {subject: m.b, payload: two}]
      received: [{subject: out.m.a, payload: one}, {subject: out.m.b, payload: two}]
  - id: adr36/bridge/mirror/1
    title: A mirror has the sequences of its origin
    level: must
    streams: [{name: O, subjects: [in.>]}]
    steps:
      - {publish: [{subject: in.a, payload: one}, {subject: in.b, payload: two}, {subject: in.c, headers: ["Nats-Msg-Id: c"], payload: three}]}
      - {delete: {stream: O, sequence: 2}}
      - {create: {name: S, mirror: {name: O}}}
    expect:
      stored:
        S:
          - {subject: in.a, headers: [], payload: one, sequence: 1}
          - {subject: in.c, headers: ["Nats-Msg-Id: c"], payload: three, sequence: 3}
  - id: adr36/bridge/ingress/1
    title: Messages are stored under their new subjects, and the stream answers
    level: must
    since: "2.10"
    streams: [{name: S, subjects: [in.>], subject_transform: {src: in.*, dest: "x.{{partition(4,1)}}.$1"}}]
    publish: [{subject: in.a, headers: ["A: 1"], payload: one}, {subject: in.not.meant, payload: two}]
    expect:
      acks: [{stream: S, seq: 1}, {stream: S, seq: 2}]
      stored: {S: [{subject: x.0.a, headers: ["A: 1"], payload: one}, {subject: in.not.meant, payload: two}]}
  - id: adr28/bridge/refused/1
    title: An index beyond the wildcards is refused
    level: must
    create: {name: S, subjects: [in.*], republish: {src: in.*, dest: out.$2}}
    expect: {refused: {code: 500, err_code: 10052}}
  - id: adr36/bridge/plain/1
    title: A stream without any of it is none of the bridge's business
    level: must
    create: {name: S, subjects: [in.*], max_msgs: 5}
    expect: {config: {max_msgs: 5}}
"""

FAILING = """
clause: ADR-36
cases:
  - id: adr36/bridge/failing/1
    title: A rule ends the sidecar while it runs
    level: must
    streams:
      - {name: O, subjects: [in.>]}
      - {name: S, sources: [{name: O}]}
    steps:
      - {publish: [{subject: in.a, payload: one}]}
      - {settle: {stream: S, messages: 1}}
      - {update: {name: S, sources: [{name: O}], sealed: true}}
      - {publish: [{subject: in.b, payload: two}]}
    expect: {stored: {S: [{subject: in.a, payload: one}, {subject: in.b, payload: two}]}}
"""

SUBJECTS = [("2.9.10", "native"), ("2.10.27", "native"), ("2.15.1", "native"), ("2.9.10", "2.15.1")]


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
    cases = read_text(CASES, Path("cases.yaml"))
    subject = BridgeSubject(server, fetch(server), tmp_path, dialect=dialect)
    await subject.open()
    try:
        judged, unplayed = await verdicts(subject, cases, tmp_path / "history.jsonl")
    finally:
        await subject.close()
    failed = {name: verdict for name, verdict in judged.items() if verdict.outcome is Outcome.FAIL}
    assert not failed
    newer = {"adr36/bridge/chain/1", "adr36/bridge/ingress/1"}
    is_old = subject.identity.version < (2, 10, 0)
    assert unplayed.keys() == {"adr36/bridge/plain/1"} | (newer if is_old else set())
    assert {each.outcome for each in unplayed.values()} == {Outcome.INAPPLICABLE}
    assert judged["adr36/bridge/mirror/1"].divergences == ("kd/copy/message-id",)
    passed = {"adr28/bridge/republish/1", "adr28/bridge/purge/1"}
    assert {judged[each].outcome for each in passed} == {Outcome.DIFFERENCE if is_old else Outcome.PASS}


async def test_a_rule_that_ends_the_sidecar_harms_no_other_case(tmp_path: Path) -> None:
    cases = read_text(CASES, Path("cases.yaml")) + read_text(FAILING, Path("failing.yaml"))
    subject = BridgeSubject("2.10.27", fetch("2.10.27"), tmp_path)
    await subject.open()
    try:
        answers = {case.id: answer async for case, answer in subject.play_many(cases)}
    finally:
        await subject.close()
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
