"""Other words for a source entry mean the same: held against the engine, subject by subject."""

from __future__ import annotations

from typing import Any

import pytest

from nats_bridge.kinds.copying.handoff.spelling import spellings
from nats_transforms.dialect import dialect
from nats_transforms.errors import StreamConfigError
from nats_transforms.sourcing import compile_sourcing
from nats_transforms.stream_config import examine

SUBJECTS = [
    *(
        b"a",
        b"b",
        b"a.b",
        b"a.b.c",
        b"a.b.c.d",
        b"b.a",
        b"x.y.z",
        b"a.1",
        b"a.x.1",
        b"nats-bridge",
        b"$KV.A.k",
        b"$KV.A.k.l",
    )
]
ENTRIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "filter": {"filter_subject": "a.>"},
    "narrow filter": {"filter_subject": "a.*"},
    "literal": {"filter_subject": "a.b"},
    "dollar": {"subject_transforms": [{"src": "a.*", "dest": "n.$1"}]},
    "function": {"subject_transforms": [{"src": "a.*.*", "dest": "n.{{wildcard(2)}}.{{wildcard(1)}}"}]},
    "rest": {"subject_transforms": [{"src": "a.>", "dest": "n.>"}]},
    "everything renamed": {"subject_transforms": [{"src": ">", "dest": "n.>"}]},
    "wildcard and rest": {"subject_transforms": [{"src": "*.b.>", "dest": "n.$1.>"}]},
    "filter only": {"subject_transforms": [{"src": "a.>", "dest": ""}]},
    "partition": {"subject_transforms": [{"src": "a.*", "dest": "n.{{partition(3,1)}}"}]},
    "several": {"subject_transforms": [{"src": "a.*", "dest": "n.$1"}, {"src": "x.>", "dest": ""}]},
    "bucket": {"subject_transforms": [{"src": "$KV.A.>", "dest": "$KV.B.>"}]},
    "one token": {"subject_transforms": [{"src": "*", "dest": "n.$1"}]},
}


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("version", ["2.10.27", "2.11.17", "2.12.15", "2.14.9", "2.15.1"])
def test_every_spelling_means_the_same_to_every_server(name: str, version: str) -> None:
    server = dialect(version)
    entry = {"name": "S", "opt_start_seq": 7, **ENTRIES[name]}
    first = compile_sourcing(entry, server)
    found = list(spellings(entry))
    assert found[0] == {"name": "S", **ENTRIES[name]}
    assert len(found) > 1
    texts = set()
    for words in found:
        sourcing = compile_sourcing(words, server)
        texts.add((sourcing.record_filters, sourcing.record_destinations))
        assert [sourcing.destination(s) for s in SUBJECTS] == [first.destination(s) for s in SUBJECTS], words
        try:
            accepted = examine({"name": "T", "sources": [words]}, server)
        except StreamConfigError as error:
            pytest.fail(f"{words}: {error}")
        assert not accepted.warnings, words
    assert len(texts) == len(found), "two spellings that the server cannot distinguish"


def test_a_spelling_keeps_the_way_to_another_account() -> None:
    external = {"api": "AWAY.API", "deliver": "to.home"}
    assert all(words["external"] == external for words in spellings({"name": "S", "external": external}))
