"""Drawing is the same everywhere, and worth its while; what is held back is what would harm a server."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nats_conformance.catalogue.case import Message
from tests.differential.drawing import draw
from tests.differential.engine import Engine
from tests.differential.held_back import held_back
from tests.differential.trial import ALL, Kind, Trial
from tests.live.tiers import with_all

ROOT = Path(__file__).parents[3]
MANY = range(1500)


def test_seed_and_number_decide_what_is_drawn() -> None:
    assert [draw(7, number) for number in range(300)] == [draw(7, number) for number in range(300)]
    assert draw(7, 250) == [draw(7, number) for number in range(300)][250]
    assert [draw(7, number) for number in range(20)] != [draw(8, number) for number in range(20)]


def test_another_process_draws_the_same() -> None:
    here = hashlib.sha256(repr([draw(3, number) for number in range(200)]).encode()).hexdigest()
    program = (
        "import hashlib; from tests.differential.drawing import draw;"
        "print(hashlib.sha256(repr([draw(3, number) for number in range(200)]).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "17"}
    there = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert there.stdout.decode().strip() == here


def test_every_kind_is_drawn_and_no_other_than_asked_for() -> None:
    drawn = Counter(draw(1, number).kind for number in MANY)
    assert set(drawn) == ALL - {Kind.RANDOM}
    assert all(draw(1, number, {Kind.MIRROR}).kind is Kind.MIRROR for number in range(50))


def test_what_is_published_can_be_published() -> None:
    for number in MANY:
        for message in draw(1, number).messages:
            tokens = message.subject.split(b".")
            assert tokens[0] == b"s"
            assert b"" not in tokens
            assert not set(message.subject) & set(b" \t\r\n")
            assert len(message.header_block) != 1


@pytest.mark.parametrize("version", [*with_all("2.9.10", "2.10.27"), "2.15.1"])
@pytest.mark.parametrize("kind", sorted(ALL - {Kind.RANDOM}))
def test_enough_of_each_kind_is_accepted_and_enough_refused(version: str, kind: Kind) -> None:
    engine = Engine(version)
    accepted = Counter(engine.decide(draw(2, number, {kind})).refusal is None for number in range(300))
    assert accepted[True] > 45
    # 2.9 does not check ingress transforms, and so refuses none.
    assert accepted[False] > 15 or (version, kind) == ("2.9.10", Kind.INGRESS)


@pytest.mark.parametrize("kind", [Kind.REPUBLISH, Kind.INGRESS])
def test_most_subjects_match(kind: Kind) -> None:
    engine = Engine("2.15.1")
    seen: Counter[bool] = Counter()
    for number in range(300):
        trial = draw(2, number, {kind})
        config = engine.decide(trial).config
        if config is not None:
            rule = engine.republish_of(config)
            transform = engine.ingress_of(config) if rule is None else rule.transform
            assert transform is not None
            seen.update(transform.apply(message.subject) is not None for message in trial.messages)
    assert seen[True] > seen[False] > 50


def own(config: dict[str, Any], *subjects: bytes) -> Trial:
    base = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    return Trial(Kind.REPUBLISH, {**base, **config}, tuple(map(Message, subjects)))


def copying(entry: dict[str, Any], *messages: Message, mirrors: bool = False) -> Trial:
    members = {"mirror": {"name": "O", **entry}} if mirrors else {"sources": [{"name": "O", **entry}]}
    source = {"name": "O", "subjects": ["s.>"], "storage": "memory"}
    return Trial(Kind.MIRROR if mirrors else Kind.SOURCE, {"name": "S", **members}, messages, (source,))


ZERO = {"republish": {"src": "s.*", "dest": "d.{{partition(0,1)}}"}}
TEXT = {"republish": {"src": "s.*", "dest": "d.a\nb.$1"}}
ITSELF = {"republish": {"src": "s.*.*", "dest": "$1.$2"}}
NULL = Trial(Kind.CREATE, {"name": "S", "Sources": [None]})
EMPTIED = Trial(Kind.UPDATE, {"name": "S", "republish": {}}, previous={"name": "S"})
OVERLAP = {"subject_transforms": [{"src": "s.*.a", "dest": ""}, {"src": "s.b.*", "dest": ""}]}
EXPECTING = Message(b"s.a", b"NATS/1.0\r\nNats-Expected-Stream: O\r\n\r\n")
STATUS = Message(b"s.a", b"NATS/1.0 100 Idle\r\n\r\n")


@pytest.mark.parametrize(
    ("trial", "harmed", "unharmed"),
    [
        (own(ZERO, b"s.a"), ["2.9.10", "2.10.27", "2.11.17"], ["2.12.15", "2.15.1"]),
        (own({"republish": {"src": "s.*", "dest": "d.{{partition(4294967296,1)}}"}}, b"s.a"), ["2.10.27"], ["2.15.1"]),
        (own({"subject_transform": ZERO["republish"]}, b"s.a"), ["2.10.27", "2.11.17"], ["2.9.10", "2.12.15"]),
        (own(ZERO), [], ["2.10.27"]),
        (own(TEXT, b"s.a"), ["2.10.27", "2.15.1"], []),
        (own(ITSELF, b"s.s.b"), ["2.10.27", "2.15.1"], []),
        (own(ITSELF, b"s.a.b"), [], ["2.10.27", "2.15.1"]),
        (NULL, ["2.9.25", "2.10.27"], ["2.11.17", "2.12.15", "2.15.1"]),
        (EMPTIED, ["2.9.10", "2.10.27", "2.15.1"], []),
        (Trial(Kind.CREATE, {"name": "a b"}), ["2.15.1"], []),
        (Trial(Kind.CREATE, {"name": "S", "subjects": [">"], "no_ack": True}), ["2.15.1"], []),
        (copying(OVERLAP, Message(b"s.a")), ["2.10.27", "2.11.17"], ["2.9.10", "2.15.1"]),
        (copying({}, EXPECTING), ["2.9.10"], ["2.10.27", "2.15.1"]),
        (copying({}, EXPECTING, mirrors=True), ["2.9.10", "2.10.27"], ["2.11.17", "2.15.1"]),
        (copying({}, STATUS), ["2.9.10", "2.15.1"], []),
        (copying({"filter_subject": "s.*"}, Message(b"s.>")), ["2.9.10", "2.15.1"], []),
        (copying({}, Message(b"s.>")), [], ["2.9.10", "2.15.1"]),
    ],
)
def test_what_harms_a_version_is_held_back_from_it(trial: Trial, harmed: list[str], unharmed: list[str]) -> None:
    assert [version for version in harmed if held_back(trial, Engine(version)) is None] == []
    assert [version for version in unharmed if held_back(trial, Engine(version)) is not None] == []
