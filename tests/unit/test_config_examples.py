"""The examples in config/: each valid alone, one for every use, with its own lines to try it."""

import re
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nats_bridge.cli.entry import _COMMANDS
from nats_bridge.errors import ConfigError
from nats_bridge.jobs.rule_tests import run_tests
from nats_bridge.marked_yaml import compose
from nats_bridge.rule_kinds import KINDS, Incoming, kind_of
from nats_bridge.settings import load
from nats_bridge.settings.schema import configuration_schema
from nats_transforms.republish import StoredMessage
from tests.example_secrets import place_secrets

CONFIG = Path(__file__).parents[2] / "config"
EXAMPLES = sorted(CONFIG.glob("*.yaml"))
SECURED = "secured-connections"

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])


@every_example
def test_check_takes_it(example: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(example, tmp_path))
    place_secrets(tmp_path / "secrets")
    assert load(file, {}).rules


@every_example
def test_the_schema_takes_it(example: Path) -> None:
    value = compose(example.read_text("utf-8")).value
    assert [error.message for error in Draft202012Validator(configuration_schema()).iter_errors(value)] == []


@every_example
def test_editors_find_its_schema_and_people_how_to_try_it(example: Path) -> None:
    text = example.read_text("utf-8")
    first, second, *_ = text.splitlines()
    assert (first, second) == ("# yaml-language-server: $schema=schema.json", "#")
    tried = text.partition("# Try it")[2].partition("\n\n")[0]
    assert f"nats-bridge run -c config/{example.name}\n" in f"{tried}\n"
    for command, file in re.findall(r"nats-bridge (\w+)(?: .*?-c (\S+))?", tried):
        assert command in _COMMANDS
        assert file in ("", f"config/{example.name}")
    assert all(len(line) <= 120 for line in text.splitlines())


@every_example
def test_every_stream_that_must_be_there_is_made_in_its_lines(example: Path, tmp_path: Path) -> None:
    if example.stem == SECURED:
        return  # it is for servers that a user has already
    place_secrets(tmp_path / "secrets")
    settings = load(example, {})
    tried = example.read_text("utf-8").partition("# Try it")[2].partition("\n\n")[0]
    made = set(re.findall(r"stream add (\w+)", tried))
    made |= {f"KV_{name}" for name in re.findall(r"kv add (\w+)", tried)}
    made |= {f"OBJ_{name}" for name in re.findall(r"object add (\w+)", tried)}
    for rule in settings.rules:
        wanted = {getattr(rule, "stream", None), getattr(rule, "target_stream", None)}
        wanted |= {entry.name for entry in getattr(rule, "entries", ())}
        assert wanted - {None} <= made


@every_example
def test_its_rules_say_what_they_make_and_need(example: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(example, tmp_path))
    place_secrets(tmp_path / "secrets")
    settings = load(file, {})
    assert [verdict.differences for verdict in run_tests(settings) if verdict.differences] == []
    for rule in settings.rules:
        kind, dialect = kind_of(rule), settings.offline_dialect_of(rule)
        list(kind.makes(rule, dialect, Incoming(StoredMessage(b"a", b"", b"", 1, 0))))
        assert list(kind.needs(rule, settings, dialect, {}))


def test_every_kind_of_rule_has_an_example() -> None:
    kinds = {rule.kind for example in EXAMPLES if example.stem != SECURED for rule in load(example, {}).rules}
    assert kinds == set(KINDS), "add an example to config/"


def test_the_secured_one_names_the_files_that_are_not_there(tmp_path: Path) -> None:
    file = Path(shutil.copy(CONFIG / f"{SECURED}.yaml", tmp_path))
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    unreadable: list[str] = []
    assert load(file, {}, unreadable=unreadable).rules
    for problems in (caught.value.problems, unreadable):
        named = [problem.rpartition("/")[2].removesuffix(": no such file") for problem in problems]
        assert named == ["east.creds", "ca.pem", "west.nk", "ca.pem", "client.pem", "client.key"]
