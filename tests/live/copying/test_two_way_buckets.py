"""Buckets in both directions: equal where each key has one side, and what happens where it has not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue

from nats_bridge.app.preflight import check_server
from tests.live.copying.test_copying_kv import bucket
from tests.live.shared_servers import Servers
from tests.live.sidecars import running, settings_for
from tests.live.until import LIMIT, until

Connect = Callable[..., Any]
KEYS = 9
"""So many of each side."""


def one_way(source: str, target: str, **entry: Any) -> dict[str, Any]:
    return {"name": f"to-{target}", "kind": "kv_sources", "bucket": target, "sources": [{"bucket": source, **entry}]}


async def _values(bucket: KeyValue) -> dict[str, bytes | None]:
    values: dict[str, bytes | None] = {}
    for key in (f"{side}.{number}" for side in ("west", "east") for number in range(KEYS)):
        try:
            values[key] = (await bucket.get(key)).value
        except KeyNotFoundError:  # KeyDeletedError is one
            values[key] = None
    return values


async def _write(bucket: KeyValue, side: str) -> None:
    chosen = random.Random(side)  # reproducible
    for number in range(150):
        key = f"{side}.{chosen.randrange(KEYS)}"
        match chosen.randrange(4):
            case 0:
                await bucket.delete(key)
            case 1:
                await bucket.purge(key)
            case _:
                await bucket.put(key, b"%d" % number)


async def test_buckets_are_equal_where_each_key_is_written_on_one_side(
    newest_version: str, native_server: Servers, connect: Connect
) -> None:
    async with native_server(newest_version) as server:
        client = await connect(server)
        west, east = await bucket(client, "west", history=1), await bucket(client, "east", history=1)
        rules = [
            one_way(here, there, key_transforms=[{"src": f"{here}.>"}])
            for here, there in (("west", "east"), ("east", "west"))
        ]

        async def equal() -> bool:
            return await _values(west) == await _values(east)

        async with running(settings_for(server.url, *rules)):
            await asyncio.gather(_write(west, "west"), _write(east, "east"))
            await until(equal)
        assert {value is None for value in (await _values(west)).values()} == {True, False}


async def test_two_way_copies_are_refused_and_would_swap_what_is_written_at_once(
    newest_version: str, native_server: Servers, connect: Connect
) -> None:
    """As docs/buckets.md says: two sidecars, whose rules no check sees together, and a header that ends the loop."""
    async with native_server(newest_version) as server:
        client = await connect(server)
        west, east = await bucket(client, "west"), await bucket(client, "east")
        refused = await check_server(settings_for(server.url, one_way("west", "east"), one_way("east", "west")), None)
        assert [(finding.ok, finding.code) for finding in refused] == [(False, "loop")] * 2

        jetstream = client.jetstream(timeout=LIMIT)
        await jetstream.publish("$KV.west.key", b"a", headers={"Written": "west"})
        await jetstream.publish("$KV.east.key", b"b", headers={"Written": "east"})

        def copying(source: str, target: str) -> Any:
            entry = {
                "name": f"KV_{source}",
                "subject_transforms": [{"src": f"$KV.{source}.>", "dest": f"$KV.{target}.>"}],
                "where": {"header": "Written", "equals": source},
            }
            rule = {"name": f"to-{target}", "kind": "sources", "stream": f"KV_{target}", "sources": [entry]}
            return running(settings_for(server.url, rule, name=f"to-{target}"))

        async with copying("west", "east") as one, copying("east", "west") as other:
            for sidecar in (one, other):
                await until(lambda: sidecar.runs[0].counters.as_dict()["copied"] == 1)  # noqa: B023
                await until(lambda: sidecar.runs[0].counters.as_dict()["unselected"] == 1)  # noqa: B023
        assert [(await side.get("key")).value for side in (west, east)] == [b"b", b"a"]
