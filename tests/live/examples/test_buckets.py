"""Key-value buckets and object stores: cache invalidation and file events, by the example configurations themselves."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from nats.aio.client import Client

from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from tests.live.raw_messages import Collected, OpenPeer
from tests.live.shared_servers import Servers
from tests.live.sidecar_process import last_sequence_of
from tests.live.sidecars import running
from tests.live.until import LIMIT

CONFIG = Path(__file__).parents[3] / "config"
Connect = Callable[..., Any]


def example(name: str, server: NativeServer) -> Settings:
    """An example configuration, for another server."""
    document = yaml.safe_load((CONFIG / name).read_text("utf-8"))
    document["connections"]["default"]["servers"] = [server.url]
    return Settings.model_validate({**document, "http": {"listen": ""}, "dialect": "native"})


async def natively(client: Client, stream: str, republish: dict[str, Any]) -> None:
    """Let the server republish the stream as well."""
    info = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=LIMIT)).data)
    body = json.dumps(info["config"] | {"republish": republish}).encode()
    answer = json.loads((await client.request(f"$JS.API.STREAM.UPDATE.{stream}", body, timeout=LIMIT)).data)
    assert "error" not in answer, answer


def without_first_token(collected: Collected) -> list[tuple[bytes, bytes, bytes]]:
    return [(subject.partition(b".")[2], block, payload) for subject, _, block, payload in collected.messages]


async def test_cache_invalidation_from_a_key_value_bucket(
    twin_version: str, native_server: Servers, raw_peer: OpenPeer, connect: Connect
) -> None:
    async with native_server(twin_version) as server:
        client = await connect(server)
        stream = client.jetstream(timeout=LIMIT)
        bucket = await stream.create_key_value(bucket="SETTINGS", history=3)
        await bucket.put("color.primary", b"red")
        peer = await raw_peer(server.url)
        if twin_version != "2.9.10":  # where republish cannot be edited; there the values below must do
            await natively(
                client, "KV_SETTINGS", {"src": "$KV.SETTINGS.>", "dest": "native.SETTINGS.>", "headers_only": True}
            )
        native, cache = await peer.collect("native.>"), await peer.collect("cache.>")
        async with running(example("kv-cache-invalidation.yaml", server)):
            await bucket.put("color.primary", b"blue")
            await bucket.put("size", b"10")
            await bucket.delete("size")
            await bucket.put("width", b"x" * 5000)
            await cache.count(4)  # a purge on 2.9.10 makes consumers skip what they have not delivered yet
            await bucket.purge("color.primary")
            await bucket.put("color.primary", b"green")
            await cache.count(6)
            if twin_version != "2.9.10":
                await native.count(6)
                assert without_first_token(cache) == without_first_token(native)
        said = [(message[0].decode(), last_sequence_of(message), message[3]) for message in cache.messages]
        assert said == [
            ("cache.SETTINGS.color.primary", 1, b""),
            ("cache.SETTINGS.size", 0, b""),
            ("cache.SETTINGS.size", 3, b""),
            ("cache.SETTINGS.width", 0, b""),
            ("cache.SETTINGS.color.primary", 2, b""),
            ("cache.SETTINGS.color.primary", 6, b""),
        ]
        assert b"KV-Operation: DEL\r\n" in cache.messages[2][2]
        assert b"KV-Operation: PURGE\r\n" in cache.messages[4][2]
        assert b"Nats-Msg-Size: 5000\r\n" in cache.messages[3][2]
        info = await stream.stream_info("KV_SETTINGS")
        assert info.state.consumer_count == 0, "nothing is left behind"


async def test_events_of_an_object_store(native_server: Servers, raw_peer: OpenPeer, connect: Connect) -> None:
    async with native_server("2.15.3") as server:
        client = await connect(server)
        store = await client.jetstream(timeout=LIMIT).create_object_store("FILES")
        await natively(client, "OBJ_FILES", {"src": "$O.FILES.M.*", "dest": "native.changed.{{wildcard(1)}}"})
        peer = await raw_peer(server.url)
        native, events = await peer.collect("native.>"), await peer.collect("files.>")
        async with running(example("object-store-events.yaml", server)):
            await store.put("report.pdf", b"p" * 400_000)
            await store.put("small", b"s")
            await store.delete("small")
            await events.count(3)
            await native.count(3)
        assert without_first_token(events) == without_first_token(native)
        assert [subject for subject, _, _, _ in events.messages] == [
            b"files.changed." + urlsafe_b64encode(name) for name in (b"report.pdf", b"small", b"small")
        ]
        reported = [json.loads(payload) for _, _, _, payload in events.messages]
        assert [(meta["name"], meta["size"], meta.get("deleted", False)) for meta in reported] == [
            ("report.pdf", 400_000, False),
            ("small", 1, False),
            ("small", 0, True),
        ]
