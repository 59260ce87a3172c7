"""``nats-conform servers`` as a person or a script sees it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from nats_conformance.native_servers import ServerCache
from nats_conformance.native_servers.command import servers


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only server at hand: 2.10.27, in a cache of the test's own."""
    monkeypatch.setenv("NATS_BRIDGE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    binary = ServerCache().path("2.10.27")
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\necho 'nats-server: v2.10.27'\n")
    binary.chmod(0o755)
    return binary


def test_list_for_people(cached: Path) -> None:
    result = CliRunner().invoke(servers, ["list"])
    assert result.exit_code == 0
    assert result.stdout.split(maxsplit=2) == ["2.10.27", "cache", f"{cached}\n"]


def test_an_empty_list_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_BRIDGE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    people = CliRunner().invoke(servers, ["list"])
    assert (people.exit_code, people.stdout) == (0, "")
    assert "nats-conform servers fetch" in people.stderr


def test_fetch_prints_the_place_on_stdout_and_what_it_did_on_stderr(cached: Path) -> None:
    result = CliRunner().invoke(servers, ["fetch", "2.10.27"])
    assert result.exit_code == 0
    assert result.stdout == f"{cached}\n"
    assert result.stderr == f"nats-server 2.10.27: cache, {cached}\n"


@pytest.mark.usefixtures("cached")
def test_fetch_of_what_is_no_version_is_a_usage_error() -> None:
    result = CliRunner().invoke(servers, ["fetch", "newest"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "version 'newest': expected a form such as 2.10.27" in result.stderr


@pytest.mark.usefixtures("cached")
def test_fetch_that_fails_ends_with_3_and_names_the_ways() -> None:
    result = CliRunner().invoke(servers, ["fetch", "2.10.26"])
    assert result.exit_code == 3
    last = result.stderr.splitlines()[-1]
    for way in ("PATH", "cache", "go install", "Debian packages"):
        assert f"{way}: " in last


@pytest.mark.parametrize("arguments", [["--help"], ["list", "--help"], ["fetch", "--help"]])
def test_help_has_an_example(arguments: list[str]) -> None:
    result = CliRunner().invoke(servers, arguments, terminal_width=120)
    assert result.exit_code == 0
    assert "Example:\n" in result.stdout
    assert "\n    nats-conform servers " in result.stdout
