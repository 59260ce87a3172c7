"""Moving a case to names of its own, and what cannot be moved."""

from typing import Any

import pytest

from nats_conformance.catalogue.case import Case, Create, Expectation, Level, Message, Publish
from nats_conformance.relocation import HERE, Relocation, obstacle

MOVED = Relocation("conform-1a2b3c-")
CONFIG = {
    "name": "S",
    "subjects": ["in.>"],
    "republish": {"src": ">", "dest": "out.{{partition(5,1)}}.>", "headers_only": True},
    "subject_transform": {"src": "", "dest": ""},
    "sources": [{"name": "O", "filter_subject": "in.a", "subject_transforms": [{"src": "in.*", "dest": "x.$1"}]}],
    "mirror": {"name": "P", "opt_start_seq": 3},
    "max_msgs": 7,
}


def test_names_and_subjects_get_the_prefix() -> None:
    assert MOVED.config(CONFIG) == {
        "name": "conform-1a2b3c-S",
        "subjects": ["conform-1a2b3c-in.>"],
        "republish": {"src": ">", "dest": "conform-1a2b3c-out.{{partition(5,1)}}.>", "headers_only": True},
        "subject_transform": {"src": "", "dest": ""},
        "sources": [
            {
                "name": "conform-1a2b3c-O",
                "filter_subject": "conform-1a2b3c-in.a",
                "subject_transforms": [{"src": "conform-1a2b3c-in.*", "dest": "conform-1a2b3c-x.$1"}],
            }
        ],
        "mirror": {"name": "conform-1a2b3c-P", "opt_start_seq": 3},
        "max_msgs": 7,
    }


def test_answers_lose_it_again() -> None:
    assert MOVED.json_back(MOVED.config(CONFIG)) == CONFIG
    block = b"NATS/1.0\r\nNats-Stream: conform-1a2b3c-S\r\nNats-Subject: conform-1a2b3c-in.a\r\n\r\n"
    seen = MOVED.message_back(Message(b"conform-1a2b3c-out.a", block, b"x"))
    assert seen == Message(b"out.a", b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: in.a\r\n\r\n", b"x")
    assert MOVED.subject(b"in.a") == b"conform-1a2b3c-in.a"


def test_here_changes_nothing() -> None:
    assert HERE.config(CONFIG) == CONFIG
    assert HERE.subject(b"in.a") == b"in.a"


def case(config: dict[str, Any], *messages: Message, **more: Any) -> Case:
    return Case(
        id="adr28/test/1",
        title="a case to be moved",
        level=Level.MUST,
        clause="",
        expectation=Expectation(),
        steps=(Create({"name": "S", **config}), *map(Publish, messages)),
        **more,
    )


@pytest.mark.parametrize(
    "config",
    [
        {"subjects": ["in.>"], "republish": {"src": "in.*", "dest": "out.$1"}},
        {"subjects": ["in.>"], "republish": {"src": "", "dest": "out.>"}},
        {"subjects": ["in.>"], "republish": {"src": "in.*.*", "dest": "out.{{partition(10,1,2)}}.{{left(1,2)}}"}},
        {"sources": [{"name": "O", "subject_transforms": [{"src": "in.*", "dest": ""}]}]},
    ],
)
def test_these_can_be_moved(config: dict[str, Any]) -> None:
    assert obstacle(case(config, Message(b"in.a"))) is None


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"subjects": [">"]}, "'>' cannot"),
        ({"subjects": ["*.a"]}, "'*.a' cannot"),
        ({"republish": {"src": "in.*", "dest": "$1.a"}}, "'$1.a' cannot"),
        ({"republish": {"src": "in.*", "dest": "{{wildcard(1)}}"}}, "cannot"),
        ({"republish": {"src": "in.*", "dest": "out.$0"}}, "'out.$0' cannot"),
        ({"republish": {"src": "in.*", "dest": "out.{{wildcard(0)}}"}}, "cannot"),
        ({"republish": {"src": "in.*", "dest": "out.{{partition(10,0)}}"}}, "cannot"),
        ({"republish": {"src": "in.*", "dest": "out.{{partition(10)}}"}}, "cannot"),
        ({"republish": {"src": "in.*", "dest": "out.{{ Wildcard( -1 )}}"}}, "cannot"),
        ({"subjects": ["$KV.A.>"]}, "cannot"),
    ],
)
def test_these_cannot(config: dict[str, Any], reason: str) -> None:
    found = obstacle(case(config))
    assert found is not None
    assert reason in found


def test_more_that_cannot() -> None:
    assert obstacle(case({}, Message(b"$JS.x"))) == "it publishes to '$JS.x'"
    named = Message(b"in.a", b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n")
    assert obstacle(case({}, named)) == "a header names a stream"
    assert obstacle(case({}, listen=(b">",))) == "it listens to '>'"
    assert obstacle(case({}, needs=frozenset({"account"}))) == "it needs a server or an account of its own"
