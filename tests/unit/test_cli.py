"""The command line's contract: exit codes, two lines on stderr, help with an example. No server is needed."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog

from nats_bridge.app.reload.file_watch import content_hash
from nats_bridge.cli import main
from nats_bridge.errors import ApiError, BridgeError, ConfigError, CredentialsError, ServerUnreachableError
from nats_bridge.rules.finding import CheckFinding
from nats_bridge.settings import Settings

CONFIG = Path(__file__).parents[2] / "config"
GOOD = str(CONFIG / "republish-monitor.yaml")
COMMANDS = [
    *("init", "run", "status", "check", "explain", "servers", "conform", "handoff", "failover", "demo", "clean"),
    *("redrive", "watch", "capture", "restore", "backfill", "diff"),
]


class Ran:
    """What a command printed and ended with."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, printed.out, printed.err)

    return call


def test_the_list_of_commands(run: Any) -> None:
    ran = run("--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in ran.out
    assert "Exit codes: 0 success" in ran.out


def test_nothing_at_all_shows_the_help(run: Any) -> None:
    ran = run()
    assert ran.code == 2
    assert "Commands:" in ran.err


def test_version(run: Any) -> None:
    ran = run("--version")
    assert ran.code == 0
    assert ran.out.startswith("nats-bridge, version ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(run: Any, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    assert "Example:" in ran.out
    shown = {"conform": "nats-conform run", "servers": "nats-conform servers"}.get(command, f"nats-bridge {command}")
    assert shown in ran.out.partition("Example:")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explan"], "nats-bridge: unknown command 'explan'; did you mean 'explain'?\nSee: nats-bridge --help\n"),
        (["--nope"], "nats-bridge: no such option '--nope'\nSee: nats-bridge --help\n"),
        (["run"], "nats-bridge run: missing option '-c' / '--config': -c FILE\nSee: nats-bridge run --help\n"),
        (
            ["check", "-c", GOOD, "stream.json"],
            "nats-bridge check: give either the bridge's configuration (-c FILE) or ",
        ),
        (["check"], "nats-bridge check: give either the bridge's configuration (-c FILE) or "),
        (["check", "-", "--permissions"], "nats-bridge check: --server and --permissions need -c FILE"),
        (["check", "-c", GOOD, "--dialect", "2.10"], "nats-bridge check: --previous and --dialect need STREAM.json"),
        (
            ["check", "--schema", "--json"],
            "nats-bridge check: --permissions and --schema cannot be combined with --json",
        ),
        (
            ["check", "monitor.yaml"],
            "nats-bridge check: write -c before the bridge's configuration: -c monitor.yaml\nSee: ",
        ),
        (["explain", "a"], "nats-bridge explain: needs SRC and DEST, for example 'orders.*' 'o.$1' (or --jsonl)\n"),
        (["explain", "a", "--jsonl"], "nats-bridge explain: --jsonl reads src, dest and subject from stdin"),
        (["explain", "a", "b", "--dialect", "2.13"], "--dialect: unknown dialect '2.13': known are 2.9, 2.10"),
        (["check", "-c", "none.yaml"], "none.yaml: no such file; give the configuration with -c FILE\n"),
        (["clean", "-c", "none.yaml"], "none.yaml: no such file; give the configuration with -c FILE\n"),
        (["check", "-c", GOOD, "--server", "http://h"], "--server: 'http://h': unknown scheme 'http'"),
        (["check", "none.json"], "none.json: cannot be read (No such file or directory); give a file, or -"),
    ],
)
def test_usage_errors_are_two_lines_and_exit_2(run: Any, arguments: list[str], said: str) -> None:
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(said)
    assert ran.err.count("\n") <= 2


def test_a_wrong_configuration_starts_nothing(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("rules:\n  - name: a\n    kind: republsh\n", encoding="utf-8")
    monkeypatch.setenv("BRIDGE_LOG__FORMAT", "console")
    for command in ("run", "check", "clean"):
        ran = run(command, "-c", str(file))
        assert ran.code == 2
        assert ran.err == (
            f"{file}:3:11: rules[0].kind: unknown kind 'republsh'; did you mean 'republish'?\n"
            "        kind: republsh\n"
            "              ^\n"
        )


@pytest.fixture
def log_as_before() -> Iterator[None]:
    """The log goes to a stream of the test, which is closed afterwards."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("written", ["log: {format: json}\nrules: []\n", "rules: []\n", None, "log: [\n"])
@pytest.mark.usefixtures("log_as_before")
def test_a_refused_start_is_a_line_of_the_log_where_that_is_json(run: Any, tmp_path: Path, written: str | None) -> None:
    file = tmp_path / "b.yaml"
    if written is not None:
        file.write_text(written, encoding="utf-8")
    ran = run("run", "-c", str(file))
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    said = json.loads(line)
    assert (said["event"], said["level"], said["code"]) == ("sidecar.refused", "error", "configuration")
    assert said["reason"].startswith(f"{file}:")


def test_check_without_server(run: Any) -> None:
    ran = run("check", "-c", GOOD)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{GOOD}: ok, 1 rule; --server config checks the cluster as well\n"
    assert json.loads(run("check", "-c", GOOD, "--json").out) == {"ok": True, "problems": [], "findings": []}


def test_check_needs_files_of_connections_only_to_connect(run: Any, cluster: list[Any]) -> None:
    secured = str(CONFIG / "secured-connections.yaml")
    ran = run("check", "-c", secured)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count(": no such file; it must exist where the sidecar runs\n") == 6
    assert {each["code"] for each in json.loads(run("check", "-c", secured, "--json").out)["findings"]} == {
        "unreadable"
    }
    ran = run("check", "-c", secured, "--permissions")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("permissions: {") == 2
    assert run("check", "-c", secured, "--server", "config").code == 2
    cluster.append(CheckFinding("orders-west", True, "good", "fine"))
    assert run("check", "-c", secured, "--server", "nats://user:password@h").code == 0


def test_check_prints_problems_as_json(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("nme: x\nrules: []\n", encoding="utf-8")
    ran = run("check", "-c", str(file), "--json")
    assert ran.code == 2
    reported = json.loads(ran.out)
    assert reported["ok"] is False
    assert reported["problems"][0] == f"{file}:1:1: nme: unknown key; did you mean 'name'?"


def test_check_names_the_rule_of_a_problem_and_the_error_number(run: Any, tmp_path: Path) -> None:
    transform = {"src": "orders.*", "dest": "seen.$2"}
    rules = [
        {"name": "seen", "kind": "subject_transform", "stream": "SEEN", "subject_transform": transform},
        {"name": "kept", "kind": "republish", "stream": "KEPT", "republish": {"src": "a"}},
    ]
    file = tmp_path / "b.yaml"
    file.write_text(json.dumps({"rules": rules[:1]}), encoding="utf-8")
    (found,) = json.loads(run("check", "-c", str(file), "--json").out)["findings"]
    assert found.pop("text").startswith("rules[0].subject_transform.dest: from 'orders.*' to 'seen.$2': ")
    assert found == {"rule": "seen", "ok": False, "code": "configuration", "err_code": 10156}
    file.write_text(json.dumps({"rules": rules}), encoding="utf-8")
    (found,) = json.loads(run("check", "-c", str(file), "--json").out)["findings"]
    assert found["text"].startswith("rules[1].republish: 'dest' is missing")
    assert (found["rule"], "err_code" in found) == ("kept", False)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a check of the cluster gives: findings, or an error; the URL asked for is added."""
    answer: list[Any] = []

    async def check_server(settings: Settings, server_url: str | None) -> list[CheckFinding]:
        outcome = answer.pop(0)
        answer.append(server_url)
        if isinstance(outcome, BridgeError):
            raise outcome
        return [outcome]

    monkeypatch.setattr("nats_bridge.app.preflight.check_server", check_server)
    return answer


def test_check_with_a_server_that_is_fine(run: Any, cluster: list[Any]) -> None:
    cluster.append(CheckFinding("orders-monitor", True, "good", "stream 'ORDERS' is there"))
    ran = run("check", "-c", GOOD, "--server", "nats://h:1")
    assert (ran.code, ran.out) == (0, "ok  orders-monitor: stream 'ORDERS' is there\n")
    assert cluster == ["nats://h:1"]


def test_check_with_the_servers_of_the_file(run: Any, cluster: list[Any]) -> None:
    cluster.append(CheckFinding("orders-monitor", True, "good", "rule 'orders-monitor': fine"))
    ran = run("check", "-c", GOOD, "--server", "config")
    assert (ran.code, ran.out) == (0, "ok  rule 'orders-monitor': fine\n")
    assert cluster == [None]


def test_check_with_a_rule_that_cannot_run_there(run: Any, cluster: list[Any]) -> None:
    cluster.append(CheckFinding("orders-monitor", False, "stream_missing", "no stream 'ORDERS'"))
    ran = run("check", "-c", GOOD, "--server", "nats://h:1")
    assert (ran.code, ran.err) == (1, "no  orders-monitor: no stream 'ORDERS'\n")
    cluster[:] = [CheckFinding("orders-monitor", False, "stream_missing", "no stream 'ORDERS'")]
    ran = run("check", "-c", GOOD, "--server", "nats://h:1", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["findings"] == [
        {"rule": "orders-monitor", "ok": False, "code": "stream_missing", "text": "no stream 'ORDERS'"}
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerUnreachableError("connection 'default': no server answers at h:1"), 3),
        (CredentialsError("connection 'default': h:1 refuses the credentials"), 2),
        (ConfigError("x"), 2),
        (ApiError("x", http_code=503, err_code=1, description="x"), 1),
    ],
)
def test_errors_end_with_their_exit_code(run: Any, cluster: list[Any], error: BridgeError, code: int) -> None:
    cluster.append(error)
    ran = run("check", "-c", GOOD, "--server", "nats://h:1")
    assert (ran.code, ran.err) == (code, f"{error}\n")


def test_run_gives_the_settings_to_the_sidecar(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    async def sidecar(settings: Settings, config_path: Path, config_hash: str) -> int:
        await asyncio.sleep(0)
        seen.append((settings.rules[0].name, config_path, config_hash))
        return 7

    _module(monkeypatch, "nats_bridge.app.process", run=sidecar)
    assert run("run", "-c", GOOD).code == 7
    assert seen == [("orders-monitor", Path(GOOD), content_hash(Path(GOOD)))]


def test_clean_names_what_it_removed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def clean(settings: Settings, rules: list[str]) -> list[str]:
        return [f"{settings.name}: {list(rules)}"]

    monkeypatch.setattr("nats_bridge.cli.clean.clean", clean)
    assert run("clean", "-c", GOOD).out == "nats-bridge: []\n"
    assert run("clean", "-c", GOOD, "a", "b").out == "nats-bridge: ['a', 'b']\n"


def test_demo_ends_with_what_it_found(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nats_conformance.demo.command", lambda version="2.15.1": 1 if version == "2.10.27" else 0)
    assert run("demo").code == 0
    assert run("demo", "--server-version", "2.10.27").code == 1


def test_an_unexpected_error_is_two_lines_without_debug(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> int:
        raise RuntimeError("first\nsecond")

    monkeypatch.setattr("nats_conformance.demo.command", broken)
    ran = run("demo")
    assert ran.code == 1
    assert ran.err == "nats-bridge: unexpected RuntimeError: first second\nFor details: nats-bridge --debug …\n"
    ran = run("--debug", "demo")
    assert ran.code == 1
    assert ran.err.startswith("Traceback (most recent call last)")


def test_control_c_ends_with_130(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("nats_conformance.demo.command", interrupted)
    assert run("demo").code == 130


def test_the_console_command_and_a_closed_pipe() -> None:
    closed, stdout = os.pipe()
    os.close(closed)  # before anything can be written
    try:
        done = subprocess.run(
            [sys.executable, "-m", "nats_bridge", "check", "--schema"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(stdout)
    assert (done.returncode, done.stderr) == (1, b"")


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(members)
    monkeypatch.setitem(sys.modules, name, module)
