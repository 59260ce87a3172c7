"""Good rules of the kinds `subject_transform` and `advisories`, and of `republish` what they share with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.settings import AdvisoriesRule, RepublishRule, Rule, SubjectTransformRule, load

WEST = {"connections": {"default": {"servers": ["h"], "inbox_prefix": "replies"}, "west": {"servers": ["i"]}}}
INGRESS = {"name": "a", "kind": "subject_transform", "stream": "T"}
ADVISORIES = {"name": "a", "kind": "advisories"}


def _rule(folder: Path, rule: dict[str, Any]) -> Rule:
    file = folder / "bridge.yaml"
    file.write_text(json.dumps({"rules": [rule], **WEST}), encoding="utf-8")  # JSON is YAML
    return load(file, {}).rules[0]


def test_an_ingress_transform(tmp_path: Path) -> None:
    transform = {"src": "events.*", "dest": "events.{{partition(8,1)}}.{{wildcard(1)}}"}
    rule = _rule(tmp_path, {**INGRESS, "from": "west", "subject_transform": transform, "dialect": "2.10"})
    assert isinstance(rule, SubjectTransformRule)
    assert rule.subject_transform.native() == transform
    assert (rule.stream, rule.source_connection, rule.connections) == ("T", "west", ("west",))


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("events.>", "stored.>"),
        ("*", "stored.$1"),  # no server and no reply has a subject of one token
        ("$KV.S.>", "stored.>"),
        ("events.*", "{{partition(8,1)}}.events.$1"),
        ("_INBOXES.>", "stored.>"),
    ],
)
@pytest.mark.parametrize("version", ["2.9", "2.10", "2.11", "2.15", "native"])
def test_transforms_that_capture_nothing_of_others(tmp_path: Path, source: str, destination: str, version: str) -> None:
    rule = {**INGRESS, "subject_transform": {"src": source, "dest": destination}, "dialect": version}
    assert _rule(tmp_path, rule).name == "a"


def test_advisories(tmp_path: Path) -> None:
    republish = {"src": "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.*.*", "dest": "dlq.$1.$2", "headers_only": True}
    rule = _rule(tmp_path, {**ADVISORIES, "republish": republish, "to": "west", "attach_message": True})
    assert isinstance(rule, AdvisoriesRule)
    assert rule.republish.native() == republish
    assert (rule.attach_message, rule.connections) == (True, ("default", "west"))


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        ("$JS.EVENT.ADVISORY.>", "adv.>"),
        ("$JS.EVENT.ADVISORY.CONSUMER.*.ORDERS.*", "adv.$1"),
        ("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>", "adv.>"),
        ("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c", "adv"),
    ],
)
def test_advisories_about_messages(tmp_path: Path, source: str, destination: str) -> None:
    republish = {"src": source, "dest": destination}
    assert _rule(tmp_path, {**ADVISORIES, "republish": republish, "attach_message": True}).name == "a"


def test_republish_may_leave_out_subjects(tmp_path: Path) -> None:
    republish = {"src": "a.>", "dest": "b.>"}
    rule = _rule(
        tmp_path,
        {"name": "a", "kind": "republish", "stream": "S", "republish": republish, "exclude": ["a.b", "a.c.>"]},
    )
    assert isinstance(rule, RepublishRule)
    assert rule.exclude == ("a.b", "a.c.>")
