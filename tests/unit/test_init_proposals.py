"""What is proposed, from what streams are and what native configurations want. Pure: no server is asked."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from nats_bridge.bridge.cli.init import asked_for
from nats_bridge.bridge.cli.init.draft import Draft, InitFile
from nats_bridge.bridge.cli.init.landscape import Landscape
from nats_bridge.bridge.cli.init.native_wish import Comparison, compare
from nats_bridge.bridge.cli.init.proposed_rule import ProposedRule, configuration_text, named
from nats_bridge.bridge.cli.init.stream_change import StreamChange
from nats_bridge.bridge.errors import ConfigError
from nats_bridge.bridge.settings import loads
from nats_bridge.bridge.settings.schema import configuration_schema
from nats_bridge.marked_yaml import compose
from nats_bridge.transforms.dialect import dialect
from nats_bridge.transforms.stream_config import examine, validate

ALL = ["2.9.10", "2.10.27", "2.11.17", "2.12.15", "2.14.9", "2.15.1"]
NEW = ALL[1:]
every_version = pytest.mark.parametrize("version", ALL)

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"]}
PARTED = {"src": "events.*", "dest": "events.{{partition(8,1)}}.{{wildcard(1)}}"}
EU = {"name": "ORDERS", "subject_transforms": [{"src": "orders.eu.*", "dest": "eu.{{wildcard(1)}}"}]}


def seen(version: str, *configs: dict[str, Any], messages: int = 0) -> Landscape:
    """A cluster with these streams, as a server of that version keeps their configurations."""
    server = dialect(version)
    kept = [examine(config, server, strict=False).config for config in configs]
    state = {"messages": messages}
    streams = {
        str(config["name"]): {"config": config, "created": str(config["name"]), "state": state} for config in kept
    }
    return Landscape(version, server, streams)


def answers(comparison: Comparison) -> list[str]:
    return [str(verdict.answer) for verdict in comparison.verdicts]


# -- a native configuration against its server -----------------------------------------------------------------------


def test_a_source_that_2_9_took_without_its_transforms_becomes_a_rule_and_a_change() -> None:
    wanted = {"name": "ORDERS_EU", "sources": [EU]}
    result = compare(wanted, seen("2.9.10", ORDERS, wanted, messages=6))
    assert answers(result) == ["rule"]
    assert "2.9.10 silently ignores sources.subject_transforms" in result.verdicts[0].text
    (rule,) = result.rules
    assert rule.data == {"name": "ORDERS_EU-sources", "kind": "sources", "stream": "ORDERS_EU", "sources": [EU]}
    assert result.change is not None
    assert (result.change.how, result.change.wrong_messages) == ("update", 6)
    assert result.change.body["subjects"] == ["eu.*"]
    assert "sources" not in result.change.body


@pytest.mark.parametrize("version", NEW)
def test_a_newer_server_does_all_of_it(version: str) -> None:
    source = {"name": "ORDERS_EU", "sources": [EU]}
    events = {"name": "EVENTS", "subjects": ["events.*"], "subject_transform": PARTED}
    monitored = {**ORDERS, "republish": {"src": ">", "dest": "monitor.>"}}
    mirror = {"name": "COPY", "mirror": {"name": "ORDERS", "subject_transforms": [{"src": ">", "dest": "copy.>"}]}}
    there = seen(version, monitored, source, events, mirror)
    for wanted in (monitored, source, events, mirror):
        result = compare(wanted, there)
        assert (answers(result), result.rules, result.change) == (["native"], (), None)


@every_version
def test_a_republish_that_the_stream_does_not_have(version: str) -> None:
    wanted = {**ORDERS, "republish": {"src": "orders.>", "dest": "monitor.orders.>", "headers_only": True}}
    result = compare(wanted, seen(version, ORDERS))
    if version == "2.9.10":
        assert answers(result) == ["rule"]
        assert "10052" in result.verdicts[0].text
        assert result.rules[0].data["republish"] == wanted["republish"]
        assert result.change is None, "the stream can stay as it is"
    else:
        assert answers(result) == ["possible"]
        assert result.rules == ()


@every_version
def test_another_republish_than_the_native_one(version: str) -> None:
    there = {**ORDERS, "republish": {"src": ">", "dest": "monitor.>"}}
    wanted = {**ORDERS, "republish": {"src": ">", "dest": "other.>"}}
    result = compare(wanted, seen(version, there))
    assert answers(result) == ["rule" if version == "2.9.10" else "possible"]


def test_an_ingress_transform_that_2_9_ignored() -> None:
    wanted = {"name": "EVENTS", "subjects": ["events.*", "other"], "subject_transform": PARTED}
    result = compare(wanted, seen("2.9.10", wanted))
    assert answers(result) == ["rule"]
    assert result.rules[0].data["subject_transform"] == PARTED
    assert result.change is not None
    assert (result.change.how, result.change.body["subjects"]) == ("update", ["other", "events.*.*"])
    assert "no responders" in result.change.steps[0]


@every_version
def test_a_stream_that_is_not_there_yet(version: str) -> None:
    wanted = {"name": "ORDERS_EU", "sources": [EU, {"name": "OTHER"}], "republish": {"src": ">", "dest": "m.>"}}
    result = compare(wanted, seen(version, ORDERS))
    if version != "2.9.10":
        assert answers(result) == ["possible"] * 3
        assert result.change is None
        return
    # 2.9 has no republish for streams that take no subjects of their own.
    assert answers(result) == ["rule", "rule", "possible"]
    assert result.change is not None
    body = result.change.body
    assert (result.change.how, body["subjects"]) == ("create", ["eu.*"])
    assert [entry["name"] for entry in body["sources"]] == ["OTHER"]
    assert "republish" not in body


def test_functions_that_the_server_does_not_know_yet() -> None:
    wanted = {
        "name": "EVENTS",
        "subjects": ["events.*"],
        "subject_transform": {"src": "events.*", "dest": "e.{{partition(5)}}"},
    }
    for version, answer in (("2.11.17", "rule"), ("2.12.15", "possible")):
        result = compare(wanted, seen(version, {"name": "EVENTS", "subjects": ["events.*"]}))
        assert answers(result) == [answer]
    assert "refuses it" in compare(wanted, seen("2.11.17", {"name": "E", "subjects": ["e"]})).verdicts[0].text


def test_filters_that_overlap_in_part_never_copy_before_2_12() -> None:
    parts = [{"src": "orders.*.a", "dest": "x.$1"}, {"src": "orders.b.*", "dest": "y.$1"}]
    wanted = {"name": "T", "sources": [{"name": "ORDERS", "subject_transforms": parts}]}
    old = compare(wanted, seen("2.10.27", ORDERS, wanted))
    # The stream has the source, and the server copies nothing.
    assert answers(old) == ["rule"]
    assert answers(compare(wanted, seen("2.12.15", ORDERS, wanted))) == ["native"]


def test_a_mirror_has_to_be_recreated() -> None:
    wanted = {
        "name": "COPY",
        "mirror": {"name": "ORDERS", "subject_transforms": [{"src": "orders.>", "dest": "copy.>"}]},
    }
    result = compare(wanted, seen("2.9.10", ORDERS, wanted, messages=3))
    assert answers(result) == ["rule"]
    assert result.rules[0].data["mirror"] == wanted["mirror"]
    assert result.change is not None
    assert (result.change.how, result.change.body["subjects"]) == ("recreate", ["copy.>"])
    assert "mirror" not in result.change.body
    remove, create = result.change.steps[-2:]
    assert remove == "nats stream rm COPY"
    assert create.startswith("nats request '$JS.API.STREAM.CREATE.COPY' '{")


def test_a_plain_source_is_left_to_the_server() -> None:
    wanted = {"name": "ALL", "sources": [{"name": "ORDERS"}, {"name": "OTHER", "filter_subject": "o.*"}]}
    result = compare(wanted, seen("2.9.10", ORDERS, {"name": "OTHER", "subjects": ["o.>"]}, wanted))
    assert (answers(result), result.rules) == (["native", "native"], ())


def test_a_native_source_with_other_subjects_stays_next_to_the_rule() -> None:
    there = {"name": "T", "subjects": ["t.*"], "sources": [{"name": "ORDERS", "filter_subject": "orders.us.*"}]}
    wanted = {"name": "T", "subjects": ["t.*"], "sources": [*there["sources"], EU]}
    result = compare(wanted, seen("2.9.10", ORDERS, there))
    assert answers(result) == ["native", "rule"]
    assert result.change is not None
    assert [entry["filter_subject"] for entry in result.change.body["sources"]] == ["orders.us.*"]
    assert result.change.body["subjects"] == ["t.*", "eu.*"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sources": [{**EU, "external": {"api": "$JS.west.API"}}]}, "from:"),
        (
            {"sources": [{"name": "ORDERS", "subject_transforms": [{"src": "orders.*", "dest": "orders.x.$1"}]}]},
            "stored by stream 'ORDERS', too",
        ),
        ({"subjects": ["events.>"], "subject_transform": PARTED}, "'events.*' is none of them"),
        ({"subjects": ["other.*"], "subject_transform": PARTED}, "'events.*' is none of them"),
    ],
)
def test_what_cannot_be_done_from_outside_says_why(change: dict[str, Any], said: str) -> None:
    wanted = {"name": "T", **change}
    result = compare(wanted, seen("2.9.10", ORDERS, wanted))
    assert answers(result) == ["impossible"]
    assert said in result.verdicts[0].text
    assert (result.rules, result.change) == ((), None)


def test_what_a_newer_server_reported_of_itself_is_no_wish() -> None:
    wanted = {**validate(ORDERS, dialect("2.15.1")), "metadata": {"_nats.ver": "2.15.1"}}
    assert compare(wanted, seen("2.9.10", ORDERS)).verdicts == ()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"subjects": ["a"]}, "it has no name"),
        (
            {"name": "S", "subjects": ["a"], "republish": {"src": "a", "dest": "a"}},
            "no server takes this configuration",
        ),
        ({"name": 7}, "it has no name"),
    ],
)
def test_what_is_no_configuration(wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compare(wanted, seen("2.9.10"))


# -- rules and their text --------------------------------------------------------------------------------------------


def _read_back(rules: list[ProposedRule]) -> None:
    text = configuration_text({"servers": ["nats://h:1"]}, rules, about=["Said."], file="bridge.yaml")
    value = compose(text).value
    assert value["rules"] == [rule.data for rule in rules]
    assert [error.message for error in Draft202012Validator(configuration_schema()).iter_errors(value)] == []
    settings = loads(text, Path(), "bridge.yaml", {})
    assert [rule.name for rule in settings.rules] == [rule.name for rule in rules]
    assert text.startswith("# Said.\n")
    assert all(len(line) <= 130 for line in text.splitlines())


def test_rules_of_every_kind_are_written() -> None:
    there = seen("2.9.10", ORDERS, {"name": "T", "subjects": ["t.>"]})
    mirror = {"name": "m", "kind": "mirror", "stream": "T", "mirror": {"name": "ORDERS", "filter_subject": "orders.a"}}
    rules = [
        asked_for.republishing(there, "ORDERS", "orders.*", "m.$1"),
        asked_for.republishing(there, "KV_A", "$KV.A.>", "k.>"),
        *compare({"name": "T", "sources": [EU]}, there).rules,
        *compare({"name": "E", "subjects": ["events.*"], "subject_transform": PARTED}, there).rules,
        asked_for.dead_letters(there, "*", "dlq.$1.$2"),
        ProposedRule(mirror, ("Why.",)),
    ]
    _read_back([named(rule, []) for rule in rules])


@given(st.text(st.characters(codec="utf-8")))
def test_whatever_subjects_hold_is_read_as_it_was_meant(subject: str) -> None:
    rule = ProposedRule({"name": "r", "kind": "republish", "stream": "S", "republish": {"src": subject, "dest": "d"}})
    text = configuration_text({"servers": ["nats://h:1"]}, [rule], about=[subject], file="bridge.yaml")
    assert compose(text).value["rules"] == [rule.data]


def test_names_are_each_their_own_and_fit() -> None:
    rule = ProposedRule({"name": "É S/x_Y", "kind": "republish"})
    assert named(rule, []).name == "s-x-y"
    assert named(rule, ["s-x-y", "s-x-y-2"]).name == "s-x-y-3"
    long = ProposedRule({"name": "a" * 100, "kind": "republish"})
    assert named(long, ["a" * 64]).name == "a" * 62 + "-2"
    assert named(ProposedRule({"name": "日本", "kind": "mirror"}), []).name == "mirror"


def test_work_queues_are_watched_without_a_position() -> None:
    there = seen("2.15.1", {"name": "JOBS", "subjects": ["jobs"], "retention": "workqueue"})
    rule = asked_for.republishing(there, "JOBS", "jobs", "m.jobs").data
    assert (rule["durable"], "allow_side_effects" in rule) == (False, False)


def test_a_refusal_names_no_place_in_a_file_that_is_not_written() -> None:
    there = seen("2.15.1", ORDERS)
    draft = Draft(there, {"servers": ["nats://127.0.0.1:1"]}, [], InitFile("-", force=False), [])
    refused = draft.add(asked_for.republishing(there, "ORDERS", "orders.>", "a..b.>"))
    assert refused == "republish.dest: from 'orders.>' to 'a..b.>': invalid subject"


def test_dead_letters_say_who_keeps_them() -> None:
    there = seen("2.15.1", ORDERS, {"name": "DLQ", "subjects": ["dlq.>"]})
    assert "Stream DLQ takes them" in asked_for.dead_letters(there, "ORDERS", "dlq.{{wildcard(1)}}").why[1]
    assert "No stream takes lost.>" in asked_for.dead_letters(there, "*", "lost.$1").why[1]


def test_a_stream_that_is_misspelt() -> None:
    with pytest.raises(ConfigError, match="no stream 'ORDRES'; did you mean 'ORDERS'"):
        asked_for.known_stream(seen("2.15.1", ORDERS), "ORDRES")
    with pytest.raises(ConfigError, match="there is none in this account"):
        asked_for.known_stream(seen("2.15.1"), "ORDERS")


def test_commands_hold_whatever_streams_are_called() -> None:
    change = StreamChange("a;b", "recreate", {"name": "a;b", "description": "it's \x9b1m"}, ())
    assert [shlex.split(step) for step in change.steps] == [
        ["nats", "stream", "rm", "a;b"],
        ["nats", "request", "$JS.API.STREAM.CREATE.a;b", '{"name": "a;b", "description": "it\'s \\u009b1m"}'],
    ]


def test_a_wanted_republish_is_what_it_was_natively_also_on_buckets_and_queues() -> None:
    bucket = {"name": "KV_S", "subjects": ["$KV.S.>"]}
    jobs = {"name": "JOBS", "subjects": ["jobs"], "retention": "workqueue"}
    there = seen("2.9.10", bucket, jobs)
    (rule,) = compare({**bucket, "republish": {"src": ">", "dest": "s.>"}}, there).rules
    assert rule.data["republish"] == {"src": ">", "dest": "s.>"}
    (queue,) = compare({**jobs, "republish": {"src": "jobs", "dest": "m.jobs"}}, there).rules
    assert (queue.data["durable"], "allow_side_effects" in queue.data) == (False, False)
