"""`nats-bridge init` before it has read a server, and the files that it writes."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.bridge.cli import main
from nats_bridge.bridge.cli.init.draft import InitFile
from nats_bridge.bridge.errors import ConfigError

UNREACHABLE = "nats://127.0.0.1:9"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["init", *arguments])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out, printed.err

    return call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--context", "c", "--server", UNREACHABLE], "--context says where the servers are and who we are"),
        (["--context", "c", "--creds", "c.creds"], "--context says where the servers are and who we are"),
        (["--server", "http://h"], "--server: 'http://h': unknown scheme 'http'"),
        (["--server", "nats://h,"], "--server: a server's URL is empty"),
        (["--from", "-", "--from", "-"], "--from - reads stdin, once"),
        (["--from", "none.json"], "none.json: cannot be read (No such file or directory)"),
        (["--from", "text.json"], "text.json:1:1: not valid JSON"),
        (["-o", "folder"], "-o folder: is a folder; name a file in it"),
        (["-o", "no/bridge.yaml"], "-o no/bridge.yaml: there is no folder no; make it first"),
        (["-o", "text.json"], "-o text.json: exists; --force overwrites it"),
        (["--republish", "S", "a"], "option '--republish' requires 3 arguments"),
    ],
)
def test_what_is_wrong_is_said_before_a_server_is_asked(
    run: Any, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "text.json").write_text("text", "utf-8")
    (tmp_path / "folder").mkdir()
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") <= 2


def test_a_secret_is_neither_taken_nor_shown(run: Any) -> None:
    code, out, err = run("--server", "nats://me:hunter2@h")
    assert code == 2
    assert "holds a secret" in err
    assert "hunter2" not in out + err


def test_a_file_that_is_there_stays_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    first, second = InitFile(str(file), force=False), InitFile(str(file), force=False)
    first.write("one")
    with pytest.raises(ConfigError, match="cannot be written"):
        second.write("two")
    with pytest.raises(ConfigError, match="--force overwrites it"):
        InitFile(str(file), force=False)
    assert file.read_text("utf-8") == "one"
    InitFile(str(file), force=True).write("three")
    assert file.read_text("utf-8") == "three"


def test_a_file_that_is_there_stays_whole_where_the_disk_is_full(tmp_path: Path) -> None:
    file = tmp_path / "bridge.yaml"
    file.write_text("one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(ConfigError, match=r"bridge\.yaml: cannot be written \(File too large\)"):
            InitFile(str(file), force=True).write("two" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("bridge.yaml", "one")]


def test_stdout_is_always_free(capsys: pytest.CaptureFixture[str]) -> None:
    file = InitFile("-", force=False)
    file.write("text\n")
    assert capsys.readouterr().out == "text\n"
