"""The stage on real servers: every kind of step, what it waits for, and that it leaves nothing behind."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from nats_conformance import stage as stage_module
from nats_conformance.catalogue.case import Case, Message
from nats_conformance.catalogue.reading import read_text
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.native import RunningServer
from nats_conformance.judging import mismatches
from nats_conformance.native_servers import NativeServer, fetch
from nats_conformance.observation import Observation
from nats_conformance.raw_client import Collected, RawClient
from nats_conformance.stage import Stage
from nats_conformance.subject import CannotPlay
from nats_transforms.dialect import server_dialect
from nats_transforms.tested_versions import LIVE_VERSIONS
from tests.live.tiers import OLDEST_AND_NEWEST

NEWEST = LIVE_VERSIONS[-1]
_IDENTITY = re.compile(rb"(Nats-Stream-Source: [^ \r]+ [0-9]+ [^ \r]+ [^ \r]+ [^ \r]+) [0-9A-Za-z]{8}")

STEPS = """
streams: [{name: O, subjects: [in.>]}]
steps:
  - create: {name: S, subjects: [on.*]}
  - publish: [{subject: on.a, payload: one}, {subject: on.b, payload: two}, {subject: on.c, payload: three}]
  - delete: {stream: S, sequence: 2}
  - update: {name: S, subjects: [on.*], sources: [{name: O}]}
  - publish: {subject: in.a, headers: ["A: 1"], payload: copied}
  - settle: {stream: S, messages: 3}
  - purge: {stream: S, filter: on.a}
  - drop: O
expect: {stored: {S: [{subject: on.c, payload: three}, {subject: in.a, payload: copied}], O: []}}
"""

RELOCATED = """
streams: [{name: O, subjects: [in.>]}]
steps:
  - publish: [{subject: in.a, headers: ["A: 1"], payload: one}, {subject: in.b.c, payload: two}]
  - create: {name: S, subjects: [on.*], republish: {src: on.>, dest: out.on.>}, max_msgs_per_subject: 5}
  - create: {name: T, sources: [{name: O, filter_subject: in.b.>}]}
  - publish: [{subject: on.a, payload: three}, {subject: on.b, payload: four}]
  - purge: {stream: S, filter: on.a}
  - create: {name: U, subjects: [on.b]}
expect:
  refused: {code: 400, err_code: 10065, description: subjects overlap with an existing stream}
  stored:
    O: [{subject: in.a, payload: one}, {subject: in.b.c, payload: two}]
    S: [{subject: on.b, payload: four, sequence: 2}]
    T: [{subject: in.b.c, payload: two, sequence: 1}]
  received: [{subject: out.on.a, payload: three}, {subject: out.on.b, payload: four}]
"""


@pytest.fixture(scope="module", params=OLDEST_AND_NEWEST)
def server(request: pytest.FixtureRequest) -> Iterator[NativeServer]:
    with NativeServer(binary=fetch(request.param, report=print)) as started:
        yield started


@pytest.fixture(scope="module")
def newest() -> Iterator[NativeServer]:
    with NativeServer(binary=fetch(NEWEST, report=print)) as started:
        yield started


@pytest.fixture
async def stage(server: NativeServer) -> AsyncIterator[Stage]:
    client = await RawClient.connect(server.url)
    yield Stage(client)
    await client.close()


@pytest.fixture
async def newest_stage(newest: NativeServer) -> AsyncIterator[Stage]:
    client = await RawClient.connect(newest.url)
    yield Stage(client)
    await client.close()


def case_of(text: str) -> Case:
    """The case with these members, behind an id and a title."""
    head = "id: native/stage/1\ntitle: A case of the stage's tests\nlevel: observed\n"
    lines = (head + dedent(text).strip("\n")).splitlines()
    body = "\n".join(("  - " if at == 0 else "    ") + line for at, line in enumerate(lines))
    return read_text(f"clause: none\ncases:\n{body}\n", Path("stage.yaml"))[0]


async def played(stage: Stage, case: Case) -> Observation:
    return await stage.play(case, case.expected(server_dialect(stage.client.server_version).version))


async def names(client: RawClient) -> list[str]:
    return (await client.api("STREAM.NAMES")).get("streams") or []


def without_times(observation: Observation) -> object:
    """All that two plays of one case have in common; each play's source has an identity of its own."""
    stored = {
        stream: [
            (
                each.message.subject,
                _IDENTITY.sub(rb"\1", each.message.header_block),
                each.message.payload,
                each.sequence,
            )
            for each in messages
        ]
        for stream, messages in observation.stored.items()
    }
    received = [(each.subject, each.payload) for each in observation.received]
    return observation.decisions, observation.acks, stored, received


async def test_every_kind_of_step_is_carried_out(stage: Stage) -> None:
    case = case_of(STEPS)
    observation = await played(stage, case)
    assert not list(mismatches(case.expectation, observation))
    created, updated = observation.decisions
    assert (created.config or {})["subjects"] == ["on.*"]
    assert (updated.config or {})["sources"] == [{"name": "O"}]
    assert observation.acks == (
        {"stream": "S", "seq": 1},
        {"stream": "S", "seq": 2},
        {"stream": "S", "seq": 3},
        {"stream": "O", "seq": 1},
    )
    first, second = observation.stored["S"]
    assert (first.sequence, second.sequence) == (3, 4)
    assert second.message.header_block.startswith(b"NATS/1.0\r\nA: 1\r\nNats-Stream-Source: O 1")
    assert 0 < first.time_ns <= second.time_ns


async def test_nothing_is_left_and_the_next_case_receives_nothing_of_the_last(stage: Stage) -> None:
    case = case_of(RELOCATED)
    first = await played(stage, case)
    assert await names(stage.client) == []
    second = await played(stage, case)
    assert without_times(first) == without_times(second)
    assert await names(stage.client) == []


async def test_names_that_are_no_token_are_asked_about_and_cleaned_up(stage: Stage) -> None:
    for name in ("", "a b", "a.b", "*", ">", "tab\\there"):
        case = case_of(f'create: {{name: "{name}", subjects: [in.a]}}\nexpect: {{refused: {{code: 400}}}}')
        observation = await played(stage, case)
        assert not list(mismatches(case.expectation, observation)), name
    assert await names(stage.client) == []


async def test_a_stream_of_another_client_outlives_cases_whose_name_is_no_token(newest_stage: Stage) -> None:
    """Such a request is sent with another token in its subject."""
    client = newest_stage.client
    assert "error" not in await client.api("STREAM.CREATE._", {"name": "_", "storage": "memory"})
    await played(newest_stage, case_of('create: {name: "a b"}\nexpect: {refused: {}}'))
    assert await names(client) == ["_"]
    await client.api("STREAM.DELETE._")


async def test_a_refused_set_up_is_no_observation(stage: Stage) -> None:
    case = case_of(
        """
        streams: [{name: O, subjects: [in.>]}, {name: P, subjects: [in.a]}]
        create: {name: S}
        expect: {config: {name: S}}
        """
    )
    with pytest.raises(SubjectError, match="'P' was refused: subjects overlap with an existing stream"):
        await played(stage, case)
    assert await names(stage.client) == []


async def test_a_step_that_fails_is_no_observation_and_is_cleaned_up(stage: Stage) -> None:
    case = case_of(
        """
        streams: [{name: S, subjects: [in.>]}]
        steps: [{delete: {stream: S, sequence: 7}}]
        expect: {stored: {S: []}}
        """
    )
    with pytest.raises(SubjectError, match=r"STREAM\.MSG\.DELETE\.S: "):
        await played(stage, case)
    assert await names(stage.client) == []


async def test_a_subject_that_no_stream_takes_has_no_answer(stage: Stage) -> None:
    case = case_of("publish: [{subject: in.a, payload: one}]\nexpect: {acks: [null]}")
    assert (await played(stage, case)).acks == (None,)


async def test_copies_are_waited_for_until_the_last_expected_one(stage: Stage) -> None:
    """A limit of one message per subject holds the expected number long before the last copy is there."""
    publishes = ", ".join(f"{{subject: in.{number % 2}, payload: n{number}}}" for number in range(400))
    case = case_of(
        f"""
        streams: [{{name: O, subjects: [in.*]}}]
        steps:
          - create: {{name: T, max_msgs_per_subject: 1, sources: [{{name: O}}]}}
          - publish: [{publishes}]
        expect:
          stored:
            T: [{{subject: in.0, payload: n398, sequence: 399}}, {{subject: in.1, payload: n399, sequence: 400}}]
        """
    )
    observation = await played(stage, case)
    assert not list(mismatches(case.expectation, observation))


async def test_what_a_mirror_republishes_is_waited_for(newest_stage: Stage) -> None:
    publishes = ", ".join(f"{{subject: in.{number}}}" for number in range(300))
    received = ", ".join(f"{{subject: out.in.{number}}}" for number in range(300))
    case = case_of(
        f"""
        streams: [{{name: O, subjects: [in.*]}}]
        steps:
          - publish: [{publishes}]
          - create: {{name: T, mirror: {{name: O}}, republish: {{src: in.>, dest: out.in.>}}}}
        expect: {{received: [{received}]}}
        """
    )
    observation = await played(newest_stage, case)
    assert not list(mismatches(case.expectation, observation))


async def test_copies_that_never_come_are_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_module, "_SETTLE_LIMIT", 1.0)
    case = case_of(
        """
        streams: [{name: O, subjects: [in.*]}]
        steps:
          - create: {name: T, sources: [{name: O}]}
          - publish: {subject: in.a, payload: one}
        expect: {stored: {T: [{subject: in.a, payload: one}, {subject: in.b, payload: two}]}}
        """
    )
    found = list(mismatches(case.expectation, await played(stage, case)))
    assert [each.where for each in found if each.observed == "nothing"][-1] == "stored.T[1]"


@pytest.mark.parametrize("kept", [0, 1])
async def test_messages_that_are_removed_while_a_stream_is_read(
    kept: int, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = stage.client
    await stage.set_up({"name": "S", "subjects": ["in.*"]})
    for _ in range(3):
        await client.ask(Message(b"in.a"))
    subscribe = client.subscribe

    async def removing(subject: bytes) -> Collected:
        await client.api("STREAM.PURGE.S", {"keep": kept})
        return await subscribe(subject)

    monkeypatch.setattr(client, "subscribe", removing)
    assert [each.sequence for each in await stage.stored("S")] == [3] * kept
    await stage.clean_up()


async def test_the_stored_messages_of_a_work_queue_are_seen(stage: Stage) -> None:
    case = case_of(
        """
        streams: [{name: S, subjects: [in.*], retention: workqueue}]
        publish: [{subject: in.a, payload: one}, {subject: in.b, payload: two}]
        expect: {stored: {S: [{subject: in.a, payload: one}, {subject: in.b, payload: two}]}}
        """
    )
    assert not list(mismatches(case.expectation, await played(stage, case)))


async def test_streams_on_disk_can_be_made_and_dropped_at_once(stage: Stage) -> None:
    case = case_of("create: {name: S, subjects: [in.*]}\nexpect: {config: {storage: file}}")
    for _ in range(30):
        assert not list(mismatches(case.expectation, await played(stage, case)))


async def test_a_message_inside_of_a_batch_is_answered_with_nothing(newest_stage: Stage) -> None:
    case = case_of(
        """
        streams: [{name: S, subjects: [in.*], allow_atomic: true}]
        publish:
          - {subject: in.a, headers: ["Nats-Batch-Id: b", "Nats-Batch-Sequence: 1"]}
          - {subject: in.b, headers: ["Nats-Batch-Id: b", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1"]}
        expect: {acks: [{}, {stream: S, seq: 2, batch: b, count: 2}], stored: {S: [{subject: in.a}, {subject: in.b}]}}
        """
    )
    assert not list(mismatches(case.expectation, await played(newest_stage, case)))


async def test_a_case_that_is_moved_shows_the_same_and_touches_nothing_else(server: NativeServer) -> None:
    case = case_of(RELOCATED)
    client = await RawClient.connect(server.url)
    here = await played(Stage(client), case)
    keep = {"name": "KEEP", "subjects": ["in.>", "on.>", "out.>"], "storage": "memory"}
    assert "error" not in await client.api("STREAM.CREATE.KEEP", keep)
    running = RunningServer(server.url)
    await running.open()
    try:
        there = await running.play(case)
        assert await names(client) == ["KEEP"]
        assert (await client.api("STREAM.INFO.KEEP"))["state"]["messages"] == 0
    finally:
        await running.close()
        await client.api("STREAM.DELETE.KEEP")
        await client.close()
    assert without_times(there) == without_times(here)
    assert not list(mismatches(case.expectation, there))


async def test_a_case_that_cannot_be_moved_is_skipped_on_a_shared_server(newest: NativeServer) -> None:
    running = RunningServer(newest.url)
    await running.open()
    try:
        with pytest.raises(CannotPlay, match=r"cannot be moved to a subject of its own") as skipped:
            await running.play(case_of("create: {name: S, subjects: [$KV.S.>]}\nexpect: {config: {name: S}}"))
        assert skipped.value.is_skip
    finally:
        await running.close()


async def test_what_an_interrupted_case_left_is_removed_at_the_end(newest: NativeServer) -> None:
    running = RunningServer(newest.url)
    await running.open()
    client = await RawClient.connect(newest.url)
    for name in (f"{running.prefix}S", "OTHER"):
        assert "error" not in await client.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "memory"})
    await running.close()
    assert await names(client) == ["OTHER"]
    await client.api("STREAM.DELETE.OTHER")
    await client.close()
