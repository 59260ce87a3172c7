"""What another configuration changes, as a plan."""

from typing import Any

import pytest

from nats_bridge.app.reload.plan import ReloadPlan, plan_reload
from nats_bridge.settings import Settings

A: dict[str, Any] = {"name": "a", "kind": "republish", "stream": "S", "republish": {"src": "s.>", "dest": "a.>"}}
B: dict[str, Any] = {"name": "b", "kind": "sources", "stream": "T", "sources": [{"name": "S", "from": "west"}]}
CONNECTIONS: dict[str, Any] = {
    "default": {"servers": ["nats://127.0.0.1:4222"]},
    "west": {"servers": ["nats://127.0.0.1:4223"]},
}


def settings(*rules: dict[str, Any], **more: Any) -> Settings:
    return Settings.model_validate({"connections": CONNECTIONS, "rules": rules, **more})


def plan(old: Settings, new: Settings) -> ReloadPlan:
    return plan_reload(old, new)


def test_nothing_differs() -> None:
    found = plan(settings(A, B), settings(B, A))
    assert found.is_empty


@pytest.mark.parametrize(
    "change",
    [
        {"republish": {"src": "s.>", "dest": "elsewhere.>"}},
        {"republish": {"src": "s.x", "dest": "a.x"}},
        {"delivery": "at_least_once"},
        {"exclude": ["s.private"]},
        {"stream": "S2"},
        {"dialect": "2.10"},
        {"to": "west"},
    ],
)
def test_a_changed_rule(change: dict[str, Any]) -> None:
    found = plan(settings(A, B), settings(A | change, B))
    assert (found.changed, found.added, found.removed) == (("a",), (), ())


def test_added_and_removed() -> None:
    found = plan(settings(A), settings(B))
    assert (found.added, found.removed, found.touched) == (("b",), ("a",), ("b", "a"))
    assert found.opened == ("west",)


def test_a_new_name_is_a_new_rule() -> None:
    found = plan(settings(A), settings(A | {"name": "z"}))
    assert (found.added, found.removed) == (("z",), ("a",))


def test_another_kind_is_another_rule() -> None:
    other = {"name": "a", "kind": "mirror", "stream": "T", "mirror": {"name": "S"}}
    found = plan(settings(A, B), settings(other, B))
    assert (found.added, found.removed, found.changed, found.touched) == (("a",), ("a",), (), ("a",))


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"subject_transforms": [{"src": "s.>", "dest": "t.>"}]}, [("b", "S")]),
        ({"filter_subject": "s.x"}, [("b", "S")]),
        ({"exclude": ["s.x"]}, []),
        ({"opt_start_seq": 7}, []),
        ({"from": "default"}, []),
    ],
)
def test_a_source_of_which_the_target_knows_nothing(change: dict[str, Any], again: list[tuple[str, str]]) -> None:
    entry = B["sources"][0] | change
    found = plan(settings(B), settings(B | {"sources": [entry]}))
    assert found.changed == ("b",)
    assert list(found.copied_again) == again
    more = plan(settings(B), settings(B | {"sources": [*B["sources"], {"name": "S2"}]}))
    assert more.copied_again == (("b", "S2"),)


def test_rules_of_a_connection_that_leads_elsewhere_are_changed() -> None:
    elsewhere = CONNECTIONS | {"west": {"servers": ["nats://127.0.0.1:4224"]}}
    found = plan(settings(A, B), settings(A, B, connections=elsewhere))
    assert (found.opened, found.changed) == (("west",), ("b",))


def test_a_connection_that_no_rule_uses_does_not_count() -> None:
    elsewhere = CONNECTIONS | {"west": {"servers": ["nats://127.0.0.1:4224"]}, "more": {"servers": ["nats://h:1"]}}
    assert plan(settings(A), settings(A, connections=elsewhere)).is_empty


def test_a_default_that_is_written_out_is_another_connection() -> None:
    """It wins over a context."""
    written = CONNECTIONS | {"default": {**CONNECTIONS["default"], "inbox_prefix": "_INBOX"}}
    assert plan(settings(A), settings(A, connections=written)).opened == ("default",)


def test_a_dialect_counts_where_it_holds() -> None:
    assert plan(settings(A, dialect="2.10"), settings(A | {"dialect": "2.10"})).is_empty
    found = plan(settings(A | {"dialect": "2.10"}, B), settings(A | {"dialect": "2.10"}, B, dialect="2.11"))
    assert found.touched == ("b",)


@pytest.mark.parametrize(
    ("change", "restart"),
    [
        ({"name": "other"}, ("name",)),
        ({"http": {"listen": ""}}, ("http",)),
        ({"leadership": {"ttl": 5}}, ("leadership",)),
        ({"telemetry": {"trace": "link"}}, ("telemetry",)),
        ({"log": {"level": "debug"}}, ()),
        ({"reload": {"watch": False}}, ()),
    ],
)
def test_what_needs_a_restart(change: dict[str, Any], restart: tuple[str, ...]) -> None:
    found = plan(settings(A), settings(A, **change))
    assert found.restart == restart
    assert found.logging == ("log" in change)
    assert found.touched == ()


def test_the_leases_keep_their_connection() -> None:
    elsewhere = CONNECTIONS | {"west": {"servers": ["nats://127.0.0.1:4224"]}}
    leases = {"leadership": {"connection": "west"}}
    found = plan(settings(A, **leases), settings(A, connections=elsewhere, **leases))
    assert found.restart == ("leadership's connection 'west'",)
