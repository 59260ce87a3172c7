"""Every counter of every kind of rule has one meaning, and only real counters have one."""

from __future__ import annotations

import pytest

from bridge.advisories.counters import AdvisoriesCounters
from bridge.copying.counters import CopyCounters
from bridge.counter_meanings import MEANINGS, RECEIVED
from bridge.counters import RuleCounters
from bridge.ingress.loop import IngressCounters
from bridge.settings.rules import KINDS

COUNTERS = {
    "republish": RuleCounters,
    "sources": CopyCounters,
    "mirror": CopyCounters,
    "kv_sources": CopyCounters,
    "subject_transform": IngressCounters,
    "advisories": AdvisoriesCounters,
}


def test_every_kind_is_there() -> None:
    assert set(MEANINGS) == set(COUNTERS) == set(KINDS)


@pytest.mark.parametrize("kind", MEANINGS)
def test_every_counter_means_one_thing(kind: str) -> None:
    meanings = MEANINGS[kind]
    named = [RECEIVED, meanings.sent, "bytes_out", *meanings.dropped, *meanings.facts, *meanings.events]
    assert sorted(named) == sorted(COUNTERS[kind]().as_dict())
