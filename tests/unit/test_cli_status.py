"""`nats-bridge status`: what it prints, what it ends with, and the terminal that it leaves behind."""

import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nats_bridge.cli import main
from nats_bridge.cli.status.asking import status_url, url_of_listener
from nats_bridge.errors import ConfigError
from tests import status_documents as samples
from tests.status_server import StatusServer, status_server

LIMIT = 60
"""Seconds until something counts as hung."""

CONFIG = str(Path(__file__).parents[2] / "config" / "republish-monitor.yaml")
COMMAND = (sys.executable, "-m", "nats_bridge", "status")


@pytest.fixture
def server() -> Iterator[StatusServer]:
    with status_server(samples.trouble()) as running:
        yield running


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["status", *arguments])
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address that refuses connections, and stays ours."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_it_says_what_is_wrong_and_ends_with_1(server: StatusServer, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--url", server.url)
    assert (code, err) == (1, "")
    assert out.startswith("orders-bridge is not ready")
    assert "waiting: stream 'KV_SETTINGS' does not exist on connection 'west'" in out
    assert "\x1b" not in out


def test_it_ends_with_0_when_all_is_well(server: StatusServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.document = samples.document(samples.rule("monitor"))
    code, out, _ = run(capsys, "--url", server.url.removeprefix("http://"))
    assert code == 0
    assert out.splitlines()[-1].split()[:2] == ["monitor", "ready"]


def test_json_is_the_whole_state(server: StatusServer, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--json", "--url", f"{server.url}/status")
    assert (code, json.loads(out)) == (1, server.document)


def test_the_configuration_says_where(
    server: StatusServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGE_HTTP__LISTEN", server.url.removeprefix("http://"))
    assert run(capsys, "-c", CONFIG)[0] == 1
    monkeypatch.setenv("BRIDGE_HTTP__LISTEN", "")
    code, _, err = run(capsys, "-c", CONFIG)
    assert (code, err) == (2, "http.listen is empty, so this sidecar serves no status: set an address\n")


def test_no_server_answers(refusing: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--url", refusing)
    assert (code, out) == (3, "")
    assert err.startswith(f"{refusing}/status: no sidecar answers (connection refused): is nats-bridge running")
    assert len(err.splitlines()) == 1


def test_only_whether_it_lives(server: StatusServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--live", "--url", server.url) == (0, "[+] event loop\nok\n", "")
    server.is_wedged = True
    assert run(capsys, "--live", "--url", server.url) == (1, "[-] rule monitor: wedged\nnot ok\n", "")
    code, _, err = run(capsys, "--live", "--url", f"{server.url}/elsewhere")
    assert (code, "elsewhere/livez: answers 404" in err) == (3, True)
    code, _, err = run(capsys, "--live", "--watch", "--url", server.url)
    assert (code, "--live cannot be combined with --watch or --json" in err) == (2, True)
    code, _, err = run(capsys, "--watch", "--json", "--url", server.url)
    assert (code, "--watch cannot be combined with --json" in err) == (2, True)


def test_another_program_is_there(server: StatusServer, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--url", f"{server.url}/elsewhere")
    assert (code, "answers 404" in err) == (3, True)
    server.document = {"hello": "world"}
    code, _, err = run(capsys, "--url", server.url)
    assert (code, "the response is not a sidecar's state" in err) == (3, True)


def test_proxies_of_the_environment_are_not_asked(
    server: StatusServer, refusing: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", refusing)
    assert run(capsys, "--url", server.url)[0] == 1


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("127.0.0.1:8322", "http://127.0.0.1:8322/status"),
        ("http://h:1/", "http://h:1/status"),
        ("https://h/bridge/", "https://h/bridge/status"),
        ("http://h:1/status", "http://h:1/status"),
        ("http://[::1]:8322", "http://[::1]:8322/status"),
    ],
)
def test_addresses(given: str, asked: str) -> None:
    assert status_url(given) == asked


@pytest.mark.parametrize("given", ["", "nats://h:4222", "http://", "http://h:99999", "http://u:p@h:1", "http://h/?a=1"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(ConfigError, match=r"^--url: "):
        status_url(given)


def test_the_listeners_own_address() -> None:
    assert url_of_listener(("", 8322)) == "http://127.0.0.1:8322"
    assert url_of_listener(("0.0.0.0", 8322)) == "http://127.0.0.1:8322"
    assert url_of_listener(("::", 8322)) == "http://[::1]:8322"
    assert url_of_listener(("10.0.0.1", 1)) == "http://10.0.0.1:1"


def test_url_and_configuration_together(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--url", "http://h:1", "-c", "x.yaml")
    assert (code, "--url and -c cannot be combined" in err) == (2, True)


def test_a_listener_that_speaks_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    """The port of a NATS server, of all ports the likeliest mistake."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b'INFO {"server_id":"X","version":"2.10.27"}\r\n')
                connection.recv(65536)

        greeting = threading.Thread(target=greet)
        greeting.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        code, out, err = run(capsys, "--url", url)
        greeting.join(LIMIT)
    assert (code, out) == (3, "")
    assert err.startswith(f"{url}/status: the response is not HTTP: is nats-bridge running")


def test_an_empty_address_is_not_the_usual_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--url", "")
    assert (code, err.splitlines()[0][:5]) == (2, "--url")


def test_watching_without_a_terminal_prints_whole_states_one_by_one(server: StatusServer) -> None:
    server.document = samples.document(*[samples.rule(f"rule-{number:02}") for number in range(40)])
    arguments = (*COMMAND, "--url", server.url, "--watch")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        lines = [watching.stdout.readline()]
        while lines.count(lines[0]) < 3:
            lines.append(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
        assert (watching.wait(LIMIT), watching.stderr.read()) == (0, "")
    assert lines[0].startswith("orders-bridge is ")
    assert [sum(f"rule-{number:02}" in line for line in lines) for number in range(40)] == [2] * 40


class Terminal:
    """A terminal with `status --watch` in it."""

    def __init__(self, url: str) -> None:
        self._ours, theirs = pty.openpty()
        self._theirs = theirs
        self.size(100, 30)
        self.seen = b""
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            (*COMMAND, "--url", url, "--watch"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")},
            start_new_session=True,
            preexec_fn=self._begin,
        )

    @staticmethod
    def _begin() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a script's background has it: Ctrl-C ends it nevertheless

    def size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def until(self, text: bytes) -> bytes:
        """Read until a text comes; what was read up to its end. It is forgotten then."""
        while text not in self.seen:
            self._read()
        read, _, self.seen = self.seen.partition(text)
        return read + text

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], LIMIT)
        assert ready, self.seen
        self.seen += os.read(self._ours, 65536)

    def ended(self) -> int:
        """Read to the end; the exit code."""
        code = self.process.wait(LIMIT)
        while select.select([self._ours], [], [], 0)[0]:
            self.seen += os.read(self._ours, 65536)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminal(server: StatusServer) -> Iterator[Terminal]:
    opened = Terminal(server.url)
    yield opened
    opened.close()


def test_it_shows_what_changes_until_ctrl_c(terminal: Terminal, server: StatusServer) -> None:
    assert b"not ready" in terminal.until(b"Ctrl-C ends")
    server.document = samples.document(samples.rule("brand-new"))
    terminal.until(b"brand-new")
    server.go_away()
    terminal.until(b"no sidecar answers")
    assert b"brand-new" in terminal.until(b"Ctrl-C ends")
    server.come_back()
    while b"no sidecar answers" in terminal.until(b"Ctrl-C ends"):
        pass
    terminal.type(b"\x03")
    assert terminal.ended() == 0
    assert b"Traceback" not in terminal.seen


def test_it_follows_the_size_of_the_window(terminal: Terminal, server: StatusServer) -> None:
    server.document = samples.document(*[samples.rule(f"rule-{number:02}") for number in range(40)])
    terminal.until(b"rule-10")
    assert b"rule-39" not in terminal.until(b"Ctrl-C ends")
    terminal.size(100, 60)
    terminal.until(b"rule-39")
    terminal.type(b"\x03")
    assert terminal.ended() == 0
