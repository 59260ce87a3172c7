"""No secret is ever shown: whatever the way to log in, through failures, at debug level, with tracebacks, over HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.cli import main
from nats_bridge.observability.logs import configure_logs
from nats_bridge.settings import Log, Settings, load
from nats_bridge.settings.connect_options import connect_options
from nats_conformance.native_servers import NativeServer
from tests.live.security.credentials import (
    Files,
    Make,
    client_certificate,
    context_password,
    context_url,
    context_url_token,
    creds,
    nkey,
    password,
    token,
)
from tests.live.shared_servers import Servers
from tests.live.until import until

WAYS: list[Make] = [password, token, nkey, creds, client_certificate, context_password, context_url, context_url_token]
"""One for each kind of secret, and each place where one can be."""

OTHERS = "jetstream: enabled\nauthorization {user: other, password: else}"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Files(tmp_path)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before, level = structlog.get_config(), logging.getLogger().level
    yield
    structlog.configure(**before)
    logging.getLogger().setLevel(level)


def forms(secret: str) -> set[str]:
    """How a secret could show: as it is, encoded, or a good part of it."""
    return {
        secret,
        base64.b64encode(secret.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
        urllib.parse.quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        secret[len(secret) // 4 :],
    }


class Output:
    """Everything that was shown."""

    def __init__(self, files: Files, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
        self._files = files
        self._capfd = capfd
        self._caplog = caplog
        self.text = ""

    def collect(self) -> None:
        """Take what was printed and logged since the last time."""
        out, err = self._capfd.readouterr()
        self.text += out + err + self._caplog.text
        self._caplog.clear()

    def leaked(self) -> list[str]:
        """The secrets that show."""
        self.collect()
        return [secret for secret in self._files.secrets for form in forms(secret) if form in self.text]


def command(*arguments: str) -> int:
    """A command line; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(str(ended.value.code or 0))


def fetched(address: tuple[str, int], path: str) -> str:
    """What the sidecar's HTTP server answers."""
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}{path}", headers={"Accept": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a loopback address of our own
    try:
        with opener.open(request) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def configuration(files: Files, name: str, server: NativeServer, connection: dict[str, Any]) -> Path:
    where = {} if "context" in connection else {"servers": [server.url]}
    rule = {"name": "r", "kind": "republish", "stream": "NONE", "republish": {"src": "a", "dest": "b"}}
    document = {
        "connections": {"default": {**where, **connection, "connect_timeout": 20}},
        "http": {"listen": "127.0.0.1:0"},
        "rules": [rule],
    }
    path = files.folder / f"{name}.yaml"
    path.write_text(json.dumps(document), "utf-8")
    return path


async def live(settings: Settings, server: NativeServer, output: Output) -> None:
    """A sidecar that loses its server, and finds another one there that refuses its credentials."""
    sidecar = Sidecar(settings)
    await sidecar.start()
    try:
        assert sidecar.http is not None
        paths = ("/status", "/metrics", "/readyz?verbose", "/livez?verbose", "/")
        for path in paths:
            output.text += await asyncio.to_thread(fetched, sidecar.http, path)
        await asyncio.to_thread(server.stop)
        server.config = OTHERS
        await asyncio.to_thread(server.start)

        def refused() -> bool:
            output.collect()
            return "connection.rejected" in output.text

        await until(refused)
        for path in paths:
            output.text += await asyncio.to_thread(fetched, sidecar.http, path)
    finally:
        await sidecar.stop()


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
async def test_nothing_shows_a_secret(
    make: Make,
    native_server: Servers,
    files: Files,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)  # nats-py's own words, which a sidecar keeps to itself
    output = Output(files, capfd, caplog)
    server = native_server("2.15.3")
    server.start()
    way = make(files, server.url.partition("://")[2])
    server.config = way.config
    await asyncio.to_thread(server.restart)
    good = configuration(files, "good", server, way.connection)
    wrong = configuration(files, "wrong", server, way.wrong)
    configure_logs(Log(level="debug", format="json"))
    settings = load(good)
    output.text += repr(settings) + repr(connect_options(settings.connections["default"]))
    for arguments in (("check",), ("check", "--json"), ("check", "--permissions"), ("handoff", "r")):
        await asyncio.to_thread(command, "--debug", arguments[0], "-c", str(good), *arguments[1:])
    assert await asyncio.to_thread(command, "--debug", "check", "-c", str(good), "--server", "config") in (0, 1)
    assert await asyncio.to_thread(command, "--debug", "check", "-c", str(wrong), "--server", "config") in (2, 3)
    assert await asyncio.to_thread(command, "--debug", "clean", "-c", str(wrong)) in (2, 3)
    output.collect()
    assert "Traceback" in output.text
    await live(settings, server, output)
    assert "connection.lost" in output.text
    assert files.secrets
    assert output.leaked() == []


@pytest.mark.parametrize("field", ["creds", "nkey_seed_file", "token_file", "password_file", "ca", "key"])
def test_a_secret_in_the_wrong_file_is_not_quoted(
    field: str, files: Files, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    output = Output(files, capfd, caplog)
    path = Path(files.secret("secret", "SUAM-n0t-a-seed-but-s3cret"))
    path.write_bytes(path.read_bytes() + b"\xff\n" if field.endswith("file") else path.read_bytes())
    connection: dict[str, Any] = {field: str(path)}
    if field == "password_file":
        connection["user"] = "me"
    if field in ("ca", "key"):
        connection = {"tls": {field: str(path), **({"cert": str(path)} if field == "key" else {})}}
    document = {
        "connections": {"default": {"servers": ["nats://127.0.0.1:1"], **connection}},
        "rules": [{"name": "r", "kind": "republish", "stream": "S", "republish": {"src": "a", "dest": "b"}}],
    }
    config = files.folder / "bridge.yaml"
    config.write_text(json.dumps(document), "utf-8")
    for arguments in (["check"], ["--debug", "check"], ["--debug", "run"]):
        assert command(*arguments, "-c", str(config)) == 2
    output.collect()
    assert str(path) in output.text
    assert output.leaked() == []


def test_a_secret_that_is_written_into_the_configuration_is_not_quoted(
    files: Files, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Output(files, capfd, caplog)
    files.secrets += ["hunter2/+&=x", "t0ken-of-mine", "p4ssword-of-mine", "s3ed-of-mine", "v4riable-of-mine"]
    config = files.folder / "bridge.yaml"
    config.write_text(
        "connections:\n"
        "  default:\n"
        '    servers: ["nats://me:hunter2%2F%2B%26%3Dx@127.0.0.1:1", "nats://me:hunter2/+&=x@h"]\n'
        "    token: t0ken-of-mine\n"
        "    password: p4ssword-of-mine\n"
        "    nkey_seed: s3ed-of-mine\n"
        "rules: [{name: r, kind: republish, stream: S, republish: {src: a, dest: b}}]\n",
        "utf-8",
    )
    monkeypatch.setenv("BRIDGE_CONNECTIONS__DEFAULT__PASSWORD", "v4riable-of-mine")
    monkeypatch.setenv("BRIDGE_CONNECTIONS__OTHER__SERVERS", "nats://v4riable-of-mine@h:1")
    for arguments in (["check"], ["check", "--json"], ["--debug", "check"], ["--debug", "run"]):
        command(
            arguments[0],
            *([arguments[1]] if arguments[0] == "--debug" else []),
            "-c",
            str(config),
            *(arguments[1:] if arguments[0] != "--debug" else []),
        )
    output.collect()
    assert "connections.default" in output.text
    assert output.leaked() == []
