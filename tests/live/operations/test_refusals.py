"""What must not start does not: one or two lines, the exit code of the contract, nothing left on the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nats_bridge.client.connection import open_connection
from nats_bridge.errors import BridgeError, ServerUnreachableError
from nats_bridge.settings import load
from tests.live.raw_messages import OpenPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecar_process import Scene, SidecarProcess, document
from tests.live.sidecars import failure_of


async def refused(directory: Path, written: dict[str, Any] | str) -> tuple[int, str]:
    """Start a configuration that must be refused, in this process; its exit code, and what it says."""
    try:
        error = await failure_of(load(file(directory, written)))
    except BridgeError as at_once:
        error = at_once
    assert isinstance(error, BridgeError), error
    return error.exit_code, in_one_or_two_lines(str(error))


async def refused_by_process(directory: Path, written: dict[str, Any]) -> tuple[int, str]:
    """The same as a process: this is what it logs, and nothing else."""
    process = await SidecarProcess.start(file(directory, {**written, "fail_fast": True}))
    code = await process.ended()
    assert not any("sidecar.ready" in line or "Traceback" in line for line in process.log), process.log
    assert process.plain_lines == []
    return code, in_one_or_two_lines(str((await process.said("sidecar.refused"))["reason"]))


def file(directory: Path, written: dict[str, Any] | str) -> Path:
    config = directory / "sidecar.yaml"
    config.write_text(written if isinstance(written, str) else json.dumps(written), "utf-8")
    return config


def in_one_or_two_lines(reason: str) -> str:
    assert 1 <= len(reason.splitlines()) <= 2, reason
    return " ".join(reason.splitlines())


async def test_a_server_that_is_down(native_server: Servers, tmp_path: Path) -> None:
    with native_server("2.15.3") as server:
        url = server.url
    rule = {"name": "r", "stream": "S", "republish": {"src": ">", "dest": "out.>"}}
    connection = {"servers": [url], "connect_timeout": 2}
    code, said = await refused_by_process(tmp_path, document(url, rule, connections={"default": connection}))
    assert code == 3
    assert f"connection 'default': no server answers at {url} (connection refused)" in said


async def test_an_address_with_a_password_is_printed_without_it(native_server: Servers) -> None:
    """Contexts of the command line may hold such addresses."""
    with native_server("2.15.3") as server:
        address = server.url.removeprefix("nats://")
    options = {"servers": [f"nats://me:hunter2@{address}"], "connect_timeout": 2}
    with pytest.raises(ServerUnreachableError, match=f"no server answers at nats://{address} ") as caught:
        await open_connection("default", options, client_name="test")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("user", "permissions", "code", "expected"),
    [
        ("wrong", "", 2, "refuses the credentials"),
        ("right", 'publish: {deny: "$JS.API.>"}', 2, "the user may not publish to $JS.API.STREAM.INFO.S"),
    ],
)
async def test_credentials(
    user: str, permissions: str, code: int, expected: str, native_server: Servers, tmp_path: Path
) -> None:
    users = f'{{user: right, password: secret, permissions: {{subscribe: ">", {permissions}}}}}'
    password = tmp_path / "password"
    password.write_text("secret")
    async with native_server("2.15.3", config=f"authorization: {{users: [{users}]}}") as server:
        rule = {"name": "r", "stream": "S", "republish": {"src": ">", "dest": "out.>"}}
        connection = {"servers": [server.url], "user": user, "password_file": str(password)}
        written = document(server.url, rule, connections={"default": connection})
        answer, said = await refused_by_process(tmp_path, written)
    assert answer == code
    assert expected in said
    assert "secret" not in said


@pytest.mark.parametrize("by", ["scheme", "option"])
async def test_tls_is_asked_for_and_not_offered(by: str, native_server: Servers, tmp_path: Path) -> None:
    """nats-py would continue in clear text, credentials included."""
    async with native_server("2.15.3") as server:
        rule = {"name": "r", "stream": "S", "republish": {"src": ">", "dest": "out.>"}}
        connection: dict[str, Any] = {"servers": [server.url]}
        if by == "scheme":
            connection["servers"] = [server.url.replace("nats://", "tls://")]
        else:
            connection["tls"] = {"insecure": True}
        code, said = await refused(tmp_path, document(server.url, rule, connections={"default": connection}))
    assert code == 2
    assert "offers no TLS, which the connection requires, so nothing was sent" in said


async def test_a_destination_among_the_stream_s_own_subjects(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    """No endless loop, and refused all the same: no server takes it as native republish."""
    url = await servers.url("2.15.3")
    here = await Scene.make(await raw_peer(url), unique_name("cycle"))
    rule = here.rule(republish={"src": f"{here.name}.raw.*", "dest": f"{here.name}.clean.$1"})
    code, said = await refused(tmp_path, document(url, rule))
    assert code == 2
    assert "forms a cycle with the stream's subjects" in said
    assert await here.consumers() == []


async def test_a_transform_that_the_dialect_does_not_know(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.9.10")
    here = await Scene.make(await raw_peer(url), unique_name("dialect"), republish=None)
    rule = here.rule(republish={"src": f"{here.name}.*", "dest": "out.{{left(1,2)}}"})
    for dialect in ("2.9", "native"):
        code, said = await refused(tmp_path, document(url, rule, dialect=dialect))
        assert code == 2
        assert "rule" in said
        assert "left" in said


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("rules:\n  - name: [\n", "sidecar.yaml:3:1"),
        ("rulez: []\n", "rulez"),
        (
            "rules:\n  - {name: r, kind: republish, stream: S, republsh: {src: a, dest: b}}\n",
            "did you mean 'republish'",
        ),
    ],
)
async def test_mistakes_in_the_file(written: str, expected: str, tmp_path: Path) -> None:
    code, said = await refused(tmp_path, written)
    assert code == 2
    assert expected in said


async def test_a_consumer_of_that_name_of_another_owner(
    servers: SharedServers, unique_name: Name, raw_peer: OpenPeer, tmp_path: Path
) -> None:
    url = await servers.url("2.10.27")
    here = await Scene.make(await raw_peer(url), unique_name("owner"))
    name = "CONSUMER.DURABLE.CREATE." + here.name + ".nats-bridge_rule"
    config = {"durable_name": "nats-bridge_rule", "ack_policy": "none", "description": "the auditors'"}
    assert "error" not in await here.peer.api(
        name, {"stream_name": here.name, "config": config | {"ack_policy": "all"}}
    )
    code, said = await refused(tmp_path, document(url, here.rule()))
    assert code == 2
    assert f"consumer 'nats-bridge_rule' of stream '{here.name}' is not this rule's ('the auditors'')" in said
    (consumer,) = await here.consumers()
    assert consumer["config"]["description"] == "the auditors'"
