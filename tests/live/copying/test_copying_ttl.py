"""Messages with a TTL of their own: what native copying keeps, and what a rule says that its copies lack."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from nats_bridge.app.preflight import check_server
from nats_transforms import header_block
from tests.live.copied_messages import everything
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until

TTL = {"allow_msg_ttl": True}
BLOCK = b"NATS/1.0\r\nNats-TTL: %b\r\n\r\n"


async def _holds(peer: RawPeer, stream: str, messages: int) -> bool:
    return bool((await peer.api(f"STREAM.INFO.{stream}"))["state"]["messages"] == messages)


@pytest.mark.parametrize("version", ["2.11.17", "2.15.3"])
async def test_a_target_that_allows_a_ttl_later(
    version: str, servers: SharedServers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    url, name = await servers.url(version), unique_name("ttl")
    peer, target, twin, mirror = await raw_peer(url), f"T{name}", f"N{name}", f"M{name}"
    await peer.create_stream(name=name, subjects=[f"{name}.>"], **TTL)
    for ttl in (b"never", b"1h"):
        await peer.store(f"{name}.a".encode(), b"x", BLOCK % ttl)
    await peer.create_stream(name=target, subjects=[f"{target}.>"])
    await peer.create_stream(name=twin, sources=[{"name": name}])
    await peer.create_stream(name=mirror, mirror={"name": name})
    renaming = [{"src": f"{name}.>", "dest": f"{target}.>"}]
    rule = {"name": "rule", "kind": "sources", "stream": target}
    settings = settings_for(url, {**rule, "sources": [{"name": name, "subject_transforms": renaming}]})
    findings = await check_server(settings, None)
    (said,) = [finding.text for finding in findings if finding.code == "diverges"]
    assert "messages with a TTL are copied without it" in said

    async def ttls(stream: str) -> list[bytes | None]:
        return [header_block.read(message.header_block, b"Nats-TTL") for message in await everything(peer, stream)]

    async def allow(stream: str) -> None:
        config: dict[str, Any] = (await peer.api(f"STREAM.INFO.{stream}"))["config"]
        assert "error" not in await peer.api(f"STREAM.UPDATE.{stream}", config | TTL)

    with capture_logs() as log:
        async with running(settings):
            for stream in (target, twin, mirror):
                await until(lambda stream=stream: _holds(peer, stream, 2))  # type: ignore[misc]
    assert [line["meaning"] for line in log if line["event"] == "copying.headers_will_be_lost"] == [said]
    assert [await ttls(stream) for stream in (target, twin, mirror)] == [[None, None], *[[b"never", b"1h"]] * 2]
    for stream in (target, twin, mirror):
        await allow(stream)
    assert not [finding for finding in await check_server(settings, None) if finding.code == "diverges"]
    with capture_logs() as log:
        async with running(settings):
            await peer.store(f"{name}.a".encode(), b"x", BLOCK % b"1s")
            for stream in (twin, mirror):
                await until(lambda stream=stream: _holds(peer, stream, 2))  # type: ignore[misc]
            await until(lambda: _holds(peer, target, 2))
    assert not [line for line in log if line["event"] == "copying.headers_will_be_lost"]
