"""``validate`` gives what real servers answered to every recorded configuration, word for word."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from nats_transforms import StreamConfigError, dialect
from nats_transforms.stream_config import validate

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "stream_config_cases.json").read_text("utf-8")
)
CASES: list[dict[str, Any]] = DOCUMENT["cases"]


def decided(case: dict[str, Any], version: str) -> dict[str, Any]:
    server = dialect(version)
    sources = {source["name"]: source for source in case.get("source_streams", ())}
    previous = case.get("previous")
    try:
        if previous is not None:
            previous = validate(previous, server, sources=sources)
        return {"config": validate(case["config"], server, previous=previous, sources=sources)}
    except StreamConfigError as error:
        return {"error": error.as_dict()}


def expected(group: dict[str, Any], version: str) -> dict[str, Any]:
    if "error" in group:
        return {"error": group["error"]}
    config = DOCUMENT["base"][version] | group["config"]
    return {"config": {key: value for key, value in config.items() if value is not None}}


@pytest.mark.parametrize("version", DOCUMENT["versions"])
def test_decides_as_the_server_did(version: str) -> None:
    wrong = []
    for case in CASES:
        (group,) = (group for group in case["answers"] if version in group["versions"])
        given = copy.deepcopy(case["config"])
        ours, theirs = decided(case, version), expected(group, version)
        if ours != theirs:
            wrong.append(f"{case['id']}: {_difference(ours, theirs)}")
        if case["config"] != given:
            wrong.append(f"{case['id']}: validate changed the configuration handed in: {given} to {case['config']}")
    assert not wrong, "\n".join(wrong)


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    if "config" not in ours or "config" not in theirs:
        return f"validate: {ours}, the server: {theirs}"
    mine, recorded = ours["config"], theirs["config"]
    members = [name for name in mine | recorded if mine.get(name) != recorded.get(name)]
    return ", ".join(f"{name}: validate {mine.get(name)}, the server {recorded.get(name)}" for name in members)


@pytest.mark.parametrize("version", DOCUMENT["versions"])
def test_members_come_in_the_server_s_order(version: str) -> None:
    assert list(validate({"name": "S"}, dialect(version))) == list(DOCUMENT["base"][version])


def test_there_are_enough_bad_ones() -> None:
    for version in DOCUMENT["versions"]:
        groups = [group for case in CASES for group in case["answers"] if version in group["versions"]]
        assert len(groups) == len(CASES), "every case has an answer of every server"
    bad = [case for case in CASES if any("error" in group for group in case["answers"])]
    assert len(bad) >= 60
    assert len(CASES) - len(bad) >= 30
