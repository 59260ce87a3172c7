"""Every example in config/ on real servers, tried with its own lines, with exactly the permissions that it needs."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # ships without types
import pytest
import structlog.testing

from nats_bridge.app.preflight import check_server
from nats_bridge.permissions.granting import as_text, grants_of
from nats_bridge.settings import Settings, load
from tests.example_secrets import USER, WEST_USER, place_secrets
from tests.live.examples.tried_lines import Tried, lines_to_try
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.security.credentials import JETSTREAM, PATIENCE, Files, Operator, new_keys, public
from tests.live.shared_servers import Servers
from tests.live.sidecars import running
from tests.live.until import LIMIT, until

CONFIG = Path(__file__).parents[3] / "config"
SECURED = CONFIG / "secured-connections.yaml"
EXAMPLES = [path for path in sorted(CONFIG.glob("*.yaml")) if path != SECURED]
EAST, WEST = "nats://127.0.0.1:4222", "nats://127.0.0.1:4223"


def at(example: Path, addresses: dict[str, str]) -> Settings:
    """The example with other addresses, and without a port that another program may have.

    In an address, {user} stands for the connection's name.
    """
    settings = load(example, {"BRIDGE_HTTP__LISTEN": ""})
    connections = {
        name: connection.model_copy(
            update={
                "servers": tuple(addresses[url].format(user=name) for url in connection.servers),
                "connect_timeout": LIMIT,
            }
        )
        for name, connection in settings.connections.items()
    }
    return settings.model_copy(update={"connections": connections})


def users(settings: Settings, address: str) -> str:
    """A server's configuration: an administrator, and for each connection to it a user with its permissions."""
    listed = [
        f'{{ user: "{granted.connection}", password: p\n{as_text([granted])}\n}}'
        for granted in grants_of(settings)
        if address in settings.connections[granted.connection].servers
    ]
    return "\n".join(("accounts { A { jetstream: enabled, users: [ {user: admin, password: p}", *listed, "] } }"))


def logged_in(url: str, user: str) -> str:
    return url.replace("//", f"//{user}:p@")


@pytest.mark.parametrize("version", ["2.15.3", pytest.param("2.10.27", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
async def test_what_an_example_says_happens(
    version: str, example: Path, native_server: Servers, raw_peer: OpenPeer
) -> None:
    commands = lines_to_try(example)
    start = next(n for n, words in enumerate(commands) if words[:2] == ["nats-bridge", "run"])
    east_users, west_users = (users(load(example, {}), address) for address in (EAST, WEST))
    async with (
        native_server(version, config=east_users) as east,
        native_server(version, config=west_users) as west,
    ):
        urls = {EAST: east.url, WEST: west.url}
        tried = Tried({address: await raw_peer(logged_in(url, "admin")) for address, url in urls.items()})
        for words in commands[:start]:
            await tried.do(words)
        settings = at(example, {address: logged_in(url, "{user}") for address, url in urls.items()})
        findings = await check_server(settings, None)
        assert [finding.text for finding in findings if not finding.ok] == []
        with structlog.testing.capture_logs() as log:
            await try_out(settings, tried, commands[start + 1 :])
        assert [entry["server_says"] for entry in log if entry["event"] == "connection.refused"] == []


async def try_out(settings: Settings, tried: Tried, later: list[list[str]]) -> None:
    """Run the sidecar, do the commands that come later, and wait until they show that it works."""
    async with running(settings) as sidecar:
        # With leases, no replica leads at once.
        await until(lambda: [run.ready for run in sidecar.runs] == [True] * len(settings.rules))
        # A reader who tries it has a terminal for each: those that wait for messages are there first.
        for words in sorted(later, key=lambda words: words[:2] != ["nats", "sub"] and "sub" not in words):
            await tried.do(words)
        assert tried.subscribed or tried.viewed, "nothing shows that it works"
        for _, arrived in tried.subscribed:
            await arrived.count(1)
        for peer, stream in tried.viewed:
            await until(lambda peer=peer, stream=stream: _holds_some(peer, stream))  # type: ignore[misc]


async def _holds_some(peer: RawPeer, stream: str) -> bool:
    return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"]) > 0


async def test_the_secured_one_with_its_files_in_place(native_server: Servers, tmp_path: Path) -> None:
    example = Path(shutil.copy(SECURED, tmp_path))
    authority = await asyncio.to_thread(place_secrets, tmp_path / "secrets")
    files = Files(tmp_path)
    own = files.certificate("server", authority.issue_cert("localhost"))
    tls = f'cert_file: "{own["cert"]}", key_file: "{own["key"]}", {PATIENCE}'
    operator = f"{JETSTREAM}\ntls {{{tls}}}\n{Operator().config(7)}"
    user = public(new_keys(nkeys.PREFIX_BYTE_USER, WEST_USER))
    nkey = (
        f'{JETSTREAM}\ntls {{{tls}, ca_file: "{tmp_path}/secrets/ca.pem", verify: true}}\n'
        f"authorization {{users: [{{nkey: {user}}}], {PATIENCE}}}"
    )
    assert USER != 7
    async with native_server("2.10.27", config=operator) as east, native_server("2.10.27", config=nkey) as west:
        settings = at(
            example,
            {
                EAST.replace("nats:", "tls:"): east.url.replace("nats:", "tls:"),
                WEST.replace("nats:", "tls:"): west.url.replace("nats:", "tls:"),
            },
        )
        (finding,) = [each for each in await check_server(settings, None) if each.rule]
        # Both accept it; the stream is not created yet.
        assert finding.code == "stream_missing"
