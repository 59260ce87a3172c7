"""A printed catalogue entry can be read, is about one version, and is what the server showed."""

from pathlib import Path
from typing import Any

import pytest

from nats_conformance.catalogue.case import Case, Create, ExpectedRefusal, Message, Publish, Update
from nats_conformance.catalogue.reading import read_text
from nats_conformance.identity import Identity
from nats_conformance.judging import judge
from nats_conformance.observation import Decision, Observation, Stored
from nats_conformance.outcome import Outcome
from tests.differential.comparing import Comparison
from tests.differential.entry import catalogue_entry
from tests.differential.trial import Kind, Trial

ODD = b"s.\xff.\xc3\xa9"
LINES = (
    b"Nats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 1\r\nNats-Time-Stamp: 2026-01-02T03:04:05.6Z\r\n"
    b"Nats-Last-Sequence: 0\r\n\r\n"
)
RULE = {
    "name": "S",
    "subjects": ["s.>"],
    "storage": "memory",
    "republish": {"src": "s.>", "dest": "d.{{split(1, -)}}\x0c"},
}
SOURCE = {"name": "O", "subjects": ["s.>"], "storage": "memory"}


def read_back(
    trial: Trial,
    native: Observation,
    aspect: str,
    where: str = "x",
    version: str = "2.15.1",
    listen: tuple[bytes, ...] = (),
) -> Case:
    difference = Comparison(trial.kind, (), aspect, True, where, "what the server\\nshowed", "what: the engine # says")
    (case,) = read_text(catalogue_entry(3, version, trial, native, difference, listen), Path("entry"))
    assert case.id == "native/differential/3"
    assert case.range.holds((2, 15, 1) if version == "2.15.1" else (2, 10, 27))
    others = ((2, 9, 10), (2, 10, 26), (2, 10, 28), (2, 14, 9), (2, 15, 0), (2, 15, 2))
    assert not any(case.applies(other) for other in others)
    assert judge(case, Identity("native", version), native).outcome is Outcome.PASS
    return case


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0\r\nA: 1\r\nA:  2 \r\n\r\n",
        b"NATS/1.0 503 No\r\nA: 1\r\n\r\n",
        b"NATS/1.0\r\nA: \xe9\xff\r\n\r\n",
        b"NATS/1.0\r\n: v\r\n- x\r\n'y': \"z\"\r\n\r\n",
        b"NATS/1.0\r\nA: 1",
        b"\r\n",
        b"\x00\x01",
        "NATS/1.0\r\nA: 日\u2028\x85\ufeff😀\r\n\r\n".encode(),
    ],
)
def test_messages_come_back_byte_for_byte(block: bytes) -> None:
    messages = (Message(ODD, block, bytes(range(256))), Message(b"s.a", block))
    seen = Message(b"d.\xff", block[:-2] + LINES if block else b"NATS/1.0\r\n" + LINES, b"\r\n")
    native = Observation((Decision(config=RULE),), (seen, Message(b"d.x", block, b"")))
    case = read_back(Trial(Kind.REPUBLISH, RULE, messages), native, "received", listen=(b"d.>", b"e"))
    assert case.steps == (Create(RULE), *map(Publish, messages))
    assert case.listen == (b"d.>", b"e")
    expected = case.expectation.received
    assert expected is not None
    assert expected[0].subject == b"d.\xff"
    assert b"Nats-Time-Stamp: <time>\r\n" in (expected[0].header_block or b"")


def test_copies_come_after_their_source() -> None:
    config = {"name": "S", "storage": "memory", "sources": [{"name": "O", "filter_subject": "s.*"}]}
    trial = Trial(Kind.SOURCE, config, (Message(b"s.a"),), (SOURCE,))
    block = b"NATS/1.0\r\nNats-Stream-Source: O 1 s.* > s.a dIAxtmQ4\r\n\r\n"
    native = Observation((Decision(config=config),), stored={"S": (Stored(Message(b"s.a", block), 1, 5),)})
    case = read_back(trial, native, "stored")
    assert case.streams == (SOURCE,)
    assert case.steps == (Publish(Message(b"s.a")), Create(config))
    (stored,) = (case.expectation.stored or {})["S"]
    assert stored.header_block == b"NATS/1.0\r\nNats-Stream-Source: O 1 s.* > s.a <identity>\r\n\r\n"


def test_a_mirror_keeps_its_sequences() -> None:
    config = {"name": "S", "storage": "memory", "mirror": {"name": "O"}}
    native = Observation((Decision(config=config),), stored={"S": (Stored(Message(b"s.a"), 4, 5),)})
    trial = Trial(Kind.MIRROR, config, (Message(b"s.a"),), (SOURCE,))
    (stored,) = (read_back(trial, native, "stored", version="2.10.27").expectation.stored or {})["S"]
    assert stored.sequence == 4


@pytest.mark.parametrize(
    ("decision", "where", "expected"),
    [
        (
            Decision(refusal=ExpectedRefusal(500, 10052, 'it: "no" # x')),
            "decision",
            ExpectedRefusal(500, 10052, 'it: "no" # x'),
        ),
        (Decision(config={"name": "S", "max_msgs": 7}), "config.max_msgs", {"max_msgs": 7}),
        (Decision(config={"name": "S"}), "config.max_msgs", {"max_msgs": None}),
        (Decision(config={"name": "S"}), "decision", None),
    ],
)
def test_decisions(decision: Decision, where: str, expected: Any) -> None:
    previous = {"name": "S", "subjects": ["s"]}
    trial = Trial(Kind.UPDATE, {"name": "S", "max_msgs": 7, "é\x7f": [None, 1.5]}, others=(SOURCE,), previous=previous)
    native = Observation((Decision(config=previous), decision))
    case = read_back(trial, Observation((decision,)), where.partition(".")[0], where)
    assert case.streams == (SOURCE, previous)
    assert case.steps == (Update(trial.config),)
    assert expected in (case.expectation.refusal, case.expectation.config)
    assert native.decisions[-1] == decision


def test_the_comments_show_both_sides() -> None:
    trial = Trial(Kind.CREATE, {"name": "S"})
    difference = Comparison(Kind.CREATE, (), "decision", True, "decision", "accepted", "500/10052 no")
    text = catalogue_entry(1, "2.15.1", trial, Observation((Decision(config={"name": "S"}),)), difference, ())
    assert text.startswith("# decision:\n#   server: accepted\n#   engine: 500/10052 no\nclause: ")
