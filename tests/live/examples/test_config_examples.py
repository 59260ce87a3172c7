"""Every example in config/ on real servers, tried with its own lines."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # ships without types
import pytest

from nats_bridge.app.preflight import check_server
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
    """The example with other addresses, and without a port that another program may have."""
    settings = load(example, {"BRIDGE_HTTP__LISTEN": ""})
    connections = {
        name: connection.model_copy(
            update={"servers": tuple(addresses[url] for url in connection.servers), "connect_timeout": LIMIT}
        )
        for name, connection in settings.connections.items()
    }
    return settings.model_copy(update={"connections": connections})


@pytest.mark.parametrize("version", ["2.15.3", pytest.param("2.10.27", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
async def test_what_an_example_says_happens(
    version: str, example: Path, native_server: Servers, raw_peer: OpenPeer
) -> None:
    commands = lines_to_try(example)
    start = next(n for n, words in enumerate(commands) if words[:2] == ["nats-bridge", "run"])
    async with native_server(version) as east, native_server(version) as west:
        peers = {EAST: await raw_peer(east.url), WEST: await raw_peer(west.url)}
        tried = Tried(peers)
        for words in commands[:start]:
            await tried.do(words)
        settings = at(example, {EAST: east.url, WEST: west.url})
        findings = await check_server(settings, None)
        assert [finding.text for finding in findings if not finding.ok] == []
        async with running(settings) as sidecar:
            # With leases, no replica leads at once.
            await until(lambda: [run.ready for run in sidecar.runs] == [True] * len(settings.rules))
            later = commands[start + 1 :]
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
