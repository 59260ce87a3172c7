"""Every way to log in, on real servers: it works, what is wrong is said in one line, and rotated secrets are used."""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trustme

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.errors import BridgeError, ConfigError, CredentialsError
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.cut_wire import cut_wire
from tests.live.security import credentials
from tests.live.security.credentials import NOT_BEFORE_2_10, WAYS, Files, Make, Operator
from tests.live.shared_servers import Servers
from tests.live.until import LIMIT, until

pytestmark = pytest.mark.usefixtures("quick_reconnects")

Log = list[MutableMapping[str, Any]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Files(tmp_path)


@pytest.fixture
def log() -> Iterator[Log]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def settings(server: NativeServer, connection: dict[str, Any]) -> Settings:
    """A configuration whose rule waits for a stream that never comes: it is the connection that counts."""
    where = {} if "context" in connection else {"servers": [server.url]}
    rule = {"name": "r", "kind": "republish", "stream": "NONE", "republish": {"src": "a", "dest": "b"}}
    return Settings.model_validate(
        {
            "connections": {"default": {"connect_timeout": LIMIT, **where, **connection}},
            "http": {"listen": ""},
            "rules": [rule],
        }
    )


@asynccontextmanager
async def logged_in(server: NativeServer, connection: dict[str, Any]) -> AsyncIterator[Sidecar]:
    sidecar = Sidecar(settings(server, connection))
    await sidecar.start()
    try:
        yield sidecar
    finally:
        await sidecar.stop()


async def refused(server: NativeServer, connection: dict[str, Any]) -> BridgeError:
    with pytest.raises(BridgeError) as caught:
        async with logged_in(server, connection):
            pass
    return caught.value


async def said(log: Log, event: str, times: int = 1) -> None:
    await until(lambda: sum(line["event"] == event for line in log) >= times)


def rewrite(file: Path, content: str) -> None:
    file.write_text(content, "utf-8")


def read(file: Path) -> str:
    return file.read_text("utf-8")


def started(native_server: Servers, version: str, config: str, port: int = 0) -> NativeServer:
    server = native_server(version, config=config, port=port)
    server.start()
    return server


@pytest.mark.parametrize("version", ["2.9.10", "2.15.3"])
@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
async def test_a_way_to_log_in(make: Make, version: str, native_server: Servers, files: Files, log: Log) -> None:
    if version == "2.9.10" and make in NOT_BEFORE_2_10:
        return  # the server has no such option
    server = started(native_server, version, "")
    way = make(files, server.url.partition("://")[2])
    server.config = way.config
    await asyncio.to_thread(server.restart)
    async with logged_in(server, way.connection):
        await asyncio.to_thread(server.restart, kill=True)
        await said(log, "connection.back")
    error = await refused(server, way.wrong)
    assert isinstance(error, CredentialsError)
    text = str(error)
    assert text.startswith("connection 'default': ")
    assert server.url.partition("://")[2] in text
    assert "\n" not in text
    assert [secret for secret in files.secrets if secret in text] == []


async def test_certificates_that_are_not_good(native_server: Servers, files: Files) -> None:
    ours = trustme.CA()
    ca = files.authority("ours", ours)
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)

    def config(certificate: trustme.LeafCert, *more: str) -> str:
        own = files.certificate("server", certificate)
        return "\n".join(["tls {", f'cert_file: "{own["cert"]}"', f'key_file: "{own["key"]}"', *more, "}"])

    server = started(native_server, "2.15.3", config(ours.issue_cert("elsewhere.example")))
    text = str(await refused(server, {"tls": {"ca": ca}}))
    assert "certificate is not valid for '127.0.0.1'" in text
    assert "check the connection's tls" in text
    async with logged_in(server, {"tls": {"ca": ca, "hostname": "elsewhere.example"}}):
        pass
    expired = ours.issue_cert("127.0.0.1", not_before=yesterday - datetime.timedelta(days=9), not_after=yesterday)
    server.config = config(expired)
    await asyncio.to_thread(server.restart)
    assert "certificate has expired" in str(await refused(server, {"tls": {"ca": ca}}))
    verified = f'verify: true\nca_file: "{ca}"'
    server.config = config(ours.issue_cert("127.0.0.1"), verified)
    await asyncio.to_thread(server.restart)
    error = await refused(server, {"tls": {"ca": ca}})
    assert "certificate" in str(error), "the server wants one of ours"
    server.config = ""
    await asyncio.to_thread(server.restart)
    assert isinstance(await refused(server, {"tls": {"ca": ca}}), ConfigError), "it has no TLS at all"


async def test_a_rotated_password_is_used_when_the_server_asks_for_it(
    native_server: Servers, files: Files, log: Log
) -> None:
    def config(password: str) -> str:
        return f"jetstream: enabled\nauthorization {{user: me, password: {password}}}"

    server = started(native_server, "2.15.3", config("one"))
    file = Path(files.secret("password", "one"))
    async with logged_in(server, {"user": "me", "password_file": str(file)}) as sidecar:
        server.config = config("two")
        rewrite(server.directory / "server.conf", f'server_name: "{server.name}"\n{server.config}')
        os.kill(server.pid, signal.SIGHUP)  # it sends away whom it does not know any more
        await said(log, "connection.lost")
        await said(log, "connection.rejected", 3)
        rewrite(file, "two")
        await said(log, "connection.back")
        assert sidecar.error is None


async def test_rotated_credentials_are_used(native_server: Servers, files: Files, log: Log) -> None:
    operator = Operator()
    server = started(native_server, "2.15.3", f"jetstream: enabled\n{operator.config()}")
    file = Path(files.write("u.creds", operator.creds(1)))
    async with logged_in(server, {"creds": str(file)}) as sidecar:
        server.config = f"jetstream: enabled\n{operator.config(1)}"
        await asyncio.to_thread(server.restart)
        await said(log, "connection.rejected", 2)
        rewrite(file, "")  # half replaced
        await said(log, "connection.rejected", 4)
        rewrite(file, operator.creds(2))
        await said(log, "connection.back")
        assert sidecar.error is None


async def test_credentials_that_expire_are_renewed(native_server: Servers, files: Files, log: Log) -> None:
    operator = Operator()
    server = started(native_server, "2.15.3", f"jetstream: enabled\n{operator.config()}")
    file = Path(files.write("u.creds", operator.creds(1)))
    lifetime = 2
    while True:
        rewrite(file, operator.creds(1, int(time.time()) + lifetime))
        try:
            async with logged_in(server, {"creds": str(file)}) as sidecar:
                await said(log, "connection.rejected")
                rewrite(file, operator.creds(1))
                await said(log, "connection.back")
                assert sidecar.error is None
        except CredentialsError:
            lifetime *= 2  # they were over before we were there
        else:
            return


async def test_a_rotated_nkey_and_client_certificate_are_used(native_server: Servers, files: Files, log: Log) -> None:
    way = credentials.client_certificate(files, "")
    server = started(native_server, "2.15.3", way.config)
    async with logged_in(server, way.connection):
        renewed = trustme.CA()
        files.authority("clients", renewed)
        await asyncio.to_thread(server.restart)
        await said(log, "connection.rejected", 2)
        files.certificate("client", renewed.issue_cert("client@example.com"))
        await said(log, "connection.back")
    log.clear()
    way = credentials.nkey(files, "")
    server = started(native_server, "2.15.3", way.config)
    async with logged_in(server, way.wrong | {"nkey_seed_file": way.connection["nkey_seed_file"]}):
        kept, other = (Path(one["nkey_seed_file"]) for one in (way.connection, way.wrong))
        server.config = way.config.replace(
            credentials.public(credentials.new_keys(credentials.nkeys.PREFIX_BYTE_USER, 10)),
            credentials.public(credentials.new_keys(credentials.nkeys.PREFIX_BYTE_USER, 11)),
        )
        await asyncio.to_thread(server.restart)
        await said(log, "connection.rejected", 2)
        rewrite(kept, read(other))
        await said(log, "connection.back")


async def test_a_server_that_waited_too_long_for_a_login_is_tried_again(native_server: Servers, tmp_path: Path) -> None:
    """It says 'Authentication Timeout', which is no word about the credentials."""
    server = started(native_server, "2.15.3", 'authorization { user: "u", password: "p", timeout: 0.2 }')
    password = tmp_path / "password"
    password.write_text("p", "utf-8")
    async with cut_wire(server.url) as wire:
        wire.fall_silent_after(b"INFO ")
        login = {"servers": [wire.url], "user": "u", "password_file": str(password)}
        sidecar = Sidecar(settings(server, login))
        starting = asyncio.create_task(sidecar.start())
        await until(lambda: b"Authentication Timeout" in wire.held)
        wire.speak_again()
        await starting
        await sidecar.stop()
        assert wire.connections > 1
