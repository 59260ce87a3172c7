"""The engine as a subject of test passes the catalogue in every dialect."""

from pathlib import Path

import pytest

from nats_conformance.catalogue.case import Case
from nats_conformance.catalogue.reading import read_catalogue, read_text
from nats_conformance.errors import SubjectError
from nats_conformance.implementations.engine import EngineSubject
from nats_conformance.outcome import Outcome
from nats_conformance.subject import CannotPlay
from tests.unit.conformance.playing import outcomes

VERSIONS = (
    "2.9.10",
    *(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("2.10.27", "2.11.17", "2.12.15", "2.14.9")),
    "2.15.1",
)


HEAD = "clause: a clause\ncases:\n  - id: native/test/1\n    title: a title of it\n    level: must\n"


def case_of(text: str) -> Case:
    (case,) = read_text(HEAD + text, Path("x"))
    return case


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_engine_passes_the_catalogue(version: str) -> None:
    found, wrong = await outcomes(EngineSubject(version), read_catalogue())
    assert wrong == []
    assert found[Outcome.PASS] + found[Outcome.DIFFERENCE] > 40


async def test_the_same_case_gives_the_same_bytes_each_time() -> None:
    subject = EngineSubject("2.15.1")
    (case,) = [each for each in read_catalogue() if each.id == "adr28/block/time-stamp/1"]
    first = await subject.play(case)
    assert first == await subject.play(case)
    times = [line for each in first.received for line in each.header_block.split(b"\r\n") if b"Time-Stamp" in line]
    # Two digits of fraction, one, two, none: trailing zeros are seen to be cut.
    assert times == [
        b"Nats-Time-Stamp: 2026-01-01T00:00:00.25Z",
        b"Nats-Time-Stamp: 2026-01-01T00:00:00.5Z",
        b"Nats-Time-Stamp: 2026-01-01T00:00:00.75Z",
        b"Nats-Time-Stamp: 2026-01-01T00:00:01Z",
    ]
    assert [each.time_ns for each in first.stored["S"]] == [1767225600 * 10**9 + n * 250_000_000 for n in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("    scenario: some\n    expect: {facts: {a: b}}\n", "needs servers"),
        ("    needs: [store]\n    create: {name: S}\n    expect: {}\n", "what a stream keeps decides"),
        ("    harms: {until: '2.12'}\n    create: {name: S}\n    expect: {}\n", "an engine is none"),
    ],
)
async def test_what_only_a_server_can_show_is_not_played(text: str, reason: str) -> None:
    with pytest.raises(CannotPlay, match=reason) as answer:
        await EngineSubject("2.11.17").play(case_of(text))
    assert not answer.value.is_skip


async def test_a_case_that_harms_other_versions_is_played() -> None:
    case = case_of("    harms: {until: '2.12'}\n    create: {name: S}\n    expect: {}\n")
    assert (await EngineSubject("2.12.15").play(case)).decisions[0].config is not None


async def test_messages_that_loop_are_an_error() -> None:
    case = case_of(
        "    streams:\n"
        "      - {name: A, subjects: [a.>], republish: {src: a.>, dest: b.>}}\n"
        "      - {name: B, subjects: [b.>], republish: {src: b.>, dest: a.>}}\n"
        "    publish: [{subject: a.x}]\n"
        "    expect: {}\n"
    )
    with pytest.raises(SubjectError, match="republished messages loop"):
        await EngineSubject("2.15.1").play(case)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ("[{delete: {stream: S, sequence: 7}}]", "has no message 7"),
        ("[{purge: {stream: X}}]", "no stream 'X'"),
        ("[{drop: X}]", "no stream 'X'"),
    ],
)
async def test_a_step_about_what_is_not_there_is_an_error(steps: str, reason: str) -> None:
    case = case_of(f"    streams: [{{name: S}}]\n    steps: {steps}\n    expect: {{}}\n")
    with pytest.raises(SubjectError, match=reason):
        await EngineSubject("2.15.1").play(case)


async def test_a_set_up_that_is_refused_is_an_error() -> None:
    case = case_of("    streams: [{name: a.b}]\n    publish: [{subject: x}]\n    expect: {}\n")
    with pytest.raises(SubjectError, match=r"set-up stream 'a\.b' was refused"):
        await EngineSubject("2.15.1").play(case)
