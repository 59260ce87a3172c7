"""`--server` of the commands without rules: a URL, a context of `nats`, or a connection of a configuration."""

from pathlib import Path

import pytest

from nats_bridge.cli.connection_options import connection_named
from nats_bridge.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NATS_CREDS", raising=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "bridge.yaml"
    file.write_text(
        'connections: {default: {servers: ["nats://a:1"]}, west: {servers: ["nats://b:2"]}}\n'
        "rules: [{name: r, kind: republish, stream: S, republish: {dest: x.>}}]\n",
        "utf-8",
    )
    return file


def test_urls_are_separated_by_commas() -> None:
    assert connection_named(server="nats://a:1, nats://b:2", config=None).servers == ("nats://a:1", "nats://b:2")


def test_the_environment_names_the_credentials_of_a_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NATS_CREDS", "me.creds")
    monkeypatch.chdir(tmp_path)
    assert connection_named(server="nats://a:1", config=None).creds == tmp_path / "me.creds"


def test_a_name_is_a_context() -> None:
    assert connection_named(server="production", config=None).context == "production"


def test_a_name_is_a_connection_of_the_configuration(config: Path) -> None:
    assert connection_named(server="west", config=config).servers == ("nats://b:2",)
    assert connection_named(server=None, config=config).servers == ("nats://a:1",)


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        ("", "no server given: use --server nats://127.0.0.1:4222, or the name of a `nats` context"),
        ("http://a:1", "--server: "),
        ("nats://me:secret@a:1", "--server: "),
    ],
)
def test_problems_name_the_option(server: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connection_named(server=server, config=None)
    assert str(caught.value).startswith(problem)
    assert "secret@" not in str(caught.value)


def test_a_connection_that_the_configuration_lacks(config: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--server east: .*no such connection in .*; known connections: default, west"
    ):
        connection_named(server="east", config=config)
