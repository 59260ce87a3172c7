"""The shrinker on pure predicates."""

from collections.abc import Callable

import pytest

from nats_conformance.catalogue.case import Message
from tests.differential.drawing import draw
from tests.differential.shrinking import shrunk, smaller, weight
from tests.differential.trial import ALL, Kind, Trial

BIG = Trial(
    Kind.REPUBLISH,
    {
        "name": "S",
        "subjects": ["s.>"],
        "republish": {"src": "s.*.日本.*.>", "dest": "d.{{splitFromLeft(2,117)}}.foo.$1.>", "headers_only": True},
    },
    tuple(
        Message(b"s.t%d.\xe6\x97\xa5.q.r" % number, b"NATS/1.0\r\nA: 1\r\nB: %d\r\nA: 2\r\n\r\n" % number, b"payload")
        for number in range(16)
    ),
)


async def smallest(trial: Trial, fails: Callable[[Trial], bool], most: int = 5000) -> Trial:
    async def asked(candidate: Trial) -> bool:
        return fails(candidate)

    found, _ = await shrunk(trial, asked, most)
    return found


async def test_one_message_stays_where_one_is_enough() -> None:
    def fails(trial: Trial) -> bool:
        return any(b"B: 7" in message.header_block for message in trial.messages)

    found = await smallest(BIG, fails)
    (message,) = found.messages
    assert message.header_block == b"B: 7"
    assert message.payload == b""
    assert message.subject == b"s"
    assert found.config == {}


async def test_messages_that_are_needed_together_stay_together() -> None:
    def fails(trial: Trial) -> bool:
        subjects = [message.subject for message in trial.messages]
        return any(b"t3" in each for each in subjects) and any(b"t11" in each for each in subjects)

    found = await smallest(BIG, fails)
    assert [message.subject for message in found.messages] == [b"s.t3", b"s.t11"]


async def test_texts_lose_tokens_and_characters_and_numbers_become_small() -> None:
    def fails(trial: Trial) -> bool:
        return "splitFromLeft(" in trial.config.get("republish", {}).get("dest", "")

    assert (await smallest(BIG, fails)).config == {"republish": {"dest": "splitFromLeft("}}

    def needs_numbers(trial: Trial) -> bool:
        destination = trial.config.get("republish", {}).get("dest", "")
        return destination.startswith("d.{{splitFromLeft(") and destination.count(",") == 1 and ",}" not in destination

    destination = (await smallest(BIG, needs_numbers)).config["republish"]["dest"]
    assert len(destination) < len("d.{{splitFromLeft(2,117)}}")


async def test_an_update_becomes_a_creation_where_that_fails_too() -> None:
    update = Trial(Kind.UPDATE, {"name": "S", "max_msgs": 5}, previous={"name": "S", "max_age": -1, "max_msgs": 3})

    def of_previous(trial: Trial) -> bool:
        return -1 in (trial.config.get("max_age"), (trial.previous or {}).get("max_age"))

    found = await smallest(update, of_previous)
    assert (found.kind, found.previous, found.config) == (Kind.CREATE, None, {"max_age": -1})

    def of_both(trial: Trial) -> bool:
        return trial.previous is not None and "max_msgs" in trial.config and "max_msgs" in trial.previous

    found = await smallest(update, of_both)
    assert found.previous == {"max_msgs": 0}
    assert found.config == {"max_msgs": 0}


async def test_other_streams_that_are_not_needed_go() -> None:
    trial = Trial(Kind.CREATE, {"name": "S"}, others=({"name": "A"}, {"name": "B"}, {"name": "D"}))
    assert (await smallest(trial, lambda each: {"name": "B"} in each.others)).others == ({"name": "B"},)


async def test_no_more_is_asked_than_allowed() -> None:
    asked = []

    async def fails(trial: Trial) -> bool:
        asked.append(trial)
        return len(trial.messages) > 3

    found, number = await shrunk(BIG, fails, 7)
    assert number == len(asked) == 7
    assert weight(found) < weight(BIG)
    assert len(found.messages) > 3


async def test_what_cannot_be_smaller_is_left() -> None:
    async def fails(trial: Trial) -> bool:
        return False

    assert (await shrunk(BIG, fails, 10_000))[0] == BIG


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.exhaustive) for part in range(1, 20))])
def test_every_neighbour_is_lighter_and_comes_once(part: int) -> None:
    for number in range(part, 40, 20):
        trial = draw(5, number, ALL)
        most, neighbours = weight(trial), list(smaller(trial))
        assert all(weight(each) < most for each in neighbours)
        assert len({repr(each) for each in neighbours}) == len(neighbours)
