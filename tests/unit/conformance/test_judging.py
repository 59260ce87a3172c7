"""The judge: what counts as expected, and what it says of what is not."""

from dataclasses import replace
from typing import Any

import pytest

from nats_conformance.catalogue.case import (
    Case,
    Create,
    Difference,
    Expectation,
    ExpectedRefusal,
    Level,
    Message,
    MessagePattern,
    Update,
)
from nats_conformance.identity import Identity
from nats_conformance.judging import judge, mismatches, shown
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.outcome import Outcome

NATIVE = Identity("native", "2.10.27")
OLD = Identity("native", "2.9.10")
ACCEPTED = Decision(config={"name": "S", "republish": {"src": ">", "dest": "out.>"}})
REFUSED = Decision(refusal=ExpectedRefusal(500, 10052, "forms a cycle"))


def case(expectation: Expectation, *differences: Difference) -> Case:
    return Case(
        id="adr28/test/1",
        title="a case for the judge",
        level=Level.MUST,
        clause="ADR-28",
        expectation=expectation,
        steps=(Create({"name": "S"}),),
        differences=differences,
    )


def places(expectation: Expectation, observation: Observation) -> list[str]:
    return [each.where for each in mismatches(expectation, observation)]


def test_what_is_expected_passes() -> None:
    verdict = judge(case(Expectation()), NATIVE, Observation((ACCEPTED,)))
    assert (verdict.outcome, verdict.mismatches) == (Outcome.PASS, ())


@pytest.mark.parametrize(
    ("wanted", "seen", "where"),
    [
        (None, REFUSED, ["decision"]),
        (ExpectedRefusal(500, 10052, "forms a cycle"), ACCEPTED, ["decision"]),
        (ExpectedRefusal(500, 10052, "forms a cycle"), REFUSED, []),
        (ExpectedRefusal(err_code=10052), REFUSED, []),
        (ExpectedRefusal(err_code=10049), REFUSED, ["decision"]),
        (ExpectedRefusal(500, 10052, "another text"), REFUSED, ["decision"]),
        # A library that only knows that it refuses.
        (ExpectedRefusal(500, 10052, "forms a cycle"), Decision(refusal=ExpectedRefusal()), []),
    ],
)
def test_decisions(wanted: ExpectedRefusal | None, seen: Decision, where: list[str]) -> None:
    assert places(Expectation(refusal=wanted), Observation((seen,))) == where


@pytest.mark.parametrize("seen", [(), (ACCEPTED,)])
def test_an_answer_that_is_missing_is_no_consent(seen: tuple[Decision, ...]) -> None:
    asked = replace(case(Expectation()), steps=(Create({"name": "S"}), Update({"name": "S"})))
    verdict = judge(asked, NATIVE, Observation(seen))
    assert (verdict.outcome, [each.where for each in verdict.mismatches]) == (Outcome.FAIL, ["decision"])
    assert judge(asked, NATIVE, Observation((ACCEPTED, ACCEPTED))).outcome is Outcome.PASS


@pytest.mark.parametrize("seen", [b"out.007", b"out.-0", b"out." + b"1" * 5000])
def test_numbers_are_written_as_servers_write_them(seen: bytes) -> None:
    expected = Expectation(received=(MessagePattern(b"out.<int 0..8>"),))
    assert places(expected, Observation(received=(Message(seen),))) == ["received[0].subject"]


def test_only_the_last_decision_may_be_refused() -> None:
    expectation = Expectation(refusal=ExpectedRefusal(err_code=10052))
    assert places(expectation, Observation((ACCEPTED, REFUSED))) == []
    assert places(expectation, Observation((REFUSED, REFUSED))) == ["decision[0]"]


def test_members_of_the_configuration() -> None:
    observation = Observation((ACCEPTED,))
    assert places(Expectation(config={"republish": {"src": ">", "dest": "out.>"}}), observation) == []
    assert places(Expectation(config={"mirror": None}), observation) == []
    (found,) = mismatches(Expectation(config={"name": "T", "republish": ACCEPTED.config["republish"]}), observation)  # type: ignore[index]
    assert (found.where, found.expected, found.observed) == ("config.name", "'T'", "'S'")
    (found,) = mismatches(Expectation(config={"republish": None}), observation)
    assert found.expected == "(absent)"


BLOCK = b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: in\r\nNats-Sequence: 1\r\nNats-Time-Stamp: %b\r\n\r\n"


@pytest.mark.parametrize(
    ("expected", "seen", "where"),
    [
        ([b"out.a"], [b"out.a"], []),
        ([b"out.a"], [b"out.b"], ["received[0].subject"]),
        ([b"out.a", b"out.b"], [b"out.b", b"out.a"], ["received[0].subject", "received[1].subject"]),
        ([b"out.a"], [], ["received[0]"]),
        ([], [b"out.a"], ["received[0]"]),
        ([b"out.<int 0..4>"], [b"out.4"], []),
        ([b"out.<int 0..4>"], [b"out.5"], ["received[0].subject"]),
        ([b"out.<int 0..4>"], [b"out.x"], ["received[0].subject"]),
    ],
)
def test_received_messages(expected: list[bytes], seen: list[bytes], where: list[str]) -> None:
    expectation = Expectation(received=tuple(map(MessagePattern, expected)))
    assert places(expectation, Observation(received=tuple(map(Message, seen)))) == where


@pytest.mark.parametrize(
    ("time", "is_good"),
    [
        (b"2026-01-02T03:04:05Z", True),
        (b"2026-01-02T03:04:05.000000001Z", True),
        (b"2026-01-02T03:04:05.10Z", False),
        (b"2026-01-02T03:04:05.Z", False),
        (b"2026-01-02T03:04:05+00:00", False),
        (b"2026-01-02 03:04:05Z", False),
    ],
)
def test_times_are_written_as_the_server_writes_them(time: bytes, is_good: bool) -> None:
    expectation = Expectation(received=(MessagePattern(b"out", BLOCK % b"<time>"),))
    observation = Observation(received=(Message(b"out", BLOCK % time),))
    assert (places(expectation, observation) == []) is is_good


def test_the_time_is_the_stored_one() -> None:
    expectation = Expectation(received=(MessagePattern(b"out", BLOCK % b"<time>"),))
    received = (Message(b"out", BLOCK % b"2026-01-02T03:04:05Z"),)
    stored = Stored(Message(b"in"), 1, 1767323045_000000000)
    assert places(expectation, Observation(received=received, stored={"S": (stored,)})) == []
    later = replace(stored, time_ns=stored.time_ns + 1)
    assert places(expectation, Observation(received=received, stored={"S": (later,)})) == [
        "received[0].Nats-Time-Stamp"
    ]


def test_bytes_are_compared_not_texts() -> None:
    expectation = Expectation(received=(MessagePattern(b"out", b"NATS/1.0\r\nA: \xff\r\n\r\n", b"\xc3\xa9"),))
    same = Message(b"out", b"NATS/1.0\r\nA: \xff\r\n\r\n", b"\xc3\xa9")
    assert places(expectation, Observation(received=(same,))) == []
    spaced = replace(same, header_block=b"NATS/1.0\r\nA:  \xff\r\n\r\n", payload=b"e\xcc\x81")
    assert places(expectation, Observation(received=(spaced,))) == ["received[0].headers", "received[0].payload"]


def test_stored_messages_and_their_sequences() -> None:
    expectation = Expectation(stored={"S": (MessagePattern(b"a", sequence=1), MessagePattern(b"b", sequence=4))})
    stored = (Stored(Message(b"a"), 1), Stored(Message(b"b"), 3))
    assert places(expectation, Observation(stored={"S": stored})) == ["stored.S[1].sequence"]
    assert places(expectation, Observation()) == ["stored.S[0]", "stored.S[1]"]


def test_any_order() -> None:
    wanted = (MessagePattern(b"a"), MessagePattern(b"b"), MessagePattern(b"<int 0..9>"))
    expectation = Expectation(stored={"S": wanted}, any_order=frozenset({"S"}))
    stored = tuple(Stored(Message(subject), at) for at, subject in enumerate([b"7", b"b", b"a"]))
    assert places(expectation, Observation(stored={"S": stored})) == []
    repeated = tuple(Stored(Message(subject), at) for at, subject in enumerate([b"7", b"b", b"b"]))
    assert places(expectation, Observation(stored={"S": repeated})) != []


@pytest.mark.parametrize(
    ("wanted", "seen", "where"),
    [
        ({"stream": "S", "seq": 1}, {"stream": "S", "seq": 1, "duplicate": True}, []),
        ({"seq": 2}, {"stream": "S", "seq": 1}, ["acks[0]"]),
        (None, {"stream": "S", "seq": 1}, ["acks[0]"]),
        ({"seq": 1}, None, ["acks[0]"]),
        (None, None, []),
    ],
)
def test_answers_to_publishers(wanted: Any, seen: Any, where: list[str]) -> None:
    assert places(Expectation(acks=(wanted,)), Observation(acks=(seen,))) == where


def test_facts() -> None:
    assert places(Expectation(facts={"server": "ended"}), Observation(facts={"server": "ended", "more": 1})) == []
    assert places(Expectation(facts={"server": "ended"}), Observation(facts={"server": "running"})) == ["facts.server"]


DIFFERENCE = Difference(
    until=((2, 10, 0),),
    reason="2.9 refuses it",
    expectation=Expectation(refusal=ExpectedRefusal(err_code=10052)),
)


@pytest.mark.parametrize(
    ("identity", "seen", "outcome", "reason"),
    [
        (NATIVE, ACCEPTED, Outcome.PASS, ""),
        (NATIVE, REFUSED, Outcome.FAIL, "decision is not as expected"),
        (OLD, REFUSED, Outcome.DIFFERENCE, "2.9 refuses it"),
        (OLD, ACCEPTED, Outcome.FAIL, "the known difference is not there any more: 2.9 refuses it"),
    ],
)
def test_known_differences(identity: Identity, seen: Decision, outcome: Outcome, reason: str) -> None:
    verdict = judge(case(Expectation(), DIFFERENCE), identity, Observation((seen,)))
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


def test_bytes_are_shown_so_that_they_can_be_distinguished() -> None:
    assert shown(b"A: 1\r\n\tb\xff\xc3\xa9") == "A: 1\\r\\n\\tb\\udcffé"


def test_a_refusal_is_reported_with_what_is_known() -> None:
    wanted = Expectation(refusal=ExpectedRefusal(err_code=10052))
    (found,) = mismatches(wanted, Observation((ACCEPTED,)))
    assert (found.expected, found.observed) == ("10052", "accepted")
