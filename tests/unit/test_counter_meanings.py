"""Every counter of every kind of rule has one meaning, and only real counters have one."""

from __future__ import annotations

import pytest

from nats_bridge.rule_kinds import KINDS, RECEIVED, kind_named
from nats_bridge.settings import rules


def test_every_kind_of_the_configuration_is_there() -> None:
    assert set(KINDS) == set(rules.KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_every_counter_means_one_thing(name: str) -> None:
    kind = kind_named(name)
    meanings = kind.meanings
    named = [RECEIVED, meanings.sent, "bytes_out", *meanings.dropped, *meanings.facts, *kind.events]
    assert sorted(named) == sorted(kind.counters().as_dict())
