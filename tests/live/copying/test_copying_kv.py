"""Key-value buckets copied into a bucket, seen with the clients that people use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue

from nats_bridge.app.sidecar import Sidecar
from nats_bridge.kinds.copying.counters import CopyCounters
from nats_bridge.settings import Settings
from nats_conformance.native_servers import NativeServer
from nats_transforms.dialect import server_dialect
from tests.live.shared_servers import Servers
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

Connect = Callable[..., Any]
Event = tuple[str, bytes, str | None]
"""Key, value, and what was done: None for a put, DEL or PURGE."""


class Watcher:
    """What a watcher of a bucket sees, from its beginning."""

    def __init__(self, watcher: Any) -> None:
        self._watcher = watcher
        self.seen: list[Event] = []

    @classmethod
    async def of(cls, bucket: KeyValue) -> Watcher:
        return cls(await bucket.watchall(include_history=True))

    async def count(self, wanted: int) -> list[Event]:
        async with asyncio.timeout(LIMIT):
            while len(self.seen) < wanted:
                entry = await self._watcher.updates(timeout=LIMIT)
                if entry is not None:  # the sign that everything from before was delivered
                    self.seen.append((entry.key, entry.value or b"", entry.operation))
        return self.seen


async def bucket(client: Client, name: str, history: int = 5) -> KeyValue:
    return await client.jetstream(timeout=LIMIT).create_key_value(bucket=name, history=history)


async def natively(client: Client, name: str, entry: dict[str, Any], history: int = 5) -> KeyValue:
    """A bucket that the server itself copies into."""
    made = await bucket(client, name, history)
    info = json.loads((await client.request(f"$JS.API.STREAM.INFO.KV_{name}", timeout=LIMIT)).data)
    body = json.dumps(info["config"] | {"sources": [entry]}).encode()
    answer = json.loads((await client.request(f"$JS.API.STREAM.UPDATE.KV_{name}", body, timeout=LIMIT)).data)
    assert "error" not in answer, answer
    return made


def copying(server: NativeServer, target: str = "B", *sources: dict[str, Any]) -> Settings:
    rule = {"name": "kv", "kind": "kv_sources", "bucket": target, "sources": list(sources or ({"bucket": "A"},))}
    return settings_for(
        server.url, rule, dialect="native" if server_dialect(server.version).stream_fields_of_2_10 else "2.15"
    )


def counters_of(sidecar: Sidecar) -> CopyCounters:
    counters = sidecar.runs[0].counters
    assert isinstance(counters, CopyCounters)
    return counters


async def reported(bucket: KeyValue) -> dict[str, list[tuple[bytes, str | None]]]:
    """Every key's history.

    Not by the client's `keys` and `history`: they assume that they reached the end when all of it is in flight
    and nothing has arrived yet.
    """
    watcher = await Watcher.of(bucket)
    histories: dict[str, list[tuple[bytes, str | None]]] = {}
    for key, value, operation in await watcher.count((await bucket.status()).values):
        histories.setdefault(key, []).append((value, operation))
    return histories


async def changes(source: KeyValue, watchers: list[Watcher], prefix: str = "") -> list[Event]:
    """Every kind of change that the client knows; what a watcher must see of them."""
    seen = len(watchers[0].seen)
    await source.put(f"{prefix}color.primary", b"red")
    await source.put(f"{prefix}color.primary", b"blue")
    revision = await source.create(f"{prefix}size", b"1")
    revision = await source.update(f"{prefix}size", b"2", last=revision)
    await source.delete(f"{prefix}size", last=revision)
    await source.create(f"{prefix}size", b"3")  # over the marker of the delete
    await source.put(f"{prefix}empty", b"")
    await source.put(f"{prefix}gone", b"x")
    # A purge takes it out of the source, for copying as well, unless it has been copied by then.
    for watcher in watchers:
        await watcher.count(seen + 8)
    await source.purge(f"{prefix}gone")
    await source.put(f"{prefix}wide", bytes(range(256)) * 300)
    return [
        (f"{prefix}color.primary", b"red", None),
        (f"{prefix}color.primary", b"blue", None),
        (f"{prefix}size", b"1", None),
        (f"{prefix}size", b"2", None),
        (f"{prefix}size", b"", "DEL"),
        (f"{prefix}size", b"3", None),
        (f"{prefix}empty", b"", None),
        (f"{prefix}gone", b"x", None),
        (f"{prefix}gone", b"", "PURGE"),
        (f"{prefix}wide", bytes(range(256)) * 300, None),
    ]


async def test_a_watcher_on_each_bucket_sees_the_same_events(
    twin_version: str, native_server: Servers, connect: Connect
) -> None:
    async with native_server(twin_version) as server:
        client = await connect(server)
        source, bridged = await bucket(client, "A"), await bucket(client, "B")
        # Revisions are the target's own: a compare-and-set of the source's clients must not be compared there.
        for _ in range(3):
            await bridged.put("local", b"1")
        watchers = [await Watcher.of(bridged)]
        await watchers[0].count(3)
        watchers[0].seen.clear()
        native = None
        if server_dialect(twin_version).stream_fields_of_2_10:
            transform = {"src": "$KV.A.>", "dest": "$KV.N.>"}
            native = await natively(client, "N", {"name": "KV_A", "subject_transforms": [transform]})
            watchers.append(await Watcher.of(native))
        async with running(copying(server)) as sidecar:
            await source.put("first", b"1")
            for watcher in watchers:
                await watcher.count(1)  # a server takes a moment until it begins to copy
            expected = await changes(source, watchers)
            for watcher in watchers:
                assert (await watcher.count(1 + len(expected)))[1:] == expected
            counters = counters_of(sidecar)
            await until(lambda: counters.copied == 1 + len(expected))
            assert counters.withheld_headers == 4, "the compare-and-sets"
        histories = await reported(source)
        assert histories.keys() == {"first", "color.primary", "size", "empty", "gone", "wide"}
        for each in (bridged, *([native] if native else [])):
            copies = await reported(each)
            copies.pop("local", None)
            assert copies == histories
            for key in histories.keys() - {"gone"}:
                assert (await each.get(key)).value == (await source.get(key)).value
            with pytest.raises(KeyNotFoundError):  # KeyDeletedError is one
                await each.get("gone")
        assert histories["gone"] == [(b"", "PURGE")], "a purge takes the history away in the target too"


async def test_keys_can_be_chosen_and_renamed(newest_version: str, native_server: Servers, connect: Connect) -> None:
    async with native_server(newest_version) as server:
        client = await connect(server)
        a, c, bridged = await bucket(client, "A"), await bucket(client, "C"), await bucket(client, "B")
        transforms = [
            {"src": "eu.*.port", "dest": "port.{{wildcard(1)}}"},
            {"src": "eu.>", "dest": "europe.>"},
            {"src": "kept.*"},
        ]
        settings = copying(
            server,
            "B",
            {"bucket": "A", "key_transforms": transforms, "exclude": ["eu.secret.>"]},
            {"bucket": "C", "exclude": ["secret"]},
        )
        async with running(settings):
            for key in ("eu.web.port", "eu.web.host", "eu.secret.key", "us.web.port", "kept.a", "kept.a.b"):
                await a.put(key, key.encode())
            for key in ("secret", "c"):
                await c.put(key, key.encode())
            await a.delete("eu.web.host")
            await a.put("kept.last", b"")
            watcher = await Watcher.of(bridged)
            seen = await watcher.count(6)
        assert sorted(seen) == [
            ("c", b"c", None),
            ("europe.web.host", b"", "DEL"),
            ("europe.web.host", b"eu.web.host", None),
            ("kept.a", b"kept.a", None),
            ("kept.last", b"", None),
            ("port.web", b"eu.web.port", None),
        ]


async def test_a_bucket_without_history_has_the_newest_value_of_every_key(
    twin_version: str, native_server: Servers, connect: Connect
) -> None:
    async with native_server(twin_version) as server:
        client = await connect(server)
        source, bridged = await bucket(client, "A", history=1), await bucket(client, "B", history=1)
        for number in range(20):
            await source.put(f"before.{number % 4}", b"%d" % number)
        async with running(copying(server)):
            for number in range(300):
                await source.put(f"k.{number % 7}", b"%d" % number)
                if number % 10 == 0:
                    await source.delete("k.3")

            async def there(key: str) -> bool:
                try:
                    return (await bridged.get(key)).value == b"1"
                except KeyNotFoundError:
                    return False

            # A purge is a roll-up, and one on 2.9.10 makes consumers skip what they have not delivered yet.
            await source.put("before", b"1")
            await until(partial(there, "before"))
            await source.purge("k.5")
            await source.put("last", b"1")
            await until(partial(there, "last"))
        copies = await reported(bridged)
        assert copies == await reported(source)
        assert copies["k.5"] == [(b"", "PURGE")]


async def test_a_sidecar_that_comes_back_resumes_where_it_was(
    newest_version: str, native_server: Servers, connect: Connect
) -> None:
    async with native_server(newest_version) as server:
        client = await connect(server)
        source, bridged = await bucket(client, "A", history=20), await bucket(client, "B", history=20)
        watcher = await Watcher.of(bridged)
        expected: list[Event] = []
        for run in range(3):
            async with running(copying(server)) as sidecar:
                await watcher.count(len(expected))
                expected += await changes(source, [watcher], f"{run}.")
                await watcher.count(len(expected))
                assert counters_of(sidecar).duplicates == 0
            # While no rule copies.
            await source.put(f"away.{run}", b"1")
            await source.delete(f"away.{run}")
            expected += [(f"away.{run}", b"1", None), (f"away.{run}", b"", "DEL")]
        async with running(copying(server)):
            assert await watcher.count(len(expected)) == expected
        assert await reported(bridged) == await reported(source)


async def test_an_empty_bucket_stays_empty_and_a_filled_one_keeps_its_own_keys(
    native_server: Servers, connect: Connect
) -> None:
    async with native_server("2.15.3") as server:
        client = await connect(server)
        await bucket(client, "A")
        bridged = await bucket(client, "B")
        async with running(copying(server)):
            assert await reported(bridged) == {}
            await bridged.put("own", b"1")
        assert await reported(bridged) == {"own": [(b"1", None)]}
