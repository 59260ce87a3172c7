"""Variables and secret files on top of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nats_bridge.errors import ConfigError
from nats_bridge.settings import Settings, load

TEXT = """
dialect: "2.12"
http: {listen: "127.0.0.1:1"}
connections:
  default: {servers: ["nats://file:1"], connect_timeout: 2}
  West: {servers: ["nats://west:1"]}
rules:
  - {name: a, kind: republish, stream: S, republish: {src: a, dest: b}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bridge.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def _problems(file: Path, environ: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, environ)
    return list(caught.value.problems)


def test_variables_win_over_the_file(file: Path) -> None:
    settings = load(
        file,
        {
            "BRIDGE_HTTP__LISTEN": ":9",
            "BRIDGE_DIALECT": "2.10",
            "BRIDGE_NAME": "from-env",
            "BRIDGE_LOG__LEVEL": "debug",
            "BRIDGE_CONNECTIONS__default__SERVERS": '["nats://env:1", "nats://env:2"]',
            "BRIDGE_CONNECTIONS__DEFAULT__TLS__INSECURE": "true",
        },
    )
    assert settings.http.listen == ":9"
    assert (settings.dialect, settings.name, settings.log.level) == ("2.10", "from-env", "debug")
    default = settings.connections["default"]
    assert default.servers == ("nats://env:1", "nats://env:2")
    assert default.connect_timeout == 2, "what a variable does not name stays as the file has it"
    assert default.tls is not None
    assert default.tls.insecure


def test_servers_may_be_a_text_with_commas(file: Path) -> None:
    settings = load(file, {"BRIDGE_CONNECTIONS__DEFAULT__SERVERS": "nats://a:1, nats://b:2"})
    assert settings.connections["default"].servers == ("nats://a:1", "nats://b:2")


def test_names_of_connections_match_without_case(file: Path) -> None:
    settings = load(file, {"BRIDGE_CONNECTIONS__WEST__CONNECT_TIMEOUT": "9"})
    assert settings.connections["West"].connect_timeout == 9
    assert set(settings.connections) == {"default", "West"}


def test_rules_may_be_json(file: Path) -> None:
    rules = [{"name": "z", "kind": "republish", "stream": "Z", "republish": {"src": "a", "dest": "b"}}]
    assert [rule.name for rule in load(file, {"BRIDGE_RULES": json.dumps(rules)}).rules] == ["z"]


def test_a_secret_file_counts_less_than_a_variable(file: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "BRIDGE_HTTP__LISTEN").write_text(":7\n", encoding="utf-8")
    (secrets / "bridge_dialect").write_text("2.14\n", encoding="utf-8")
    (secrets / "other").write_text("not ours", encoding="utf-8")
    environ = {"BRIDGE_SECRETS_DIR": str(secrets), "BRIDGE_DIALECT": "2.11"}
    settings = load(file, environ)
    assert (settings.http.listen, settings.dialect) == (":7", "2.11")


def test_secrets_are_files_or_links_as_kubernetes_makes_them(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "secrets" / "..data"
    data.mkdir(parents=True)
    (data / "BRIDGE_NAME").write_text("linked\n", encoding="utf-8")
    (data.parent / "BRIDGE_NAME").symlink_to("..data/BRIDGE_NAME")
    (data.parent / "BRIDGE_LOG__LEVEL").mkdir()  # no secret
    assert load(file, {"BRIDGE_SECRETS_DIR": str(data.parent)}).name == "linked"


def test_a_deeper_variable_wins_over_what_is_around_it(file: Path) -> None:
    around = {"BRIDGE_CONNECTIONS": '{"X": {"servers": ["nats://x:1"]}}', "BRIDGE_HTTP": '{"listen": ":5"}'}
    settings = load(file, {**around, "BRIDGE_HTTP__WEDGED_AFTER": "9"})
    assert set(settings.connections) == {"default", "West", "X"}
    assert (settings.http.listen, settings.http.wedged_after) == (":5", 9)
    (line,) = _problems(file, {"BRIDGE_HTTP__LISTEN": ":4", "BRIDGE_HTTP__LISTEN__X": "y"})
    assert line == "BRIDGE_HTTP__LISTEN__X: 'listen' has no parts where another variable sets it as a whole"


def test_paths_in_variables_are_not_relative_to_the_file(file: Path) -> None:
    problems = _problems(file, {"BRIDGE_CONNECTIONS__DEFAULT__CREDS": "no.creds"})
    assert problems == ["BRIDGE_CONNECTIONS__DEFAULT__CREDS: connections.default.creds: no.creds: no such file"]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("BRIDGE_HTTP__LISTEN", "x", 'http.listen: \'x\' is not host:port; write "127.0.0.1:8322", ":8322"'),
        ("BRIDGE_HTTP__LISTN", "x", "http.listn: unknown key; did you mean 'listen'?"),
        ("BRIDGE_DIALECT", "3", "dialect: unknown dialect '3'; takes one of 2.9"),
        ("BRIDGE_DIALET", "3", "unknown setting; did you mean 'dialect'? (variable BRIDGE_DIALECT)"),
        ("BRIDGE_DIALECT__X", "3", "'dialect' has no parts; known: BRIDGE_DIALECT"),
        ("BRIDGE_HTTP____LISTEN", "x", "an empty part between underscores; levels are separated by two"),
        ("BRIDGE_RULES", "[{", "not valid JSON: "),
        ("BRIDGE_RULES", "x", "rules: must be a list, not 'x' (a text)"),
        ("BRIDGE_RULES", '[{"name": "a"}]', "rules[0]: 'kind' is missing; it is one of republish, sources, mirror"),
        (
            "BRIDGE_CONNECTIONS__DEFAULT__CONNECT_TIMEOUT",
            "-1",
            "connections.default.connect_timeout: must be more than 0, not '-1'",
        ),
        (
            "BRIDGE_CONNECTIONS__DEFAULT__PASSWORD",
            "hunter2",
            "connections.default.password: secrets are not written here; put it in a file",
        ),
        ("BRIDGE_SECRETS_DIR", "/does/not/exist", 'directory "/does/not/exist" does not exist'),
        ("BRIDGE_SECRETS_DIR", __file__, f'"{__file__}" is not a directory'),
    ],
)
def test_a_problem_names_the_variable(file: Path, name: str, value: str, problem: str) -> None:
    (line,) = _problems(file, {name: value})
    assert line.startswith(f"{name}: {problem}")
    assert "hunter2" not in line


def test_a_problem_names_the_secret_file(file: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "BRIDGE_NAME").write_text("a b", encoding="utf-8")
    (line,) = _problems(file, {"BRIDGE_SECRETS_DIR": str(secrets)})
    assert line.startswith(f"{secrets / 'BRIDGE_NAME'}: name: 'a b' cannot be part of a consumer's name")


@pytest.mark.parametrize(
    "name",
    [
        "BRIDGE_PORT",
        "BRIDGE_PORT_4222_TCP",
        "BRIDGE_SERVICE_HOST",
        "BRIDGE_HTTP_SERVICE_PORT",
        "BRIDGE_HTTP_PORT",
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_called_bridge_mean_nothing(file: Path, name: str) -> None:
    assert load(file, {name: "tcp://10.0.0.1:4222"}) == load(file, {})


def test_the_process_environment_is_used_by_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIDGE_NAME", "of-the-process")
    settings: Settings = load(file)
    assert settings.name == "of-the-process"
