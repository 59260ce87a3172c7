"""The JSON schema: good for editors, the one that is published, and of one mind with `check` where it can be."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from nats_bridge.cli import main
from nats_bridge.errors import ConfigError
from nats_bridge.marked_yaml import DocumentError, compose
from nats_bridge.rule_kinds import KINDS
from nats_bridge.settings import Settings, load
from nats_bridge.settings.schema import SCHEMA_ID, configuration_schema
from tests.unit.settings_cases import cases, files

SCHEMA = configuration_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
PUBLISHED = Path(__file__).parents[2] / "config" / "schema.json"
RULE = {"name": "a", "kind": "republish", "stream": "S", "republish": {"src": "a.>", "dest": "x.>"}}

ONLY_MODELS_KNOW = [
    # what a text may hold
    *("is a command to the server", "must be a subject that can be published to", "cannot be a prefix of"),
    *("cannot be a stream's name", "cannot be part of a consumer's name", "cannot be a bucket's name"),
    *("is not a JetStream domain", "is not host:port", "must be a time with zone", "time '2026-02-30"),
    # what an address may hold
    *("server's URL is empty", "contains a secret", "unknown scheme", "WebSocket is not supported", "has no host"),
    *("has no valid port or host", "port 0 cannot be connected to", "must not have anything after the port"),
    "'nats://h:99999'",
]
"""Problems that models report and a schema cannot. It need not know those of `checks`, which models let pass."""


def refused_cases() -> Iterator[tuple[str, Any, str]]:
    for file in files("bad"):
        for case in cases(file):
            try:
                value = compose(case.text).value
            except DocumentError:
                continue  # no YAML: no schema sees it
            if not case.given:  # nor variables and other files
                yield f"{file.stem}:{case.name}", {} if value is None else value, "\n".join(case.expected)


def models_take(value: Any) -> bool:
    try:
        Settings.model_validate(value)
    except ValidationError:
        return False
    return True


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == SCHEMA_ID
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_published_schema_is_the_one_of_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "--schema"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    published = PUBLISHED.read_text(encoding="utf-8")
    assert printed == published, "regenerate it: nats-bridge check --schema > config/schema.json"
    assert json.loads(published) == SCHEMA


def _mappings(schema: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of a mapping, without those that only narrow another one."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
            yield where, schema
        for key, member in schema.items():
            yield from _mappings(member, f"{where}/{key}")
    elif isinstance(schema, list):
        for number, member in enumerate(schema):
            yield from _mappings(member, f"{where}/{number}")


def test_every_key_is_described_and_no_other_one_is_taken() -> None:
    found = list(_mappings(SCHEMA))
    assert len(found) >= 18
    for where, mapping in found:
        assert mapping["additionalProperties"] is False, where
        for name, value in mapping["properties"].items():
            assert value.get("description"), f"{where}: {name} has no description"
            if name not in mapping.get("required", ()) and name not in ("$schema", "leadership"):
                known = "default" in value or "anyOf" in value or where.count("/") > 3
                optional_without = ("opt_start_seq", "opt_start_time")
                assert known or name in optional_without, f"{where}: {name} shows no default"


def test_it_offers_what_can_be_chosen() -> None:
    parts = SCHEMA["$defs"]
    assert parts["Delivery"]["enum"] == ["at_most_once", "at_least_once"]
    assert parts["Log"]["properties"]["format"]["enum"] == ["auto", "json", "console"]
    assert parts["RepublishRule"]["properties"]["start"]["anyOf"][0] == {"enum": ["new", "first"]}
    assert parts["RepublishRule"]["properties"]["start"]["default"] == "new"
    kinds = [parts[entry["$ref"].rpartition("/")[2]] for entry in SCHEMA["properties"]["rules"]["items"]["oneOf"]]
    assert [kind["properties"]["kind"]["const"] for kind in kinds] == list(KINDS)


def test_it_has_the_names_that_people_write() -> None:
    rule = SCHEMA["$defs"]["RepublishRule"]
    assert {"from", "to"} <= rule["properties"].keys()
    assert "source_connection" not in rule["properties"]


def test_no_keyword_is_there_that_the_draft_does_not_know() -> None:
    known = {*Draft202012Validator.VALIDATORS, *("$defs", "$id", "$schema", "title", "description", "default")}
    known |= {"examples", "then", "else"}

    def unknown(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from schema.keys() - known
            for key, member in schema.items():
                if key in ("properties", "$defs", "dependentSchemas"):
                    for inner in member.values():
                        yield from unknown(inner)
                elif key not in ("default", "examples", "enum", "const"):
                    yield from unknown(member)
        elif isinstance(schema, list):
            for member in schema:
                yield from unknown(member)

    assert set(unknown(SCHEMA)) == set()


def test_what_becomes_settings_the_schema_takes() -> None:
    for case in (case for file in files("good") for case in cases(file)):
        VALIDATOR.validate(compose(case.text).value)


def test_what_models_refuse_the_schema_refuses_unless_it_cannot_know() -> None:
    let_pass = [
        f"{name}: {problem}"
        for name, value, said in refused_cases()
        if VALIDATOR.is_valid(value) and not models_take(value)
        for problem in said.splitlines()
        if not any(part in problem for part in ONLY_MODELS_KNOW)
    ]
    assert not let_pass, "\n".join([*let_pass, "Put it into the schema, or add it to ONLY_MODELS_KNOW here."])


@pytest.mark.parametrize("value", [{}, {"rules": []}, {"rules": [RULE], "connections": {}}])
def test_rules_and_connections_must_not_be_empty(value: Any) -> None:
    assert not VALIDATOR.is_valid(value)


def test_wrong_keys_types_and_choices_are_seen_by_an_editor() -> None:
    refused = [name for name, value, _ in refused_cases() if not VALIDATOR.is_valid(value)]
    assert len(refused) >= 80


@pytest.mark.parametrize(
    "text",
    [
        '{"$schema": "config/schema.json", "rules": [%s]}',
        "$schema: https://example.com/schema.json\nrules: [%s]\n",
        "rules: [%s]\nconnections: {default: {servers: 'nats://h:4222,nats://i'}}\n",
        "rules: [%s]\nconnections: {default: {servers: ['[::1]:4222', h, 'tls://h:1/'], inbox_prefix: _IN.b}}\n",
        'rules: [%s]\nhttp: {listen: ""}\n',
        "rules: [%s]\nhttp: {listen: ':8322'}\n",
        "rules: [%s]\nhttp: {listen: '[::1]:8322'}\ndialect: v2.10.27\nleadership: {}\n",
        "rules: [%s]\ndialect: 2.12.0-RC.1\n",
    ],
)
def test_what_is_good_is_good_for_both(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(text.replace("%s", json.dumps(RULE)), "utf-8")
    assert load(file, {}).rules
    assert [error.message for error in VALIDATOR.iter_errors(compose(file.read_text("utf-8")).value)] == []


def test_the_schema_key_holds_a_text(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text(f"$schema: [a]\nrules: [{json.dumps(RULE)}]\n", "utf-8")
    with pytest.raises(ConfigError, match=re.escape("$schema")):
        load(file, {})
    assert not VALIDATOR.is_valid(compose(file.read_text("utf-8")).value)
