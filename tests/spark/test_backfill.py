"""Copies of a history are the sidecar's own, to the byte, and the live rule continues after them."""

from __future__ import annotations

from typing import Any

import pytest

from nats_bridge.settings import Settings
from nats_transforms.dialect import dialect
from tests.live.copied_messages import by_entry, everything, taken_apart
from tests.live.copying.copying_shapes import SHAPES, Sources, filled
from tests.live.raw_messages import OpenPeer, RawPeer
from tests.live.shared_servers import Name, Servers, SharedServers
from tests.live.sidecars import running, settings_for
from tests.live.until import until
from tests.spark.backfills import backfilled, held

MESSAGES = 150


def settings_of(url: str, target: str, rule: dict[str, Any]) -> Settings:
    """One rule, from one server to another."""
    connections = {"default": {"servers": [url]}, "west": {"servers": [target]}}
    return settings_for(url, {"name": "rule", "to": "west", **rule}, connections=connections)


async def caught_up(peer: RawPeer, settings: Settings, stream: str, messages: int) -> None:
    """Let the sidecar copy everything."""
    async with running(settings):

        async def there() -> bool:
            return int((await peer.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]) >= messages

        await until(there)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.10.27", "plain"),
        ("2.10.27", "first match wins"),
        ("2.10.27", "two streams"),
        ("2.15.3", "mirror with transforms"),
        ("2.15.3", "same stream twice"),
        ("2.15.3", "split"),
        ("2.9.10", "filter only"),
    ],
)
async def test_a_history_is_copied_as_the_sidecar_would(
    version: str, name: str, servers: SharedServers, native_server: Servers, unique_name: Name, raw_peer: OpenPeer
) -> None:
    shape, url = SHAPES[name], await servers.url(version)
    peer = await raw_peer(url)
    names = {letter: unique_name(f"history{letter}") for letter in "ab"}
    target, entries = unique_name("copy"), filled(shape.entries, names)
    sources = Sources(peer, names, shape, dialect(version), f"{name} {version}")
    await sources.create()
    await sources.publish(MESSAGES, holes=True)
    made = {"mirror": entries[0]} if shape.mirror else {"sources": entries}
    rule = {"kind": "mirror" if shape.mirror else "sources", "stream": target, **made}
    async with native_server(version) as west, native_server(version) as east:
        peers = [await raw_peer(west.url), await raw_peer(east.url)]
        for one in peers:
            await one.create_stream(name=target, subjects=filled(shape.subjects, names), **shape.target)
        summaries = await backfilled(settings_of(url, west.url, rule))
        copies = await held(peers[0], target)
        assert sum(summary.copied for summary in summaries) == len(copies) > 20
        await caught_up(peers[1], settings_of(url, east.url, rule), target, len(copies))
        of_the_sidecar = await held(peers[1], target)
        if len(entries) == 1:
            assert copies == of_the_sidecar
        assert sorted(copies) == sorted(of_the_sidecar)
        # Between entries no order is promised.
        mine, theirs = [by_entry([taken_apart(m) for m in await everything(one, target)]) for one in peers]
        assert mine == theirs
        # The live rule finds its place, and makes nothing again.
        await sources.end()
        live = await sources.stored()
        async with running(settings_of(url, west.url, rule)) as sidecar:
            counters = sidecar.runs[0].counters
            expected = await _selected(live, sidecar, len(copies))
            await until(lambda: counters.as_dict()["copied"] >= expected)
        assert [*copies, *(await held(peers[0], target))[len(copies) :]] == await held(peers[0], target)
        assert len(await held(peers[0], target)) == len(copies) + expected
        for one in peers:
            await one.close()


async def _selected(live: dict[str, list[Any]], sidecar: Any, before: int) -> int:
    """How many messages the rule selects that are not copied yet."""
    plans = sidecar.runs[0].plans
    return (
        sum(
            plan.sourcing.destination(message.subject) is not None and plan.sourcing.refusal(message.subject) is None
            for plan in plans
            for message in live[plan.source.name]
        )
        - before
    )
