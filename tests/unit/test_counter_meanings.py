"""Every counter of every kind of rule has one meaning, and only real counters have one."""

import pytest

from nats_bridge.rule_kinds import KINDS, RECEIVED, kind_named, rule_models


def test_every_kind_has_a_model_of_its_rules() -> None:
    assert list(rule_models()) == list(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_names_its_work_in_spans(name: str) -> None:
    assert kind_named(name).operation


@pytest.mark.parametrize("name", KINDS)
def test_every_counter_means_one_thing(name: str) -> None:
    kind = kind_named(name)
    meanings = kind.meanings
    named = [RECEIVED, meanings.sent, "bytes_out", *meanings.dropped, *meanings.facts, *kind.events]
    assert sorted(named) == sorted(kind.counters().as_dict())
