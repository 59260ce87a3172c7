"""Which rules a native configuration needs next to a server of a version. Pure: no server is asked."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_bridge.cli.init.native_rules import NativeRule, Surroundings, native_rules
from nats_bridge.cli.init.rule_text import configuration_text
from nats_bridge.errors import ConfigError
from nats_bridge.marked_yaml import compose
from nats_bridge.settings import loads
from nats_transforms.dialect import dialect
from nats_transforms.stream_config import examine, validate

ALL = ["2.9.10", "2.10.27", "2.11.17", "2.12.15", "2.14.9", "2.15.1"]
every_version = pytest.mark.parametrize("version", ALL)

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"]}
PARTED = {"src": "events.*", "dest": "events.{{partition(8,1)}}.{{wildcard(1)}}"}
EU = {"name": "ORDERS", "subject_transforms": [{"src": "orders.eu.*", "dest": "eu.{{wildcard(1)}}"}]}
MONITORED = {**ORDERS, "republish": {"src": "orders.>", "dest": "monitor.orders.>", "headers_only": True}}
EVENTS = {"name": "EVENTS", "subjects": ["events.*", "other"], "subject_transform": PARTED}
MIRROR = {"name": "COPY", "mirror": {"name": "ORDERS", "subject_transforms": [{"src": ">", "dest": "copy.>"}]}}


class Compared:
    """A configuration next to a server of a version, which has these streams as it keeps them."""

    def __init__(self, wanted: Any, version: str, *present: dict[str, Any], asked: bool = True) -> None:
        kept = [examine(config, dialect(version), strict=False).config for config in present]
        streams = {str(config["name"]): config for config in kept}
        _, features, self.rules = native_rules(wanted, Surroundings(version, streams if asked else None))
        self.answers = [feature.answer for feature in features]
        self.said = [f"{feature.undone}; {feature.obstacle}" for feature in features]


def test_a_source_that_2_9_takes_without_its_transforms() -> None:
    wanted = {"name": "ORDERS_EU", "sources": [EU]}
    for asked in (True, False):
        result = Compared(wanted, "2.9.10", ORDERS, wanted, asked=asked)
        assert result.answers == ["rule"]
        assert "server 2.9.10 silently ignores sources" in result.said[0]
        (rule,) = result.rules
        assert rule.data == {"name": "ORDERS_EU-sources", "kind": "sources", "stream": "ORDERS_EU", "sources": [EU]}
        assert rule.why[1] == "It needs stream ORDERS_EU to take eu.*, and to have no native source ORDERS for these."


@pytest.mark.parametrize("wanted", [MONITORED, {"name": "EU", "sources": [EU]}, EVENTS, MIRROR])
@pytest.mark.parametrize("version", ALL[1:])
def test_a_newer_server_does_all_of_it(version: str, wanted: dict[str, Any]) -> None:
    for present in ([], [ORDERS], [ORDERS, wanted]):
        result = Compared(wanted, version, *present)
        if wanted is MIRROR or "subject_transform" not in wanted:
            assert result.answers == ["native"]
        assert result.rules == []


def test_an_ingress_transform_that_2_9_ignores() -> None:
    result = Compared(EVENTS, "2.9.10", EVENTS)
    assert (result.answers, result.rules[0].data["subject_transform"]) == (["rule"], PARTED)
    assert result.rules[0].why[1] == "It needs stream EVENTS to take events.*.* instead of events.*."


@every_version
def test_a_republish_that_only_newer_servers_add_to_an_existing_stream(version: str) -> None:
    result = Compared(MONITORED, version, ORDERS)
    if version == "2.9.10":
        assert "refuses it for a stream that is there" in result.said[0]
        assert "10052" in result.said[0]
        assert result.rules[0].data["republish"] == MONITORED["republish"]
    else:
        assert (result.answers, result.rules) == (["native"], [])
    assert Compared(MONITORED, version, MONITORED).answers == ["native"]
    assert Compared(MONITORED, version).answers == ["native"]


def test_functions_that_the_server_does_not_know_yet() -> None:
    transform = {"src": "events.*", "dest": "e.{{partition(5)}}"}
    wanted = {"name": "EVENTS", "subjects": ["events.*"], "subject_transform": transform}
    assert "refuses it" in Compared(wanted, "2.11.17").said[0]
    assert Compared(wanted, "2.12.15").answers == ["native"]


def test_filters_that_overlap_in_part_never_copy_before_2_12() -> None:
    parts = [{"src": "orders.*.a", "dest": "x.$1"}, {"src": "orders.b.*", "dest": "y.$1"}]
    wanted = {"name": "T", "sources": [{"name": "ORDERS", "subject_transforms": parts}]}
    # The stream has the source, and the server copies nothing.
    assert Compared(wanted, "2.10.27", ORDERS, wanted).answers == ["rule"]
    assert Compared(wanted, "2.12.15", ORDERS, wanted).answers == ["native"]


def test_a_mirror() -> None:
    result = Compared(MIRROR, "2.9.10", ORDERS, MIRROR)
    assert (result.answers, result.rules[0].data["mirror"]) == (["rule"], MIRROR["mirror"])
    assert result.rules[0].why[1] == "It needs stream COPY to take copy.>, and to be no native mirror."


def test_native_sources_stay_next_to_the_rule() -> None:
    wanted = {"name": "T", "sources": [{"name": "ORDERS", "filter_subject": "orders.us.*"}, EU, {**EU, "name": "B"}]}
    result = Compared(wanted, "2.9.10", ORDERS, {"name": "B", "subjects": ["b.>"]})
    assert result.answers == ["native", "rule", "rule"]
    assert "sources[2]" not in result.said[1]
    (rule,) = result.rules
    assert rule.data["sources"] == [EU, {**EU, "name": "B"}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sources": [{**EU, "external": {"api": "$JS.west.API"}}]}, "from:"),
        ({"subjects": ["events.>"], "subject_transform": PARTED}, "'events.*' is none of them"),
        ({"subjects": ["other.*"], "subject_transform": PARTED}, "'events.*' is none of them"),
    ],
)
def test_what_no_rule_can_do_says_why(change: dict[str, Any], said: str) -> None:
    wanted = {"name": "T", **change}
    result = Compared(wanted, "2.9.10", ORDERS, wanted)
    assert (result.answers, result.rules) == (["neither"], [])
    assert said in result.said[0]


def test_what_a_newer_server_reported_of_itself_is_no_feature() -> None:
    wanted = {**validate(ORDERS, dialect("2.15.1")), "metadata": {"_nats.ver": "2.15.1"}}
    assert Compared(wanted, "2.9.10", ORDERS).answers == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"subjects": ["a"]}, "not a stream configuration with a name"),
        ([], "not a stream configuration with a name"),
        ({"name": 7}, "not a stream configuration with a name"),
        ({"name": "S", "subjects": ["a"], "republish": {"src": "a", "dest": "a"}}, "every server rejects this"),
    ],
)
def test_what_is_no_configuration(wanted: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Compared(wanted, "2.9.10")


def test_a_work_queue_is_watched_without_a_position() -> None:
    jobs = {"name": "JOBS", "subjects": ["jobs"], "retention": "workqueue"}
    (rule,) = Compared({**jobs, "republish": {"src": "jobs", "dest": "m.jobs"}}, "2.9.10", jobs).rules
    assert rule.data["durable"] is False


def test_the_text_is_a_configuration() -> None:
    long = {**ORDERS, "name": "É" + "x" * 80, "republish": MONITORED["republish"]}
    rules = [
        rule
        for wanted in (MONITORED, EVENTS, MIRROR, {"name": "EU", "sources": [EU]}, long)
        for rule in Compared(wanted, "2.9.10", ORDERS, {**long, "republish": None}).rules
    ]
    text = configuration_text({"servers": ["nats://h:1"]}, rules, ("Said.",))
    assert text.startswith("# Said.\n")
    assert all(len(line) <= 130 for line in text.splitlines())
    settings = loads(text, Path(), "bridge.yaml", {})
    assert [rule.kind for rule in settings.rules] == [
        "republish",
        "subject_transform",
        "mirror",
        "sources",
        "republish",
    ]
    assert compose(text).value["rules"] == [rule.data for rule in rules]


@given(st.text(st.characters(codec="utf-8")))
def test_whatever_subjects_hold_is_read_as_it_was_meant(subject: str) -> None:
    rule = NativeRule({"name": "r", "kind": "republish", "republish": {"src": subject, "dest": "d"}}, (subject,))
    text = configuration_text({"servers": ["nats://h:1"]}, [rule], (subject,))
    assert compose(text).value["rules"] == [rule.data]
