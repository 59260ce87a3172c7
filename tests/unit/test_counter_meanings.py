"""Every counter of every kind of rule has one meaning, and only real counters have one."""

from __future__ import annotations

import pytest

from nats_bridge.bridge.kinds.advisories.counters import AdvisoriesCounters
from nats_bridge.bridge.kinds.copying.counters import CopyCounters
from nats_bridge.bridge.kinds.ingress.encoder import IngressCounters
from nats_bridge.bridge.kinds.republish.counters import RuleCounters
from nats_bridge.bridge.observability.counter_meanings import MEANINGS, RECEIVED
from nats_bridge.bridge.settings.rules import KINDS

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
